//! `verify(..)`: compares totals with a recount and repairs them while the application continues to count.

mod builder;
mod number;
mod recount;

#[cfg(feature = "async")]
pub use self::builder::asynchronous;
pub use self::builder::{Drift, Verify, verify};
pub use self::number::RecountQuery;
pub use self::recount::differs;
