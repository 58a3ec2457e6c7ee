//! `verify(..)`: compares totals with a recount and repairs them while the application continues to count.

#[cfg(feature = "async")]
pub mod asynchronous;
mod builder;
mod drift;
mod fields;
mod number;
mod recount;
mod refuse;
mod repair;
mod totals;

pub use self::builder::{Verify, verify};
pub use self::drift::Drift;
pub(crate) use self::drift::differs;
pub use self::fields::VerifiedFields;
pub use self::number::RecountQuery;
