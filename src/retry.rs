//! Attempts: how many, how far apart, and whole transactions that are tried again.
//!
//! A counting update outside a transaction is tried again by itself when it meets a [`Conflict`](crate::Conflict), each
//! time on another shard. Inside a transaction nothing is: the whole transaction is the unit, and [`transaction`]
//! tries it again.

mod policy;
mod raw;
mod transaction;

pub(crate) use self::policy::Attempts;
pub use self::policy::{Attempted, Retry};
pub(crate) use self::raw::{in_any_transaction, met_inside};
#[cfg(feature = "async")]
pub(crate) use self::transaction::Failed;
pub(crate) use self::transaction::{
    Begun, Repeated, TransactionOptions, begin, depth_of, enclosed, in_transaction, repeat,
};
pub use self::transaction::{Isolation, Transaction, transaction};
#[cfg(feature = "r2d2")]
pub(crate) use self::transaction::{own_statement, own_transaction};
