//! Named counters: created on the fly, without a table of the application's own.
//!
//! They live in the library's own tables (see [`MIGRATIONS`](crate::MIGRATIONS)), a parent like any other with one sharded field:
//! the derive declares them, and the same statements count, fold and set them.

mod backend;
mod bounded;
mod cached;
mod counter;
mod idempotent;
mod list;
mod name;
mod prefixed;
mod shards;
mod sql;
mod table;
mod top;

pub use self::backend::CounterBackend;
pub use self::bounded::BoundedCounter;
pub use self::counter::Counter;
pub use self::list::CounterList;
pub use self::table::counters;
pub use self::top::TopCounters;
