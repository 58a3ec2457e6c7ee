//! Named counters: created on the fly, without a table of the application's own.
//!
//! They live in the library's own tables (see [`MIGRATIONS`](crate::MIGRATIONS)), which are a parent with one sharded field
//! like any other: the derive declares them, and the same statements count, fold and set them.

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
