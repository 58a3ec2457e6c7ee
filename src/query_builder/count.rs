//! The statements of a counting update.
//!
//! The shards table carries its parent's column names. Aliased AS the parent, it therefore takes Diesel's own tree for
//! the changes, and for a filter on the key, as they are.

use std::marker::PhantomData;

use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::Integer;

use crate::backend::{KeepsAndLocks, ShardedBackend, Strength};
use crate::model::{SHARD, ShardedTable};
use crate::query_builder::{
    Guard, Keep, push_bind, push_column, push_each_key, push_key, push_key_to_read, push_shard_is,
    push_shards_as_parent, push_shards_column, push_unique_key,
};

/// Adds to one shard of the parents that `filter` names by their keys, without a look at the parents.
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
        self.changes.walk_ast(out.reborrow())?;
        self.filter.walk_ast(out.reborrow())?;
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

/// Adds to one shard of the parents that `filter` matches, whatever it looks at.
///
/// ```sql
/// -- PostgreSQL, SQLite
/// UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1)
/// FROM (SELECT "videos"."id" AS "sharded_key_0" FROM "videos" WHERE …) AS "sharded_picked"
/// WHERE "sharded_picked"."sharded_key_0" = "videos"."id" AND "videos"."shard" = $2
/// -- MySQL, MariaDB, which lock the shards in the order of their keys here
/// UPDATE (SELECT `videos`.`id` AS `sharded_key_0` FROM `videos` WHERE … ORDER BY `videos`.`id` LIMIT 18446744073709551615) AS `sharded_picked`
/// STRAIGHT_JOIN `videos_shards` AS `videos` ON `sharded_picked`.`sharded_key_0` = `videos`.`id`
/// SET `views` = (`videos`.`views` + ?) WHERE `videos`.`shard` = ?
/// ```
pub(crate) struct CountPicked<'a, T, W, V, Ch> {
    pub(crate) changes: &'a Ch,
    pub(crate) filter: &'a W,
    pub(crate) shard: i32,
    pub(crate) types: PhantomData<(T, V)>,
}

impl<T, W, V, Ch, DB> QueryFragment<DB> for CountPicked<'_, T, W, V, Ch>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    Ch: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        if out.backend().dialect().joins_before_set() {
            out.push_sql("UPDATE ");
            push_picked::<T, W, DB>(self.filter, out.reborrow())?;
            out.push_sql(" STRAIGHT_JOIN ");
            push_shards_as_parent::<T, DB>(out.reborrow())?;
            out.push_sql(" ON ");
            push_picked_is_parent::<T, DB>(out.reborrow())?;
            out.push_sql(" SET ");
            self.changes.walk_ast(out.reborrow())?;
            out.push_sql(" WHERE ");
        } else {
            out.push_sql("UPDATE ");
            push_shards_as_parent::<T, DB>(out.reborrow())?;
            out.push_sql(" SET ");
            self.changes.walk_ast(out.reborrow())?;
            out.push_sql(" FROM ");
            push_picked::<T, W, DB>(self.filter, out.reborrow())?;
            out.push_sql(" WHERE ");
            push_picked_is_parent::<T, DB>(out.reborrow())?;
            out.push_sql(" AND ");
        }
        push_shard_is::<T, DB>(&self.shard, out)
    }
}

impl<T, W, V, Ch, DB> Keep<DB> for CountPicked<'_, T, W, V, Ch>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    Ch: QueryFragment<DB>,
{
}

/// Inserts the missing shards of the parents that `filter` matches, at zero, and locks the others; in key order, so that
/// two such statements cannot deadlock.
///
/// ```sql
/// INSERT INTO "videos_shards" ("id", "shard") SELECT "videos"."id", $1 FROM "videos" WHERE … ORDER BY "videos"."id"
/// ON CONFLICT ("id", "shard") DO UPDATE SET "shard" = excluded."shard" WHERE FALSE      -- PostgreSQL
/// ON CONFLICT ("id", "shard") DO NOTHING                                                -- SQLite
/// ON DUPLICATE KEY UPDATE `shard` = `videos_shards`.`shard`                             -- MySQL, MariaDB
/// ```
pub(crate) struct CreateShards<'a, T, W> {
    pub(crate) filter: &'a W,
    pub(crate) shard: i32,
    pub(crate) table: PhantomData<T>,
}

