//! `set_total(..)` and `reset(..)`: set totals while counts continue.

mod assignment;
mod builder;
mod idempotent;
mod set;

pub use self::assignment::{Assignment, ToValue, ToZero};
#[cfg(feature = "async")]
pub use self::builder::asynchronous;
pub use self::builder::{SetTotal, reset, set_total};
pub(crate) use self::set::set_by_key;
