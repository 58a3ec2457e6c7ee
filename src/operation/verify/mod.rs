//! `verify(..)`: totals beside a recount of what they count, repaired while the application goes on counting.

mod builder;
mod recount;
mod refuse;
mod repair;

#[cfg(feature = "async")]
pub use self::builder::asynchronous;
pub use self::builder::{Verify, verify};
pub use self::recount::Drift;