impl<T, W> CreateShards<'_, T, W> {
    fn walk<'b, DB>(
        &'b self,
        guard: Option<&'b Guard>,
        mut out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()>
    where
        DB: ShardedBackend,
        T: ShardedTable + QueryFragment<DB>,
        W: QueryFragment<DB>,
    {
        out.push_sql("INSERT INTO ");
        out.push_identifier(T::SHARDS_TABLE)?;
        out.push_sql(" ");
        push_unique_key::<T, DB>(out.reborrow())?;
        out.push_sql(" SELECT ");
        push_key::<T, DB>(out.reborrow())?;
        out.push_sql(", ");
        push_bind::<Integer, i32, DB>(&self.shard, out.reborrow())?;
        out.push_sql(" FROM ");
        T::TABLE.walk_ast(out.reborrow())?;
        self.filter.walk_ast(out.reborrow())?;
        out.push_sql(" ORDER BY ");
        push_key::<T, DB>(out.reborrow())?;
        if let Some(guard) = guard {
            out.push_sql(" OFFSET ");
            guard.push_offset(out.reborrow())?;
        }
        match out.backend().dialect().keeps_and_locks() {
            KeepsAndLocks::ConflictLocks => {
                out.push_sql(" ON CONFLICT ");
                push_unique_key::<T, DB>(out.reborrow())?;
                out.push_sql(" DO UPDATE SET ");
                out.push_identifier(SHARD)?;
                out.push_sql(" = excluded.");
                out.push_identifier(SHARD)?;
                out.push_sql(" WHERE FALSE");
            }
            KeepsAndLocks::ConflictIgnored => {
                out.push_sql(" ON CONFLICT ");
                push_unique_key::<T, DB>(out.reborrow())?;
                out.push_sql(" DO NOTHING");
            }
            KeepsAndLocks::DuplicateKeyLocks => {
                out.push_sql(" ON DUPLICATE KEY UPDATE ");
                out.push_identifier(SHARD)?;
                out.push_sql(" = ");
                push_shards_column::<T, DB>(SHARD, out.reborrow())?;
            }
        }
        Ok(())
    }
}

impl<T, W, DB> QueryFragment<DB> for CreateShards<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.walk(None, out)
    }
}

impl<T, W, DB> Keep<DB> for CreateShards<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_guarded<'b>(&'b self, guard: &'b Guard, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.walk(Some(guard), out)
    }
}

/// Finds out whether the shard of a parent named by its key is missing, without locking anything.
///
/// ```sql
/// SELECT 1 FROM (SELECT 1) AS one WHERE NOT (/*M!110600 TRUE OR */
///     EXISTS (SELECT 1 FROM `videos_shards` AS `videos` WHERE (`videos`.`id` = ?) AND `videos`.`shard` = ?))
/// ```
pub(crate) struct FindMissing<'a, T, W> {
    pub(crate) filter: &'a W,
    pub(crate) shard: i32,
    pub(crate) table: PhantomData<T>,
}

impl<T, W, DB> QueryFragment<DB> for FindMissing<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let always = out.backend().dialect().finds_without_a_look();
        out.push_sql("SELECT 1 FROM (SELECT 1) AS one WHERE NOT (");
        out.push_sql(always);
        out.push_sql("EXISTS (SELECT 1 FROM ");
        push_shards_as_parent::<T, DB>(out.reborrow())?;
        self.filter.walk_ast(out.reborrow())?;
        out.push_sql(" AND ");
        push_shard_is::<T, DB>(&self.shard, out.reborrow())?;
        out.push_sql("))");
        Ok(())
    }
}

impl<T, W> Query for FindMissing<'_, T, W> {
    type SqlType = Integer;
}

/// Finds out whether there is a parent, without locking anything.
///
/// ```sql
/// SELECT 1 FROM "videos" WHERE ("videos"."id" = $1)
/// ```
pub(crate) struct FindParent<'a, T, W> {
    pub(crate) filter: &'a W,
    pub(crate) table: PhantomData<T>,
}

impl<T, W, DB> QueryFragment<DB> for FindParent<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT 1 FROM ");
        T::TABLE.walk_ast(out.reborrow())?;
        self.filter.walk_ast(out)
    }
}

