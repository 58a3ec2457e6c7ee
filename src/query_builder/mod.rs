//! The SQL that is generated, and nothing else.

mod count_all;
mod count_all_and_load;
mod count_by_key;
mod count_each;
mod count_one;
mod count_picked;
mod create_shards;
mod find_missing;
mod find_parent;
mod insert_parent;
mod keys;
mod literal;
mod locking;
mod names;
mod parts;
mod peak;
mod pick_keys;
mod picked;
mod prepared;
mod probe_shard;
mod query_ids;
mod select_parents;
mod sql;
mod text_guard;
mod top;
mod total;
mod under_alias;

pub(crate) use self::count_all::CountAll;
pub(crate) use self::count_all_and_load::{CountAllAndLoad, CountAllAndLoadId};
pub(crate) use self::count_by_key::{
    CountBeforeLoad, CountBeforeLoadId, CountByKey, FirstCount, FirstCountId,
};
pub(crate) use self::count_each::{CountEach, CountedRow, CountedShard};
pub(crate) use self::count_one::CountOne;
pub(crate) use self::count_picked::CountPicked;
pub(crate) use self::create_shards::CreateShards;
pub(crate) use self::find_missing::FindMissing;
pub(crate) use self::find_parent::FindParent;
pub(crate) use self::insert_parent::InsertParent;
pub(crate) use self::keys::{KeyIs, KeysAre};
pub(crate) use self::literal::literal;
pub(crate) use self::locking::{
    AddShardsToBases, BaseValues, EmptyShards, Fields, FindHot, FindPolicy, LockParents,
    LockShards, NotLocked, ReadPeaks, ReadStates, RemoveOrphans, RemoveShards, RowKind,
    SelectShards, StatementRows, Sums, Write, WriteValues,
};
pub(crate) use self::names::{
    Names, has_rows, number_of_rows, push_aliased_column, push_bind, push_column, push_shard_is,
    push_shards_as_parent, push_under_alias, zeros,
};
pub(crate) use self::parts::{Identified, Parts};
pub use self::peak::{NewPeak, PeakExpressionMethods};
pub(crate) use self::pick_keys::PickKeys;
pub(crate) use self::prepared::{Passing, Prepared, PreparedQuery, statement_was_lost};
pub(crate) use self::probe_shard::ProbeShard;
pub(crate) use self::query_ids::no_query_id;
pub(crate) use self::select_parents::SelectParents;
pub(crate) use self::sql::{Sql, bind, id, on, part, sql, text_of, walk};
pub use self::text_guard::{Prepare, TextGuard};
pub use self::top::SelectTop;
pub(crate) use self::total::push_total;
pub use self::total::{ShardedExpressionMethods, Total, TotalInRow};
pub(crate) use self::under_alias::{quoted, with_other_table};
