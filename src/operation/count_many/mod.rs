//! Many rows of one field, each with its own amount, at once.

mod builder;
mod ladder;
mod missing;
mod run;

#[cfg(feature = "async")]
pub use self::builder::asynchronous;
pub use self::builder::{CountMany, CountedMany, count_many};
#[cfg(feature = "r2d2")]
pub use self::ladder::{Addition, Climbed, Rung};
#[cfg(feature = "r2d2")]
pub(crate) use self::ladder::{count_each, count_together};
pub use self::missing::{InsertMissing, OrInsertEach};