impl<T, W> Query for FindParent<'_, T, W> {
    type SqlType = Integer;
}

/// Fails if somebody holds the lock on the shard of a parent named by its key.
///
/// ```sql
/// SELECT 1 FROM "videos_shards" AS "videos" WHERE ("videos"."id" = $1) AND "videos"."shard" = $2 FOR UPDATE SKIP LOCKED
/// -- MySQL, MariaDB: FOR UPDATE NOWAIT
/// ```
pub(crate) struct ProbeShard<'a, T, W> {
    pub(crate) filter: &'a W,
    pub(crate) shard: i32,
    pub(crate) table: PhantomData<T>,
}

impl<T, W, DB> QueryFragment<DB> for ProbeShard<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let dialect = out.backend().dialect();
        out.push_sql("SELECT 1 FROM ");
        push_shards_as_parent::<T, DB>(out.reborrow())?;
        self.filter.walk_ast(out.reborrow())?;
        out.push_sql(" AND ");
        push_shard_is::<T, DB>(&self.shard, out.reborrow())?;
        out.push_sql(dialect.locks_rows(Strength::ExclusiveIfFree).unwrap_or(""));
        Ok(())
    }
}

/// An `INSERT` that does nothing where it violates a unique key.
///
/// ```sql
/// INSERT … ON CONFLICT DO NOTHING
/// ```
pub(crate) struct UnlessThere<'a, S>(pub(crate) &'a S);

impl<S, DB> QueryFragment<DB> for UnlessThere<'_, S>
where
    DB: ShardedBackend,
    S: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.0.walk_ast(out.reborrow())?;
        out.push_sql(" ON CONFLICT DO NOTHING");
        Ok(())
    }
}

/// Reads the keys of the parents that `filter` matches, in the order in which their shards are then locked.
///
/// ```sql
/// SELECT "videos"."id" FROM "videos" WHERE … ORDER BY "videos"."id"      -- MySQL, MariaDB: LIMIT 18446744073709551615
/// ```
pub(crate) struct PickKeys<'a, T, W> {
    pub(crate) filter: &'a W,
    pub(crate) table: PhantomData<T>,
}

impl<T, W, DB> QueryFragment<DB> for PickKeys<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        push_key_to_read::<T, DB>(out.reborrow())?;
        out.push_sql(" FROM ");
        T::TABLE.walk_ast(out.reborrow())?;
        self.filter.walk_ast(out.reborrow())?;
        out.push_sql(" ORDER BY ");
        push_key::<T, DB>(out.reborrow())?;
        out.push_sql(out.backend().dialect().all_rows());
        Ok(())
    }
}

impl<T: Table, W> Query for PickKeys<'_, T, W> {
    type SqlType = <T::PrimaryKey as Expression>::SqlType;
}

/// Reads `selection` of the parents that `filter` matches.
///
/// ```sql
/// SELECT … FROM "videos" WHERE …
/// ```
pub(crate) struct SelectParents<'a, T, W, S> {
    pub(crate) selection: S,
    pub(crate) filter: &'a W,
    pub(crate) table: PhantomData<T>,
}

impl<T, W, S, DB> QueryFragment<DB> for SelectParents<'_, T, W, S>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    S: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        self.selection.walk_ast(out.reborrow())?;
        out.push_sql(" FROM ");
        T::TABLE.walk_ast(out.reborrow())?;
        self.filter.walk_ast(out)
    }
}

impl<T, W, S: Expression> Query for SelectParents<'_, T, W, S> {
    type SqlType = S::SqlType;
}

/// The text of a statement depends on nothing but its types and the dialect, so that Diesel can keep it prepared. `V`, the
/// changes as they were written, has a static id where Diesel's own tree for them, `Ch`, has none.
macro_rules! query_ids {
    ($($statement:ident<$lifetime:lifetime, $($part:ident),+ $(; $untold:ident)?>)+) => {$(
        impl<$lifetime, $($part: QueryId,)+ $($untold)?> QueryId for $statement<$lifetime, $($part,)+ $($untold)?> {
            type QueryId = $statement<'static, $($part::QueryId,)+ $(query_ids!(@unit $untold))?>;
            const HAS_STATIC_QUERY_ID: bool = $($part::HAS_STATIC_QUERY_ID)&&+;
        }
    )+};
    (@unit $untold:ident) => { () };
}

