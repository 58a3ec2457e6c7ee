//! Named counters: created on the fly, without a table of the application's own.
//!
//! They live in the library's own tables (see [`MIGRATIONS`](crate::MIGRATIONS)), a parent like any other with one sharded field:
//! the derive declares them, and the same statements count, fold and set them.

#[cfg(feature = "async")]
pub mod asynchronous;
mod backend;
mod counter;
mod list;
mod name;
mod sql;
mod table;

pub use self::backend::CounterBackend;
pub use self::counter::Counter;
pub use self::list::CounterList;
pub use self::table::counters;
