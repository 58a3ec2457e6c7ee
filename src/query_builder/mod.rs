//! The SQL that is generated, and nothing else.

mod count;
mod hold;
mod kept;
mod keys;
mod literal;
mod names;
mod total;

pub(crate) use self::count::{
    CountByKey, CountPicked, CreateShards, FindMissing, FindParent, PickKeys, ProbeShard,
    SelectParents, UnlessThere,
};
pub(crate) use self::hold::{
    AddShardsToBases, EmptyShards, Fields, FindShardsPolicy, HeldRows, LockParents, LockShards,
    NotLocked, ReadStates, RemoveShards, Rows, SelectShards, Sums, Write,
};
pub use self::kept::{Guard, Keep};
pub(crate) use self::kept::{Kept, KeptQuery, Passing, statement_was_lost};
pub(crate) use self::keys::{KeyIs, KeysAre};
pub(crate) use self::literal::literal;
pub(crate) use self::names::{
    Names, push_bind, push_column, push_each_key, push_from_shards, push_key, push_key_to_read,
    push_select_keys_as_parent, push_shard_is, push_shards_as_parent, push_shards_column,
    push_unique_key, push_zeros,
};
pub use self::total::{ShardedExpressionMethods, Total};
pub(crate) use self::total::{push_total, push_total_of};
