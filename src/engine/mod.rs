//! How counts, folds and other operations reach the shards. No type of a user's is known here.

mod attempt_error;
mod count;
mod facts;
mod keyed;
mod locking;
mod retry_loop;
mod statement;

pub(crate) use self::attempt_error::{
    AttemptError, explain, explain_keys, explain_missing, explain_of,
};
pub(crate) use self::count::count;
pub(crate) use self::facts::{Facts, PartOf};
pub use self::keyed::{KEYS_IN_A_STATEMENT, KeyedTable, Parents};
pub(crate) use self::keyed::{ReadInto, in_chunks, keys_are};
pub(crate) use self::locking::{
    LockedRows, Moved, States, Sums, TRIES_TO_LOCK, field, locking, locking_options, zeros,
};
pub(crate) use self::retry_loop::{RetryLoop, retry_loop};
pub(crate) use self::statement::{SendStatement, Statement, Step, send};
