//! Counting on parents that are named by their keys.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};

use crate::backend::ShardedBackend;
use crate::query_builder::{CountOne, Names, Parts, Prepare, Sql, no_query_id, sql, walk};

/// Adds to one shard of the parents that `filter` names by their keys, without a look at the parents.
///
/// The shards table carries its parent's column names. Aliased AS the parent, it therefore takes Diesel's own tree for
/// the changes, and for a filter on the key, as they are. (For a table inside a schema see `under_alias`.)
///
/// ```sql
/// UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1)
/// WHERE ("videos"."id" = $2) AND "videos"."shard" = $3
/// ```
pub(crate) struct CountByKey<'a, DB: Backend>(pub(crate) Parts<'a, DB>);

impl<DB: ShardedBackend> QueryFragment<DB> for CountByKey<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let parts = &self.0;
        let table = parts.names;
        sql!(out;
            "UPDATE ", table.shards_as_parent(), " SET ", table.aliased(parts.changes), table.aliased(parts.filter),
            " AND ", table.shard_is(&parts.shard))
    }
}

impl<DB: ShardedBackend> Prepare<DB> for CountByKey<'_, DB> {}

no_query_id!(['a, DB: Backend] CountByKey<'a, DB>);

/// The same as the first statement of a transaction that reads the parents later.
pub(crate) struct CountBeforeLoad<'a, DB: Backend>(pub(crate) CountByKey<'a, DB>);

impl<DB: ShardedBackend> QueryFragment<DB> for CountBeforeLoad<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let waits = out.backend().dialect().waits_unseen_for_tables();
        sql!(out; walk(&self.0), if waits { " AND ", self.0.0.names.are_named() })
    }
}

impl<DB: ShardedBackend> Prepare<DB> for CountBeforeLoad<'_, DB> {}

/// The id of [`CountBeforeLoad`] for changes `V` and a filter `W`.
#[derive(QueryId)]
pub(crate) struct CountBeforeLoadId<T, W, V>(PhantomData<(T, W, V)>);

/// The statement that an update sends again and again: by key, or on the one parent that its filter matches.
pub(crate) enum FirstCount<'a, DB: Backend> {
    ByKey(CountByKey<'a, DB>),
    One(CountOne<'a, DB>),
}

impl<DB: ShardedBackend> QueryFragment<DB> for FirstCount<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        match self {
            FirstCount::ByKey(count) => count.walk_ast(out),
            FirstCount::One(count) => count.walk_ast(out),
        }
    }
}

impl<DB: ShardedBackend> Prepare<DB> for FirstCount<'_, DB> {}

/// The id of [`FirstCount`] for changes `V` and a filter `W`, whose type says whether it is by key.
#[derive(QueryId)]
pub(crate) struct FirstCountId<T, W, V>(PhantomData<(T, W, V)>);

