//! `update(..).set(..)`: Diesel's update statement, written to shards.

#[cfg(feature = "async")]
pub mod asynchronous;
mod blocking;
mod count;
mod load;
pub mod returning;
mod send;
mod source;
mod statement;

pub(crate) use self::count::{Count, IntoCount, NO_INSERT};
pub(crate) use self::send::{Fragments, TypedUpdate, Update};
pub use self::source::{BoxedRows, Rows, UpdateSource};
pub use self::statement::{SetNotCalled, UpdateStatement, Values, update};
