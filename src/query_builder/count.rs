//! The statements of a counting update.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::Integer;

use super::names::{Names, number_of_rows};
use super::prepared::{Prepare, TextChecksum};
use super::sql::{Sql, bind, copies, fragments, id, on, sql, statements, walk};
use crate::backend::{Dialect, ShardedBackend, Strength};
use crate::model::{ColumnType, SHARD, ShardsColumn};

/// The clauses of a counting update's statements, without the update's types. A statement is therefore compiled once for each database and
/// not for each update.
#[doc(hidden)]
#[allow(missing_debug_implementations)] // the fragments cannot be shown
pub struct Clauses<'a, DB: Backend + 'static> {
    pub(crate) names: Names<'static, DB>,
    /// The changes after `SET`.
    pub(crate) changes: &'a dyn QueryFragment<DB>,
    /// The `WHERE` clause.
    pub(crate) filter: &'a dyn QueryFragment<DB>,
    /// Inserts the parent if none matches.
    pub(crate) insert: Option<&'a dyn QueryFragment<DB>>,
    pub(crate) shard: i32,
}

copies!([DB: Backend + 'static] Clauses<'_, DB>);

/// A statement whose text depends only on the types in `Id` and on the dialect, so that Diesel can keep it prepared under that id.
pub(crate) struct Identified<Id, Q> {
    statement: Q,
    id: PhantomData<Id>,
}

impl<Id, Q> Identified<Id, Q> {
    pub(crate) fn new(statement: Q) -> Self {
        Identified {
            statement,
            id: PhantomData,
        }
    }
}

impl<Id, Q: QueryFragment<DB>, DB: Backend> QueryFragment<DB> for Identified<Id, Q> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.statement.walk_ast(out)
    }
}

impl<Id, Q: Prepare<DB>, DB: ShardedBackend> Prepare<DB> for Identified<Id, Q> {
    fn walk_checked<'b>(
        &'b self,
        checksum: Option<&'b TextChecksum>,
        out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()> {
        self.statement.walk_checked(checksum, out)
    }
}

impl<Id, Q: Query> Query for Identified<Id, Q> {
    type SqlType = Q::SqlType;
}

impl<Id: QueryId, Q> QueryId for Identified<Id, Q> {
    type QueryId = Id::QueryId;
    const HAS_STATIC_QUERY_ID: bool = Id::HAS_STATIC_QUERY_ID;
}

