//! `verify(..)`: compares totals with a recount and repairs them while the application continues to count.

mod builder;
mod recount;
mod refuse;
mod repair;

#[cfg(feature = "async")]
pub use self::builder::asynchronous;
pub use self::builder::{Verify, verify};
pub use self::recount::Drift;
