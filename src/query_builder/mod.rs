//! The SQL that is generated, and nothing else.

mod add_sums;
mod count;
mod count_each;
mod create_shards;
mod insert_parent;
mod keys;
mod locking;
mod names;
mod peak;
mod prepared;
mod sql;
mod top;
mod total;
mod under_alias;

pub(crate) use self::add_sums::{AddSums, Addend, shown_binds};
pub(crate) use self::count::{
    Clauses, CountAll, CountAllAndLoad, CountAllAndLoadId, CountBeforeLoad, CountBeforeLoadId,
    CountByKey, CountOne, CountPicked, FindMissing, FindParent, FirstCount, Identified, LockShard,
    UpdateId,
};
pub(crate) use self::count_each::{CountEach, CountedRow, CountedShard};
pub(crate) use self::create_shards::CreateShards;
pub(crate) use self::insert_parent::InsertParent;
pub(crate) use self::keys::{KeyIs, KeysAre, OnPrimary, SelectKeys, SelectParents};
pub(crate) use self::locking::{
    AddShardsToBases, BaseValues, EmptyShards, Fields, FindHot, FindPolicy, LockShards, NotLocked,
    PickAgain, ReadShards, ReadStates, RemoveOrphans, RemoveShards, RowKind, SelectFirstShards,
    SelectShards, StatementRows, Sums, Write, WriteRests, WriteValues,
};
pub use self::names::Names;
pub(crate) use self::names::{has_rows, number_of_rows, zeros};
#[cfg(feature = "r2d2")]
pub(crate) use self::peak::PlainValue;
pub use self::peak::{NewPeak, PeakExpressionMethods};
pub use self::prepared::{Prepare, TextChecksum};
pub(crate) use self::prepared::{
    Prepared, PreparedQuery, Unchecked, statement_was_lost, text_of_others,
};
pub(crate) use self::sql::{
    Sql, bind, copies, fragments, id, on, part, sql, statements, text_of, walk,
};
pub use self::top::{After, NoColumn, SelectTop, SortedBy};
pub use self::total::{ShardedExpressionMethods, Total, TotalInRow};