statements! {
    /// Adds to one shard of each parent that `filter` names by its key, without reading the parents.
    ///
    /// The shards table has its parent's column names. With the parent's name as its alias, it fits Diesel's own tree for the changes,
    /// and for a filter on the key. (For a table inside a schema see `under_alias`.)
    ///
    /// ```sql
    /// UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1)
    /// WHERE ("videos"."id" = $2) AND "videos"."shard" = $3
    /// ```
    pub(crate) struct CountByKey<'a>(pub(crate) Clauses<'a, DB>): Prepare;
    |self, out| {
        let Clauses { names: table, changes, filter, shard, .. } = &self.0;
        sql!(out;
            "UPDATE ", table.shards_as_parent(), " SET ", table.aliased(changes), table.aliased(filter),
            " AND ", table.shard_is(shard))
    }

    /// [`CountByKey`] as the first statement of a transaction that reads the parents later. On MySQL it [names the parents'
    /// table](Names::are_named).
    pub(crate) struct CountBeforeLoad<'a>(pub(crate) CountByKey<'a, DB>): Prepare;
    |self, out| {
        let waits = out.backend().dialect().waits_unseen_for_tables();
        sql!(out; walk(&self.0), if waits { " AND ", self.0.0.names.are_named() })
    }

    /// Adds to the shard of the one parent that `filter` matches. It changes no row if the filter matches several parents, or if the shard
    /// is missing.
    ///
    /// ```sql
    /// -- PostgreSQL, SQLite
    /// UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1)
    /// FROM (SELECT "videos"."id" AS "sharded_key_0", COUNT(*) OVER () AS "sharded_parents" FROM "videos" WHERE …) AS "sharded_picked"
    /// WHERE "sharded_picked"."sharded_key_0" = "videos"."id" AND "sharded_picked"."sharded_parents" = 1 AND "videos"."shard" = $2
    /// -- MySQL, MariaDB
    /// UPDATE `videos_shards` AS `videos` SET `views` = (`videos`.`views` + ?)
    /// WHERE `videos`.`id` = (SELECT MIN(`videos`.`id`) FROM `videos` WHERE … HAVING COUNT(*) = 1) AND `videos`.`shard` = ?
    /// ```
    ///
    /// MariaDB evaluates such a subquery first, so that the update is a single index lookup. With a comparison of several columns or a
    /// derived table it would not. In READ COMMITTED the subquery locks no parent; an update of several tables would lock them.
    pub(crate) struct CountOne<'a>(pub(crate) Clauses<'a, DB>): Prepare;
    |self, out| {
        let Clauses { names: table, changes, filter, shard, .. } = &self.0;
        let joins_before_set = out.backend().dialect().joins_before_set();
        sql!(out;
            "UPDATE ", table.shards_as_parent(), " SET ", table.aliased(changes),
            if joins_before_set { " WHERE ", table.is_the_one(filter) } else {
                " FROM (", table.select_picked_key(), ", COUNT(*) OVER () AS ", id(PARENTS), " FROM ", table.filtered(filter),
                ") AS ", id(PICKED), " WHERE ", table.picked_is_aliased_key(PICKED),
                " AND ", id(PICKED), ".", id(PARENTS), " = 1"
            },
            " AND ", table.shard_is(shard))
    }

    /// Adds to one shard of each parent that `filter` matches. The filter may read any column.
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
    pub(crate) struct CountPicked<'a>(pub(crate) Clauses<'a, DB>): Prepare;
    |self, out| {
        let Clauses { names: table, changes, filter, shard, .. } = &self.0;
        match out.backend().dialect().joins_before_set() {
            true => sql!(out;
                "UPDATE ", table.picked(filter), " STRAIGHT_JOIN ", table.shards_as_parent(),
                " ON ", table.picked_is_aliased_key(PICKED), " SET ", table.aliased(changes),
                " WHERE ", table.shard_is(shard)),
            false => sql!(out;
                "UPDATE ", table.shards_as_parent(), " SET ", table.aliased(changes), " FROM ", table.picked(filter),
                " WHERE ", table.picked_is_aliased_key(PICKED), " AND ", table.shard_is(shard)),
        }
    }

    /// Adds to the shards of all parents that `filter` matches, or to none if one of these shards is missing. It locks the shards in key
    /// order.
    ///
    /// ```sql
    /// -- PostgreSQL
    /// WITH "sharded_picked" AS MATERIALIZED (SELECT "videos"."id" AS "sharded_key_0" FROM "videos" WHERE …),
    /// "sharded_locked" AS MATERIALIZED (
    ///     SELECT "videos_shards"."id" AS "sharded_key_0" FROM "sharded_picked" JOIN "videos_shards"
    ///         ON "sharded_picked"."sharded_key_0" = "videos_shards"."id" AND "videos_shards"."shard" = $2
    ///     ORDER BY "videos_shards"."id" FOR NO KEY UPDATE OF "videos_shards")
    /// UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $3) FROM "sharded_locked"
    /// WHERE "sharded_locked"."sharded_key_0" = "videos"."id" AND "videos"."shard" = $4
    ///     AND (SELECT COUNT(*) FROM "sharded_locked") = (SELECT COUNT(*) FROM "sharded_picked")
    /// ```
    pub(crate) struct CountAll<'a>(pub(crate) Clauses<'a, DB>): Prepare;
    |self, out| {
        let Clauses { names: table, changes, filter, shard, .. } = &self.0;
        sql!(out;
            "WITH ", table.picked_and_locked(filter, shard, &[]), " ",
            table.update_locked(changes, shard))
    }

    /// Locks the shard of a parent named by its key. With [`ExclusiveIfFree`](Strength::ExclusiveIfFree), the statement finds no row, or
    /// fails, if another transaction holds the shard.
    ///
    /// ```sql
    /// SELECT 1 FROM "videos_shards" AS "videos" WHERE ("videos"."id" = $1) AND "videos"."shard" = $2 FOR NO KEY UPDATE SKIP LOCKED
    /// -- MySQL, MariaDB: FOR UPDATE NOWAIT
    /// ```
    pub(crate) struct LockShard<'a>(pub(crate) Clauses<'a, DB>, pub(crate) Strength);
    |self, out| {
        let Clauses { names: table, filter, shard, .. } = &self.0;
        sql!(out;
            "SELECT 1 FROM ", table.shards_as_parent(), table.aliased(filter), " AND ", table.shard_is(shard),
            on(|dialect| dialect.locks_rows(self.1)))
    }

    /// Finds out whether the shard of a parent named by its key is missing, without locking anything. It is the first statement of an increment
    /// in a caller's transaction, so it [names the parents' table](Names::are_named).
    ///
    /// ```sql
    /// SELECT 1 FROM (SELECT 1) AS one WHERE NOT EXISTS (SELECT 1 FROM `videos` WHERE FALSE) AND NOT (/*M!110600 TRUE OR */
    ///     EXISTS (SELECT 1 FROM `videos_shards` AS `videos` WHERE (`videos`.`id` = ?) AND `videos`.`shard` = ?))
    /// ```
    pub(crate) struct FindMissing<'a>(pub(crate) Clauses<'a, DB>): Query<Integer>;
    |self, out| {
        let Clauses { names: table, filter, shard, .. } = &self.0;
        sql!(out;
            "SELECT 1 FROM (SELECT 1) AS one WHERE ", table.are_named(), " AND NOT (", on(Dialect::finds_without_a_look),
            "EXISTS (SELECT 1 FROM ", table.shards_as_parent(), table.aliased(filter), " AND ", table.shard_is(shard), "))")
    }

    /// Finds out whether a parent exists [on the primary](Names::on_primary), without locking anything.
    ///
    /// ```sql
    /// SELECT 1 FROM "videos" WHERE ("videos"."id" = $1)
    /// ```
    pub(crate) struct FindParent<'a> {
        pub(crate) names: Names<'a, DB>,
        pub(crate) filter: &'a dyn QueryFragment<DB>,
    }: Query<Integer>;
    |self, out| {
        sql!(out; self.names.on_primary(), "SELECT 1 FROM ", self.names.filtered(self.filter))
    }
}

