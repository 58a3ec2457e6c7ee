//! `update(..).set(..)`: Diesel's update statement, written to shards.

#[cfg(feature = "async")]
pub mod asynchronous;
mod blocking;
mod load;
mod ready;
pub mod returning;
mod source;
mod statement;

pub(crate) use self::ready::{IntoReady, Ready, Sendable};
pub use self::source::{BoxedRows, Rows, UpdateSource};
pub use self::statement::{SetNotCalled, UpdateStatement, Values, update};
