//! How counts, folds and the rest reach the shards: no types of users.

pub(crate) mod attempt;
mod explain;
mod hold;
mod keyed;
mod retry_loop;
pub(crate) mod runner;

pub(crate) use self::explain::{explain, explain_missing};
pub(crate) use self::hold::{
    Held, Locked, Shards, States, Sums, TRIES_TO_LOCK, field, holding, shards_of, zeros,
};
pub use self::hold::{HoldError, Moved};
pub use self::keyed::KeyedTable;
pub(crate) use self::keyed::{KEYS_IN_A_STATEMENT, in_chunks};
pub(crate) use self::retry_loop::{Failed, RetryLoop, enclosed, retry_loop};
#[cfg(feature = "r2d2")]
pub(crate) use self::retry_loop::{own_statement, own_transaction};