/// The first statement of most increments: by key, or on the one parent that the filter matches.
pub(crate) enum FirstCount<'a, DB: Backend + 'static> {
    ByKey(CountByKey<'a, DB>),
    One(CountOne<'a, DB>),
}

fragments! {
    [] FirstCount<'_, DB>;
    |self, out| {
        match self {
            FirstCount::ByKey(count) => count.walk_ast(out),
            FirstCount::One(count) => count.walk_ast(out),
        }
    };
}

impl<DB: ShardedBackend> Prepare<DB> for FirstCount<'_, DB> {}

/// The id of an update of `T` by changes `V` and a filter `W`, and of its [`FirstCount`]. The filter's type tells whether it is by key.
#[doc(hidden)]
#[derive(QueryId)]
#[allow(missing_debug_implementations)] // it has no values
pub struct UpdateId<T, W, V>(PhantomData<(T, W, V)>);

/// The id of [`CountBeforeLoad`] for an update.
#[derive(QueryId)]
pub(crate) struct CountBeforeLoadId<Update>(PhantomData<Update>);

/// Adds to the shards of all parents that `filter` matches, and reads these parents. Does neither if one of these shards is missing.
///
/// A statement does not see the rows that it writes. So a `WITH` query takes the name of the shards table: it reads the shards as they
/// were, and the amounts that were added to them. A `WITH` query cannot take a name inside a schema; there a second statement reads the
/// rows.
///
/// ```sql
/// -- PostgreSQL
/// WITH "sharded_picked" AS MATERIALIZED (…),
/// "sharded_locked" AS MATERIALIZED (SELECT "videos_shards"."id" AS "sharded_key_0", "videos_shards"."views" FROM …),
/// "sharded_counted" AS (UPDATE "videos_shards" AS "videos" SET … FROM "sharded_locked" WHERE …
///     RETURNING "videos"."id" AS "sharded_key_0", CAST("videos"."views" AS numeric) - "sharded_locked"."views" AS "views"),
/// "videos_shards" AS (
///     SELECT "videos_shards"."id", "videos_shards"."views" FROM "sharded_counted" JOIN "videos_shards"
///         ON "sharded_counted"."sharded_key_0" = "videos_shards"."id"
///     UNION ALL SELECT "sharded_key_0", "views" FROM "sharded_counted")
/// SELECT … FROM "videos" JOIN "sharded_counted" ON "sharded_counted"."sharded_key_0" = "videos"."id"
/// ```
pub(crate) struct CountAllAndLoad<'a, DB: Backend + 'static, S> {
    pub(crate) clauses: Clauses<'a, DB>,
    pub(crate) selection: S,
}

fragments! {
    [S: QueryFragment<DB>,] CountAllAndLoad<'_, DB, S>;
    |self, out| count_and_load(&self.clauses, &self.selection).push(out);
}

impl<DB: Backend + 'static, S: Expression> Query for CountAllAndLoad<'_, DB, S> {
    type SqlType = S::SqlType;
}

/// The id of [`CountAllAndLoad`] for an update.
#[derive(QueryId)]
pub(crate) struct CountAllAndLoadId<Update, S>(PhantomData<(Update, S)>);

fn count_and_load<'b, DB: ShardedBackend>(
    clauses: &'b Clauses<'_, DB>,
    selection: &'b dyn QueryFragment<DB>,
) -> impl Sql<'b, DB> {
    let table = clauses.names;
    sql! {
        "WITH ", table.picked_and_locked(clauses.filter, &clauses.shard, table.fields), ", ",
        table.counted(clauses.changes, &clauses.shard), ", ", table.shards_after_all(),
        " SELECT ", walk(selection), " FROM ", walk(table.parent), " JOIN ", id(COUNTED),
        " ON ", table.picked_is(COUNTED, |name| table.column(name))
    }
}

