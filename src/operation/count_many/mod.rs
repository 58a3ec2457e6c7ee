//! Many rows of one field, each with its own amount, at once.

mod builder;
mod missing;
mod on_shard;
mod run;

#[cfg(feature = "async")]
pub use self::builder::asynchronous;
pub use self::builder::{CountMany, CountedMany, count_many};
pub use self::missing::{InsertMissing, OrInsertEach};
#[cfg(feature = "r2d2")]
pub use self::on_shard::OnShard;
#[cfg(feature = "r2d2")]
pub(crate) use self::on_shard::{count_each, count_shards, create_shards, there};