query_ids! {
    CountByKey<'a, T, W, V; Ch>
    CountPicked<'a, T, W, V; Ch>
    CreateShards<'a, T, W>
    FindMissing<'a, T, W>
    FindParent<'a, T, W>
    ProbeShard<'a, T, W>
    PickKeys<'a, T, W>
    UnlessThere<'a, S>
    SelectParents<'a, T, W, S>
}

const PICKED: &str = "sharded_picked";

/// Unlikely to be the name of a column of the application's, which would be ambiguous.
fn picked_key(number: usize) -> String {
    format!("sharded_key_{number}")
}

/// `(SELECT parent.key AS sharded_key_0 FROM parent WHERE …) AS sharded_picked`
fn push_picked<'b, T, W, DB>(filter: &'b W, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
    DB: ShardedBackend,
{
    out.push_sql("(SELECT ");
    push_each_key::<T, DB>(", ", out.reborrow(), |i, name, mut out| {
        push_column::<T, DB>(name, out.reborrow())?;
        out.push_sql(" AS ");
        out.push_identifier(&picked_key(i))
    })?;
    out.push_sql(" FROM ");
    T::TABLE.walk_ast(out.reborrow())?;
    filter.walk_ast(out.reborrow())?;
    if let Some(limit) = out.backend().dialect().keeps_order() {
        out.push_sql(" ORDER BY ");
        push_key::<T, DB>(out.reborrow())?;
        out.push_sql(limit);
    }
    out.push_sql(") AS ");
    out.push_identifier(PICKED)
}

