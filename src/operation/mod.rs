//! The statements and results of the operations, for signatures and bounds; the counterpart of [`diesel::query_builder`].
//!
//! The operations themselves are on the [front page](crate).

#[doc(hidden)]
pub mod bounded;
#[doc(hidden)]
pub mod cached;
#[cfg(feature = "r2d2")]
#[doc(hidden)]
pub mod coalescer;
#[doc(hidden)]
pub mod combine;
pub(crate) mod count_many;
#[doc(hidden)]
pub mod counter_cache;
#[doc(hidden)]
pub mod described;
pub(crate) mod fold;
#[doc(hidden)]
pub mod idempotency;
pub(crate) mod migrations;
pub(crate) mod named;
#[doc(hidden)]
pub mod retry;
pub(crate) mod row_counter;
pub(crate) mod set_total;
#[doc(hidden)]
pub mod shard_choice;
#[doc(hidden)]
pub mod shard_counts;
pub(crate) mod shards_table;
pub(crate) mod top;
pub(crate) mod update;
pub(crate) mod verify;

pub use self::count_many::{CountMany, CountedMany};
pub use self::fold::{Fold, Folded, Folder, FolderBuilder, FolderStats};
pub use self::migrations::{Migrations, SqlMigration};
pub use self::named::{BoundedCounter, Counter, CounterBackend, CounterList, TopCounters};
pub use self::row_counter::{IntegerField, IntoKey, RowCounter};
pub use self::set_total::SetTotal;
pub use self::shard_counts::number::ShardCount;
pub use self::shards_table::{ShardsTable, TotalsView};
pub use self::top::Top;
pub use self::update::returning::SelectTotals;
pub use self::update::{UpdateSource, UpdateStatement};
pub use self::verify::{Drift, RecountQuery, Verify};
pub use crate::model::amount::Amount;
