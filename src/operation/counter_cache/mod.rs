//! The number of a table's rows, kept by triggers: [`CounterCache`].
//!
//! The triggers add to the shards of the row that the counted rows belong to, in the transaction that writes them. So the total is
//! exact for every writer, whichever program it is.

mod cache;
mod child;
mod condition;
mod create;
mod declaration;
#[doc(hidden)]
pub mod described;
mod literal;
mod recount;
mod statements;
mod triggers;

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests;

pub use self::cache::{CounterCache, EveryRow, NotCounting};
pub use self::child::{ChildTable, One, RefersTo, SummedInto};
pub use self::literal::{Literal, LiteralValue, literal};
pub use self::recount::CacheRecount;
