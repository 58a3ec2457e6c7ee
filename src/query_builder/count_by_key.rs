//! Counting on parents that are named by their keys.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};

use crate::backend::ShardedBackend;
use crate::model::ShardedTable;
use crate::query_builder::query_ids::query_ids;
use crate::query_builder::{Keep, push_shard_is, push_shards_as_parent, push_under_alias};

/// Adds to one shard of the parents that `filter` names by their keys, without a look at the parents.
///
/// The shards table carries its parent's column names. Aliased AS the parent, it therefore takes Diesel's own tree for
/// the changes, and for a filter on the key, as they are. (For a table inside a schema see `under_alias`.)
///
/// ```sql
/// UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1)
/// WHERE ("videos"."id" = $2) AND "videos"."shard" = $3
/// ```
pub(crate) struct CountByKey<'a, T, W, V, Ch> {
    pub(crate) changes: &'a Ch,
    pub(crate) filter: &'a W,
    pub(crate) shard: i32,
    pub(crate) types: PhantomData<(T, V)>,
}

impl<T, W, V, Ch, DB> QueryFragment<DB> for CountByKey<'_, T, W, V, Ch>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    Ch: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("UPDATE ");
        push_shards_as_parent::<T, DB>(out.reborrow())?;
        out.push_sql(" SET ");
        push_under_alias::<T, _, DB>(self.changes, out.reborrow())?;
        push_under_alias::<T, _, DB>(self.filter, out.reborrow())?;
        out.push_sql(" AND ");
        push_shard_is::<T, DB>(&self.shard, out)
    }
}

impl<T, W, V, Ch, DB> Keep<DB> for CountByKey<'_, T, W, V, Ch>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    Ch: QueryFragment<DB>,
{
}

query_ids!(CountByKey<'a, T, W, V; Ch>);

/// The same as the first statement of a transaction that reads the parents later.
pub(crate) struct CountBeforeLoad<'a, T, W, V, Ch>(pub(crate) CountByKey<'a, T, W, V, Ch>);

impl<T, W, V, Ch, DB> QueryFragment<DB> for CountBeforeLoad<'_, T, W, V, Ch>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    Ch: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.0.walk_ast(out.reborrow())?;
        if out.backend().dialect().waits_unseen_for_tables() {
            out.push_sql(" AND ");
            push_parents_name::<T, DB>(out)?;
        }
        Ok(())
    }
}

impl<T, W, V, Ch, DB> Keep<DB> for CountBeforeLoad<'_, T, W, V, Ch>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    Ch: QueryFragment<DB>,
{
}

query_ids!(CountBeforeLoad<'a, T, W, V; Ch>);

/// A condition that always holds and reads nothing, but names the parents' table, so that the transaction holds its metadata lock from
/// then on. MySQL's `ALTER TABLE` of a parent keeps that lock while it waits for transactions that have written shards. One of
/// these that names the parent only later waits for the `ALTER`, and no detector sees the circle.
///
/// `NOT EXISTS (SELECT 1 FROM parent WHERE FALSE)`
pub(crate) fn push_parents_name<T, DB>(mut out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    out.push_sql("NOT EXISTS (SELECT 1 FROM ");
    T::TABLE.walk_ast(out.reborrow())?;
    out.push_sql(" WHERE FALSE)");
    Ok(())
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
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
        let count = CountByKey::<table::table, _, (), _> {
            changes: &changes,
            filter: &videos.find(7).into_update_target().where_clause,
            shard: 3,
            types: PhantomData,
        };
        assert_eq!(
            sql!(Pg, count),
            r#"UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1), "likes" = ("videos"."likes" - $2) WHERE ("videos"."id" = $3) AND "videos"."shard" = $4"#
        );
        assert_eq!(
            sql!(Mysql, count),
            "UPDATE `videos_shards` AS `videos` SET `views` = (`videos`.`views` + ?), `likes` = (`videos`.`likes` - ?) WHERE (`videos`.`id` = ?) AND `videos`.`shard` = ?"
        );
        assert_eq!(
            sql!(Sqlite, count),
            "UPDATE `videos_shards` AS `videos` SET `views` = (`videos`.`views` + ?), `likes` = (`videos`.`likes` - ?) WHERE (`videos`.`id` = ?) AND `videos`.`shard` = ?"
        );
        let (mysql, sqlite) = (sql!(Mysql, count), sql!(Sqlite, count));
        let before_load = CountBeforeLoad(count);
        let parent = " AND NOT EXISTS (SELECT 1 FROM `videos` WHERE FALSE)";
        assert_eq!(sql!(Mysql, before_load), mysql + parent);
        assert_eq!(sql!(Sqlite, before_load), sqlite);
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
        fn values<V: AsChangeset + QueryId, W: QueryId>(v: V, filter: W) -> bool {
            is_static(&CountByKey::<table::table, W, V, V::Changeset> {
                changes: &v.as_changeset(),
                filter: &filter,
                shard: 0,
                types: PhantomData,
            })
        }
        let by_key = || videos.find(7).into_update_target().where_clause;
        assert!(values(views.eq(views + 1), by_key()));
        assert!(values((views.eq(views + 1), likes.eq(likes - 1)), by_key()));
        assert!(!is_static(&KeysAre(vec![id.eq(1)])));
    }
}
