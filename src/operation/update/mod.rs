//! `update(..).set(..)`: Diesel's update statement, written to shards.

#[cfg(feature = "async")]
pub mod asynchronous;
mod blocking;
mod boxed;
mod builder;
mod changes;
mod insert;
mod load;
mod ready;
pub mod returning;
mod settings;
mod source;
mod statement;

pub use self::boxed::BoxedRows;
pub use self::insert::{InsertRow, NoInsert, OrInsert};
pub(crate) use self::ready::Ready;
pub use self::source::{Rows, UpdateSource};
pub use self::statement::{SetNotCalled, UpdateStatement, Values, update};
