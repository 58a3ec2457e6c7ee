//! `fold(..)`: moves shards into the base, under full write load, without changing any total.

mod batch;
mod batches;
mod builder;
mod folded;

pub(in crate::operation) use self::batch::Folding;
pub(in crate::operation) use self::batches::Batches;
#[cfg(feature = "async")]
pub use self::builder::asynchronous;
pub use self::builder::{Fold, fold};
pub use self::folded::Folded;