/// The parents that a filter matches, as a derived table of their keys.
const PICKED: &str = "sharded_picked";

/// The shards that are locked.
const LOCKED: &str = "sharded_locked";

/// The parents whose shards were updated, with the amounts that were added.
const COUNTED: &str = "sharded_counted";

/// The number of parents that a filter matches.
const PARENTS: &str = "sharded_parents";

/// A name that no column of the application is likely to have: the same name would be ambiguous.
pub(super) fn picked_key(number: usize) -> String {
    format!("sharded_key_{number}")
}

impl<'b, DB: ShardedBackend> Names<'b, DB> {
    /// A condition that always holds and reads nothing. Because it names the parents' table, the transaction holds that table's metadata
    /// lock from then on. MySQL's `ALTER TABLE` of a parent keeps that lock while it waits for transactions that have written shards. If
    /// such a transaction named the parent only later, it would wait for the `ALTER`: a deadlock that MySQL does not detect.
    ///
    /// `NOT EXISTS (SELECT 1 FROM parent WHERE FALSE)`
    fn are_named(self) -> impl Sql<'b, DB> {
        sql! { "NOT EXISTS (SELECT 1 FROM ", walk(self.parent), " WHERE FALSE)" }
    }

    /// `column AS sharded_key_0`, where `column` writes a column of the key
    pub(super) fn key_as_picked<C: Sql<'b, DB>>(
        self,
        column: impl Fn(&'b str) -> C,
    ) -> impl Sql<'b, DB> {
        sql! { for (i, key) in (self.key.iter().enumerate(), ", ") { column(&key.name), " AS ", id(&picked_key(i)) } }
    }

    /// `SELECT parent.key AS sharded_key_0`
    fn select_picked_key(self) -> impl Sql<'b, DB> {
        sql! { "SELECT ", self.key_as_picked(|name| self.column(name)) }
    }

    /// `parent WHERE …`
    pub(super) fn filtered(self, filter: &'b dyn QueryFragment<DB>) -> impl Sql<'b, DB> {
        sql! { walk(self.parent), walk(filter) }
    }

    /// `picked.sharded_key_0 = parent.key`, where `picked` is a table of keys and the shards have the parent's name as their alias
    fn picked_is_aliased_key(self, picked: &str) -> impl Sql<'b, DB> {
        self.picked_is(picked, move |name| self.under_alias().column(name))
    }

    /// `picked.sharded_key_0 = column`, where `column` writes a column of the key
    pub(super) fn picked_is<C: Sql<'b, DB>>(
        self,
        picked: &str,
        column: impl Fn(&'b str) -> C,
    ) -> impl Sql<'b, DB> {
        sql! {
            for (i, key) in (self.key.iter().enumerate(), " AND ") { id(picked), ".", id(&picked_key(i)), " = ", column(&key.name) }
        }
    }

    /// Writes the query of the matched parents and that of their locked shards, with the values of `fields`.
    fn picked_and_locked(
        self,
        filter: &'b dyn QueryFragment<DB>,
        shard: &'b i32,
        fields: &[ShardsColumn],
    ) -> impl Sql<'b, DB> {
        let shards_column = move |name| self.shards_column(name);
        sql! {
            id(PICKED), " AS MATERIALIZED (", self.select_picked_key(), " FROM ", self.filtered(filter), "), ",
            id(LOCKED), " AS MATERIALIZED (SELECT ", self.key_as_picked(shards_column),
            for field in (fields, "") { ", ", self.shards_column(&field.name) },
            " FROM ", id(PICKED), " JOIN ", self.shards_table, " ON ", self.picked_is(PICKED, shards_column),
            " AND ", self.shards_column(SHARD), " = ", bind(Integer, shard),
            " ORDER BY ", self.shards_key(), " FOR NO KEY UPDATE OF ", id(self.shards_table.name()), ")"
        }
    }

    /// Writes the update of the locked shards.
    fn update_locked(self, changes: &'b dyn QueryFragment<DB>, shard: &'b i32) -> impl Sql<'b, DB> {
        sql! {
            "UPDATE ", self.shards_as_parent(), " SET ", self.aliased(changes), " FROM ", id(LOCKED),
            " WHERE ", self.picked_is_aliased_key(LOCKED), " AND ", self.shard_is(shard),
            " AND ", number_of_rows(LOCKED), " = ", number_of_rows(PICKED)
        }
    }

    /// `counted AS (UPDATE … RETURNING parent.key AS sharded_key_0, parent.views - locked.views AS views)`
    fn counted(self, changes: &'b dyn QueryFragment<DB>, shard: &'b i32) -> impl Sql<'b, DB> {
        // The difference between two values of a type may leave its range.
        let cast = |field: &ShardsColumn| match field.column_type {
            ColumnType::SmallInt | ColumnType::Integer => ("CAST(", " AS bigint)"),
            ColumnType::BigInt => ("CAST(", " AS numeric)"),
            _ => ("", ""),
        };
        sql! {
            id(COUNTED), " AS (", self.update_locked(changes, shard),
            " RETURNING ", self.key_as_picked(|name| self.column(name)),
            for field in (self.fields, "") {
                ", ",
                if field.is_sum() {
                    cast(field).0, self.column(&field.name), cast(field).1, " - ", id(LOCKED), ".", id(&field.name),
                    " AS ", id(&field.name)
                } else {
                    self.column(&field.name) // the total takes the greater (or lesser) of this value and the former one
                }
            },
            ")"
        }
    }

    /// Writes the `WITH` query that takes the shards table's name: the shards before the update, and the amounts that it added.
    fn shards_after_all(self) -> impl Sql<'b, DB> {
        sql! {
            id(self.shards_table.name()),
            " AS (SELECT ", self.shards_key(), for field in (self.fields, "") { ", ", self.shards_column(&field.name) },
            " FROM ", id(COUNTED), " JOIN ", self.shards_table,
            " ON ", self.picked_is(COUNTED, |name| self.shards_column(name)),
            " UNION ALL SELECT ",
            for i in (0..self.key.len(), ", ") { id(COUNTED), ".", id(&picked_key(i)) },
            for field in (self.fields, "") { ", ", id(COUNTED), ".", id(&field.name) },
            " FROM ", id(COUNTED), ")"
        }
    }

    /// `parent.key = (SELECT MIN(parent.key) FROM parent WHERE … HAVING COUNT(*) = 1)`
    fn is_the_one(self, filter: &'b dyn QueryFragment<DB>) -> impl Sql<'b, DB> {
        sql! {
            for key in (self.key, " AND ") {
                self.under_alias().column(&key.name), " = (SELECT MIN(", self.column(&key.name), ") FROM ", self.filtered(filter),
                " HAVING COUNT(*) = 1)"
            }
        }
    }

    /// `(SELECT parent.key AS sharded_key_0 FROM parent WHERE …) AS sharded_picked`
    fn picked(self, filter: &'b dyn QueryFragment<DB>) -> impl Sql<'b, DB> {
        let in_order = move |dialect: Dialect| {
            let limit = dialect.keeps_order();
            limit.map(|limit| sql! { " ORDER BY ", self.key(), limit })
        };
        sql! { "(", self.select_picked_key(), " FROM ", self.filtered(filter), on(in_order), ") AS ", id(PICKED) }
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
    use crate::query_builder::{KeysAre, ShardedExpressionMethods};
    use crate::test_schema::videos::dsl::{id, likes, slug, videos, views};
    use crate::test_schema::{assert_sql, downloads as composite, sql, videos as table};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::query_builder::{AsChangeset, IntoUpdateTarget};
    use diesel::sqlite::Sqlite;

    /// The parts of an update of shard 3, from changes and rows of a table.
    macro_rules! clauses {
        ($table:ident, $changes:expr, $rows:expr) => {
            Clauses {
                names: Names::of::<$table::table>(),
                changes: &$changes,
                filter: &$rows.into_update_target().where_clause,
                insert: None,
                shard: 3,
            }
        };
    }

    #[test]
    fn count_by_key() {
        let changes = (views.eq(views + 1), likes.eq(likes - 2)).as_changeset();
        macro_rules! count {
            () => {
                CountByKey(clauses!(table, changes, videos.find(7)))
            };
        }
        assert_sql!(count!();
            Pg => r#"UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1), "likes" = ("videos"."likes" - $2) WHERE ("videos"."id" = $3) AND "videos"."shard" = $4"#,
            Mysql => "UPDATE `videos_shards` AS `videos` SET `views` = (`videos`.`views` + ?), `likes` = (`videos`.`likes` - ?) WHERE (`videos`.`id` = ?) AND `videos`.`shard` = ?",
            Sqlite => "UPDATE `videos_shards` AS `videos` SET `views` = (`videos`.`views` + ?), `likes` = (`videos`.`likes` - ?) WHERE (`videos`.`id` = ?) AND `videos`.`shard` = ?",
        );
        let (mysql, sqlite) = (sql!(Mysql, count!()), sql!(Sqlite, count!()));
        let parent = " AND NOT EXISTS (SELECT 1 FROM `videos` WHERE FALSE)";
        assert_sql!(CountBeforeLoad(count!());
            Mysql => mysql + parent,
            Sqlite => sqlite,
        );
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
            UpdateId::<table::table, W, V>::HAS_STATIC_QUERY_ID
        }
        let by_key = || videos.find(7).into_update_target().where_clause;
        assert!(values(views.eq(views + 1), by_key()));
        assert!(values((views.eq(views + 1), likes.eq(likes - 1)), by_key()));
        assert!(!is_static(&KeysAre(vec![id.eq(1)])));
    }

    #[test]
    fn count_one() {
        let changes = views.eq(views + 1).as_changeset();
        macro_rules! count {
            () => {
                CountOne(clauses!(table, changes, videos.filter(slug.eq("a"))))
            };
        }
        let picked = r#"UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1) FROM (SELECT "videos"."id" AS "sharded_key_0", COUNT(*) OVER () AS "sharded_parents" FROM "videos" WHERE ("videos"."slug" = $2)) AS "sharded_picked" WHERE "sharded_picked"."sharded_key_0" = "videos"."id" AND "sharded_picked"."sharded_parents" = 1 AND "videos"."shard" = $3"#;
        assert_sql!(count!(); Pg => picked);
        let placeholders = ["$1", "$2", "$3"];
        let picked = placeholders
            .iter()
            .fold(picked.replace('"', "`"), |sql, n| sql.replace(n, "?"));
        assert_sql!(count!();
            Sqlite => picked,
            Mysql => "UPDATE `videos_shards` AS `videos` SET `views` = (`videos`.`views` + ?) WHERE `videos`.`id` = (SELECT MIN(`videos`.`id`) FROM `videos` WHERE (`videos`.`slug` = ?) HAVING COUNT(*) = 1) AND `videos`.`shard` = ?",
        );
    }

    #[test]
    fn count_one_under_a_composite_key() {
        let changes = composite::number.eq(composite::number + 1.0).as_changeset();
        let rows = composite::table.filter(composite::day.eq("x"));
        let count = CountOne(clauses!(composite, changes, rows));
        let is_the_one = |key| {
            format!(
                "`downloads`.`{key}` = (SELECT MIN(`downloads`.`{key}`) FROM `downloads` WHERE (`downloads`.`day` = ?) HAVING COUNT(*) = 1)"
            )
        };
        let (version, day) = (is_the_one("version"), is_the_one("day"));
        let count = sql!(Mysql, count);
        assert!(
            count.ends_with(&format!(
                " WHERE {version} AND {day} AND `downloads`.`shard` = ?"
            )),
            "{count}"
        );
    }

    #[test]
    fn count_picked() {
        let changes = views.eq(views + 1).as_changeset();
        assert_sql!(CountPicked(clauses!(table, changes, videos.filter(slug.eq("a"))));
            Pg => r#"UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1) FROM (SELECT "videos"."id" AS "sharded_key_0" FROM "videos" WHERE ("videos"."slug" = $2)) AS "sharded_picked" WHERE "sharded_picked"."sharded_key_0" = "videos"."id" AND "videos"."shard" = $3"#,
            Mysql => "UPDATE (SELECT `videos`.`id` AS `sharded_key_0` FROM `videos` WHERE (`videos`.`slug` = ?) ORDER BY `videos`.`id` LIMIT 18446744073709551615) AS `sharded_picked` STRAIGHT_JOIN `videos_shards` AS `videos` ON `sharded_picked`.`sharded_key_0` = `videos`.`id` SET `views` = (`videos`.`views` + ?) WHERE `videos`.`shard` = ?",
        );
        let whole_table = CountPicked(clauses!(table, changes, videos));
        assert_sql!(whole_table;
            Sqlite => "UPDATE `videos_shards` AS `videos` SET `views` = (`videos`.`views` + ?) FROM (SELECT `videos`.`id` AS `sharded_key_0` FROM `videos`) AS `sharded_picked` WHERE `sharded_picked`.`sharded_key_0` = `videos`.`id` AND `videos`.`shard` = ?",
        );
    }

    #[test]
    fn count_all_under_a_composite_key() {
        let changes = composite::number.eq(composite::number + 1.0).as_changeset();
        let rows = composite::table.filter(composite::day.eq("x"));
        let count = CountAll(clauses!(composite, changes, rows));
        assert_sql!(count;
            Pg => r#"WITH "sharded_picked" AS MATERIALIZED (SELECT "downloads"."version" AS "sharded_key_0", "downloads"."day" AS "sharded_key_1" FROM "downloads" WHERE ("downloads"."day" = $1)), "sharded_locked" AS MATERIALIZED (SELECT "download ""counts"""."version" AS "sharded_key_0", "download ""counts"""."day" AS "sharded_key_1" FROM "sharded_picked" JOIN "download ""counts""" ON "sharded_picked"."sharded_key_0" = "download ""counts"""."version" AND "sharded_picked"."sharded_key_1" = "download ""counts"""."day" AND "download ""counts"""."shard" = $2 ORDER BY "download ""counts"""."version", "download ""counts"""."day" FOR NO KEY UPDATE OF "download ""counts""") UPDATE "download ""counts""" AS "downloads" SET "number" = ("downloads"."number" + $3) FROM "sharded_locked" WHERE "sharded_locked"."sharded_key_0" = "downloads"."version" AND "sharded_locked"."sharded_key_1" = "downloads"."day" AND "downloads"."shard" = $4 AND (SELECT COUNT(*) FROM "sharded_locked") = (SELECT COUNT(*) FROM "sharded_picked")"#,
        );
    }

    #[test]
    fn count_all_and_load() {
        let count = CountAllAndLoad {
            clauses: clauses!(
                table,
                views.eq(views + 1).as_changeset(),
                videos.filter(slug.eq("a"))
            ),
            selection: views.total(),
        };
        assert_sql!(count;
            Pg => r#"WITH "sharded_picked" AS MATERIALIZED (SELECT "videos"."id" AS "sharded_key_0" FROM "videos" WHERE ("videos"."slug" = $1)), "sharded_locked" AS MATERIALIZED (SELECT "videos_shards"."id" AS "sharded_key_0", "videos_shards"."views", "videos_shards"."likes" FROM "sharded_picked" JOIN "videos_shards" ON "sharded_picked"."sharded_key_0" = "videos_shards"."id" AND "videos_shards"."shard" = $2 ORDER BY "videos_shards"."id" FOR NO KEY UPDATE OF "videos_shards"), "sharded_counted" AS (UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $3) FROM "sharded_locked" WHERE "sharded_locked"."sharded_key_0" = "videos"."id" AND "videos"."shard" = $4 AND (SELECT COUNT(*) FROM "sharded_locked") = (SELECT COUNT(*) FROM "sharded_picked") RETURNING "videos"."id" AS "sharded_key_0", CAST("videos"."views" AS numeric) - "sharded_locked"."views" AS "views", CAST("videos"."likes" AS bigint) - "sharded_locked"."likes" AS "likes"), "videos_shards" AS (SELECT "videos_shards"."id", "videos_shards"."views", "videos_shards"."likes" FROM "sharded_counted" JOIN "videos_shards" ON "sharded_counted"."sharded_key_0" = "videos_shards"."id" UNION ALL SELECT "sharded_counted"."sharded_key_0", "sharded_counted"."views", "sharded_counted"."likes" FROM "sharded_counted") SELECT CAST(("videos"."views" + (SELECT COALESCE(SUM("videos_shards"."views"), 0) FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id")) AS bigint) FROM "videos" JOIN "sharded_counted" ON "sharded_counted"."sharded_key_0" = "videos"."id""#,
        );
    }

    #[test]
    fn lock_shard() {
        assert_sql!(LockShard(clauses!(table, (), videos.find(7)), Strength::ExclusiveIfFree);
            Pg => r#"SELECT 1 FROM "videos_shards" AS "videos" WHERE ("videos"."id" = $1) AND "videos"."shard" = $2 FOR NO KEY UPDATE SKIP LOCKED"#,
            Mysql => "SELECT 1 FROM `videos_shards` AS `videos` WHERE (`videos`.`id` = ?) AND `videos`.`shard` = ? FOR UPDATE NOWAIT",
        );
    }

    #[test]
    fn find_missing() {
        let by_key = FindMissing(clauses!(table, (), videos.find(7)));
        assert_sql!(by_key;
            Mysql => "SELECT 1 FROM (SELECT 1) AS one WHERE NOT EXISTS (SELECT 1 FROM `videos` WHERE FALSE) AND NOT (/*M!110600 TRUE OR */ EXISTS (SELECT 1 FROM `videos_shards` AS `videos` WHERE (`videos`.`id` = ?) AND `videos`.`shard` = ?))",
        );
    }

    #[test]
    fn find_parent() {
        let filter = videos.find(7).into_update_target().where_clause;
        macro_rules! find {
            () => {
                FindParent {
                    names: Names::of::<table::table>(),
                    filter: &filter,
                }
            };
        }
        assert_sql!(find!();
            Pg => r#"WITH "sharded_primary" AS (UPDATE "videos_shards" SET "shard" = 0 WHERE FALSE) SELECT 1 FROM "videos" WHERE ("videos"."id" = $1)"#,
        );
        assert_sql!(find!(); Mysql => "SELECT 1 FROM `videos` WHERE (`videos`.`id` = ?)");
    }
}