/// `sharded_picked.sharded_key_0 = parent.key`
fn push_picked_is_parent<T, DB>(out: AstPass<'_, '_, DB>) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    push_each_key::<T, DB>(" AND ", out, |i, name, mut out| {
        out.push_identifier(PICKED)?;
        out.push_sql(".");
        out.push_identifier(&picked_key(i))?;
        out.push_sql(" = ");
        push_column::<T, DB>(name, out)
    })
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
    use crate::test_schema::{downloads, sql, videos as table};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::query_builder::{AsChangeset, IntoUpdateTarget};
    use diesel::sqlite::Sqlite;

    macro_rules! filter {
        ($query:expr) => {
            &$query.into_update_target().where_clause
        };
    }

    #[test]
    fn count_by_key() {
        let changes = (views.eq(views + 1), likes.eq(likes - 2)).as_changeset();
        let count = CountByKey::<table::table, _, (), _> {
            changes: &changes,
            filter: filter!(videos.find(7)),
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
    }

    #[test]
    fn count_picked() {
        let changes = views.eq(views + 1).as_changeset();
        let count = CountPicked::<table::table, _, (), _> {
            changes: &changes,
            filter: filter!(videos.filter(slug.eq("a"))),
            shard: 3,
            types: PhantomData,
        };
        assert_eq!(
            sql!(Pg, count),
            r#"UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1) FROM (SELECT "videos"."id" AS "sharded_key_0" FROM "videos" WHERE ("videos"."slug" = $2)) AS "sharded_picked" WHERE "sharded_picked"."sharded_key_0" = "videos"."id" AND "videos"."shard" = $3"#
        );
        assert_eq!(
            sql!(Mysql, count),
            "UPDATE (SELECT `videos`.`id` AS `sharded_key_0` FROM `videos` WHERE (`videos`.`slug` = ?) ORDER BY `videos`.`id` LIMIT 18446744073709551615) AS `sharded_picked` STRAIGHT_JOIN `videos_shards` AS `videos` ON `sharded_picked`.`sharded_key_0` = `videos`.`id` SET `views` = (`videos`.`views` + ?) WHERE `videos`.`shard` = ?"
        );
        let whole_table = CountPicked::<table::table, _, (), _> {
            filter: filter!(videos),
            changes: &changes,
            shard: 3,
            types: PhantomData,
        };
        assert_eq!(
            sql!(Sqlite, whole_table),
            "UPDATE `videos_shards` AS `videos` SET `views` = (`videos`.`views` + ?) FROM (SELECT `videos`.`id` AS `sharded_key_0` FROM `videos`) AS `sharded_picked` WHERE `sharded_picked`.`sharded_key_0` = `videos`.`id` AND `videos`.`shard` = ?"
        );
    }

    #[test]
    fn create_shards_of_a_composite_key() {
        let create = CreateShards::<downloads::table, _> {
            filter: filter!(downloads::table.filter(downloads::day.eq("x"))),
            shard: 3,
            table: PhantomData,
        };
        assert_eq!(
            sql!(Pg, create),
            r#"INSERT INTO "download ""counts""" ("version", "day", "shard") SELECT "downloads"."version", "downloads"."day", $1 FROM "downloads" WHERE ("downloads"."day" = $2) ORDER BY "downloads"."version", "downloads"."day" ON CONFLICT ("version", "day", "shard") DO UPDATE SET "shard" = excluded."shard" WHERE FALSE"#
        );
        assert_eq!(
            sql!(Mysql, create),
            "INSERT INTO `download \"counts\"` (`version`, `day`, `shard`) SELECT `downloads`.`version`, `downloads`.`day`, ? FROM `downloads` WHERE (`downloads`.`day` = ?) ORDER BY `downloads`.`version`, `downloads`.`day` ON DUPLICATE KEY UPDATE `shard` = `download \"counts\"`.`shard`"
        );
        assert_eq!(
            sql!(Sqlite, create),
            "INSERT INTO `download \"counts\"` (`version`, `day`, `shard`) SELECT `downloads`.`version`, `downloads`.`day`, ? FROM `downloads` WHERE (`downloads`.`day` = ?) ORDER BY `downloads`.`version`, `downloads`.`day` ON CONFLICT (`version`, `day`, `shard`) DO NOTHING"
        );
    }

    #[test]
    fn find_missing() {
        let by_key = FindMissing::<table::table, _> {
            filter: filter!(videos.find(7)),
            shard: 3,
            table: PhantomData,
        };
        assert_eq!(
            sql!(Mysql, by_key),
            "SELECT 1 FROM (SELECT 1) AS one WHERE NOT (/*M!110600 TRUE OR */ EXISTS (SELECT 1 FROM `videos_shards` AS `videos` WHERE (`videos`.`id` = ?) AND `videos`.`shard` = ?))"
        );
    }

    #[test]
    fn find_parent() {
        let find = FindParent::<table::table, _> {
            filter: filter!(videos.find(7)),
            table: PhantomData,
        };
        assert_eq!(
            sql!(Pg, find),
            r#"SELECT 1 FROM "videos" WHERE ("videos"."id" = $1)"#
        );
    }

    #[test]
    fn probe_shard() {
        let probe = ProbeShard::<table::table, _> {
            filter: filter!(videos.find(7)),
            shard: 0,
            table: PhantomData,
        };
        assert_eq!(
            sql!(Pg, probe),
            r#"SELECT 1 FROM "videos_shards" AS "videos" WHERE ("videos"."id" = $1) AND "videos"."shard" = $2 FOR UPDATE SKIP LOCKED"#
        );
        assert_eq!(
            sql!(Mysql, probe),
            "SELECT 1 FROM `videos_shards` AS `videos` WHERE (`videos`.`id` = ?) AND `videos`.`shard` = ? FOR UPDATE NOWAIT"
        );
    }

    #[test]
    fn pick_keys() {
        let pick = PickKeys::<downloads::table, _> {
            filter: filter!(downloads::table.filter(downloads::day.eq("x"))),
            table: PhantomData,
        };
        assert_eq!(
            sql!(Pg, pick),
            r#"SELECT "downloads"."version", CAST("downloads"."day" AS TEXT) FROM "downloads" WHERE ("downloads"."day" = $1) ORDER BY "downloads"."version", "downloads"."day""#
        );
    }

    #[test]
    fn select_parents_by_several_keys() {
        let keys = KeysAre(vec![id.eq(1), id.eq(2)]);
        let select = SelectParents::<table::table, _, _> {
            selection: &id,
            filter: &keys,
            table: PhantomData,
        };
        assert_eq!(
            sql!(Pg, select),
            r#"SELECT "videos"."id" FROM "videos" WHERE (("videos"."id" = $1) OR ("videos"."id" = $2))"#
        );
    }

    /// Only a filter that names the whole key, and nothing else, may stand over the shards table.
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
