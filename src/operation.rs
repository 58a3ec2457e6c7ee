//! The statements and results of the operations, for signatures and bounds; the counterpart of [`diesel::query_builder`].
//!
//! The operations themselves are on the [front page](crate).

pub use crate::counting::count_many::{CountMany, CountedMany};
pub use crate::counting::counter::{
    BoundedCounter, Counter, CounterBackend, CounterList, TopCounters,
};
pub use crate::counting::row_counter::{IntegerField, IntoKey, RowCounter};
pub use crate::counting::update::returning::SelectTotals;
pub use crate::counting::update::{UpdateSource, UpdateStatement};
pub use crate::model::amount::Amount;
pub use crate::reading::top::Top;
pub use crate::tables::migrations::{Migrations, SqlMigration};
pub use crate::tables::shards_table::{ShardsTable, TotalsView};
pub use crate::upkeep::fold::{Fold, Folded, Folder, FolderBuilder, FolderStats};
pub use crate::upkeep::set_total::SetTotal;
pub use crate::upkeep::shard_counts::number::ShardCount;
pub use crate::upkeep::verify::{Drift, RecountQuery, Verify};