impl<'b, DB: ShardedBackend> Names<'b, DB> {
    /// A condition that always holds and reads nothing, but names the parents' table, so that the transaction holds its metadata lock
    /// from then on. MySQL's `ALTER TABLE` of a parent keeps that lock while it waits for transactions that have written shards. One of
    /// these that names the parent only later waits for the `ALTER`, and no detector sees the circle.
    ///
    /// `NOT EXISTS (SELECT 1 FROM parent WHERE FALSE)`
    pub(crate) fn are_named(self) -> impl Sql<'b, DB> {
        sql! { "NOT EXISTS (SELECT 1 FROM ", walk(self.parent), " WHERE FALSE)" }
    }
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::model::ShardedTable;
    use crate::query_builder::KeysAre;
    use crate::test_schema::videos::dsl::*;
    use crate::test_schema::{sql, videos as table};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::query_builder::{AsChangeset, IntoUpdateTarget};
    use diesel::sqlite::Sqlite;

    #[test]
    fn count_by_key() {
        let changes = (views.eq(views + 1), likes.eq(likes - 2)).as_changeset();
        macro_rules! count {
            () => {
                CountByKey(Parts {
                    names: Names::of::<table::table>(),
                    changes: &changes,
                    filter: &videos.find(7).into_update_target().where_clause,
                    shard: 3,
                })
            };
        }
        assert_eq!(
            sql!(Pg, count!()),
            r#"UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1), "likes" = ("videos"."likes" - $2) WHERE ("videos"."id" = $3) AND "videos"."shard" = $4"#
        );
        assert_eq!(
            sql!(Mysql, count!()),
            "UPDATE `videos_shards` AS `videos` SET `views` = (`videos`.`views` + ?), `likes` = (`videos`.`likes` - ?) WHERE (`videos`.`id` = ?) AND `videos`.`shard` = ?"
        );
        assert_eq!(
            sql!(Sqlite, count!()),
            "UPDATE `videos_shards` AS `videos` SET `views` = (`videos`.`views` + ?), `likes` = (`videos`.`likes` - ?) WHERE (`videos`.`id` = ?) AND `videos`.`shard` = ?"
        );
        let (mysql, sqlite) = (sql!(Mysql, count!()), sql!(Sqlite, count!()));
        let parent = " AND NOT EXISTS (SELECT 1 FROM `videos` WHERE FALSE)";
        assert_eq!(sql!(Mysql, CountBeforeLoad(count!())), mysql + parent);
        assert_eq!(sql!(Sqlite, CountBeforeLoad(count!())), sqlite);
    }

    #[test]
    fn a_filter_by_key_is_told_from_any_other() {
        fn by_key<T, Q>(_: Q) -> bool
        where
            T: ShardedTable,
            Q: IntoUpdateTarget<Table = T, WhereClause: QueryId>,
        {
            <Q::WhereClause as QueryId>::query_id().is_some_and(T::is_key_filter)
        }
        assert!(by_key(videos.find(7)));
        assert!(by_key(videos.find(&7)));
        assert!(by_key(videos.filter(id.eq(7))));
        assert!(!by_key(videos));
        assert!(!by_key(videos.filter(id.ge(7))));
        assert!(!by_key(videos.filter(id.ne(7))));
        assert!(!by_key(videos.filter(id.eq(views))));
        assert!(!by_key(videos.filter(views.eq(7))));
        assert!(!by_key(videos.filter(id.eq_any([7]))));
        assert!(!by_key(videos.find(7).filter(slug.eq("a"))));
        assert!(!by_key(videos.filter(id.eq(7).or(id.eq(8)))));
        assert!(!by_key(videos.find(7).or_filter(id.eq(8))));
        assert!(!by_key(videos.filter(diesel::dsl::not(id.eq(7)))));

        use crate::test_schema::downloads::dsl::{day, downloads, version};
        assert!(by_key(downloads.find((1, "x"))));
        assert!(by_key(downloads.filter(version.eq(1)).filter(day.eq("x"))));
        assert!(by_key(downloads.filter(day.eq("x")).filter(version.eq(1))));
        assert!(by_key(downloads.filter(version.eq(1).and(day.eq("x")))));
        assert!(!by_key(downloads.filter(version.eq(1))));
        assert!(!by_key(downloads.filter(version.eq(1).or(day.eq("x")))));
        assert!(!by_key(
            downloads.filter(version.eq(1)).filter(version.eq(1))
        ));
    }

    #[test]
    fn statements_by_key_stay_prepared() {
        fn is_static<Q: QueryId>(_: &Q) -> bool {
            Q::HAS_STATIC_QUERY_ID
        }
        fn values<V: AsChangeset + QueryId, W: QueryId>(_: V, _: W) -> bool {
            FirstCountId::<table::table, W, V>::HAS_STATIC_QUERY_ID
        }
        let by_key = || videos.find(7).into_update_target().where_clause;
        assert!(values(views.eq(views + 1), by_key()));
        assert!(values((views.eq(views + 1), likes.eq(likes - 1)), by_key()));
        assert!(!is_static(&KeysAre(vec![id.eq(1)])));
    }
}
