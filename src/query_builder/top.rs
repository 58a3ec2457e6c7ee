//! The first rows by total, exactly.

use std::marker::PhantomData;

use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::BigInt;

use crate::backend::{Dialect, ShardedBackend, SumsForm};
use crate::model::ShardedColumn;
use crate::query_builder::count::picked_key;
use crate::query_builder::{Names, Sql, bind, id, on, part, sql, text_of, walk};

/// Reads `selection` of the rows with the greatest totals of the field `C`; see [`top`](crate::top()) for the SQL.
///
/// Parents without shards are ordered by their bases, and so by an index: only the first of them can be among the result. Of
/// parents with shards each one can, since a base says nothing of the total. Shards that hold 0 count as none.
#[derive(Debug, Clone, QueryId)]
pub struct SelectTop<C, W, S> {
    pub(crate) filter: W,
    pub(crate) selection: S,
    pub(crate) limit: i64,
    pub(crate) offset: i64,
    /// Both together: so many parents without shards may be among the result.
    pub(crate) candidates: i64,
    pub(crate) ascending: bool,
    pub(crate) field: PhantomData<C>,
}

/// The query for keys and totals.
const TOP: &str = "sharded_top";
/// The sums of shards by their parents.
const SUMS: &str = "sharded_sums";
const TOTAL: &str = "sharded_total";
const SUM: &str = "sharded_sum";

impl<C, W, S, DB> QueryFragment<DB> for SelectTop<C, W, S>
where
    DB: ShardedBackend,
    C: ShardedColumn<Table: QueryFragment<DB>>,
    W: QueryFragment<DB>,
    S: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let dialect = out.backend().dialect();
        if dialect.waits_after_interrupted_rows() || self.ascending {
            out.unsafe_to_cache_prepared(); // the query id does not tell ascending from descending
        }
        let is_filtered = !text_of(&self.filter, out.backend())?.is_empty();
        let table = Names::of::<C::Table>();
        let parts = Parts {
            parent: table,
            names: match is_filtered {
                true => table.under_alias(),
                false => table,
            },
            field: C::NAME,
            filter: &self.filter,
            is_filtered,
            direction: if self.ascending { " ASC" } else { " DESC" },
        };
        sql!(out;
            "SELECT ", walk(&self.selection),
            " FROM (SELECT ", parts.keys_and_total(), " FROM (SELECT ", parts.keys_and_total(), " FROM (",
            parts.without_shards(&self.candidates), ") AS sharded_bases UNION ALL ",
            parts.with_shards(dialect.sums_form(is_filtered)), ") AS sharded_candidates ORDER BY ", id(TOTAL), parts.direction,
            for i in (0..table.key.len(), "") { ", ", id(&picked_key(i)), parts.direction },
            " LIMIT ", bind(BigInt, &self.limit), " OFFSET ", bind(BigInt, &self.offset), ") AS ", id(TOP),
            " JOIN ", walk(table.parent), " ON ", table.picked_is(TOP, |name| table.column(name)),
            " ORDER BY ", id(TOP), ".", id(TOTAL), parts.direction, parts.then_by_key(table), on(Dialect::all_rows))
    }
}

impl<C, W, S: Expression> Query for SelectTop<C, W, S> {
    type SqlType = S::SqlType;
}

/// The parts of the query for keys and totals.
struct Parts<'b, DB: ShardedBackend> {
    parent: Names<'b, DB>,
    /// The names of the parents that the filter leaves.
    names: Names<'b, DB>,
    field: &'static str,
    filter: &'b dyn QueryFragment<DB>,
    is_filtered: bool,
    direction: &'static str,
}

impl<DB: ShardedBackend> Clone for Parts<'_, DB> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<DB: ShardedBackend> Copy for Parts<'_, DB> {}

impl<'b, DB: ShardedBackend> Parts<'b, DB> {
    /// `SELECT parent.key AS sharded_key_0, parent.views AS sharded_total FROM parent WHERE NOT EXISTS (…) ORDER BY parent.views DESC,
    /// parent.key DESC LIMIT $n`
    fn without_shards(self, candidates: &'b i64) -> impl Sql<'b, DB> {
        sql! {
            self.select_keys(), self.base(), " AS ", id(TOTAL), " FROM ", self.rows(),
            " WHERE ", on(|dialect| dialect.finds_none().0), self.a_shard(), on(|dialect| dialect.finds_none().1),
            " ORDER BY ", self.base(), self.direction, self.then_by_key(self.names), " LIMIT ", bind(BigInt, candidates)
        }
    }

    /// `SELECT parent.key AS sharded_key_0, parent.views + sum AS sharded_total FROM …`
    fn with_shards(self, form: SumsForm) -> impl Sql<'b, DB> {
        let (names, shards) = (self.names, self.names.shards_table);
        let key_is = move |table| {
            sql! {
                for key in (names.key, " AND ") { id(table), ".", id(&key.name), " = ", names.column(&key.name) }
            }
        };
        let sums = sql! {
            "(SELECT ", names.shards_key(), ", ", self.sum(), " AS ", id(SUM), " FROM ", shards,
            " WHERE ", self.is_not_zero(), " GROUP BY ", names.shards_key(), ") AS ", id(SUMS)
        };
        part(move |out: AstPass<'_, 'b, DB>| match form {
            SumsForm::JoinSums => sql!(out;
                self.select_keys(), self.base(), " + ", id(SUMS), ".", id(SUM), " AS ", id(TOTAL), " FROM ", sums,
                " JOIN ", self.rows(), " ON ", key_is(SUMS)),
            SumsForm::GroupJoined { straight } => sql!(out;
                self.select_keys(), "MAX(", self.base(), ") + ", self.sum(), " AS ", id(TOTAL), " FROM ", shards,
                if straight { " STRAIGHT_JOIN " } else { " JOIN " }, self.rows(), " ON ", key_is(shards.name()),
                " WHERE ", self.is_not_zero(), " GROUP BY ", names.key()),
            SumsForm::Correlated => sql!(out;
                self.select_keys(), self.base(), " + (SELECT ", self.sum(), " FROM ", names.shards_of_parent(None), ") AS ", id(TOTAL),
                " FROM ", self.rows(), " WHERE EXISTS (", self.a_shard(), ")"),
        })
    }

    /// The parents: a filter's own parentheses are not known, so nothing is appended to it.
    fn rows(self) -> impl Sql<'b, DB> {
        sql! {
            if self.is_filtered {
                "(SELECT ", self.parent.key(), ", ", self.parent.column(self.field), " FROM ", self.parent.filtered(self.filter), ") AS "
            },
            walk(self.names.parent)
        }
    }

    /// `SELECT parent.key AS sharded_key_0, `
    fn select_keys(self) -> impl Sql<'b, DB> {
        sql! { "SELECT ", self.names.key_as_picked(move |name| self.names.column(name)), ", " }
    }

    /// `sharded_key_0, sharded_total`
    fn keys_and_total(self) -> impl Sql<'b, DB> {
        sql! { for i in (0..self.names.key.len(), "") { id(&picked_key(i)), ", " }, id(TOTAL) }
    }

    /// `, parent.key DESC`
    fn then_by_key(self, names: Names<'b, DB>) -> impl Sql<'b, DB> {
        sql! { for column in (names.key, "") { ", ", names.column(&column.name), self.direction } }
    }

    /// `SELECT 1 FROM shards WHERE shards.key = parent.key AND shards.views <> 0`
    fn a_shard(self) -> impl Sql<'b, DB> {
        sql! { "SELECT 1 FROM ", self.names.shards_of_parent(None), " AND ", self.is_not_zero() }
    }

    /// `parent.views`
    fn base(self) -> impl Sql<'b, DB> {
        self.names.column(self.field)
    }

    /// `shards.views <> 0`
    fn is_not_zero(self) -> impl Sql<'b, DB> {
        sql! { self.names.shards_column(self.field), " <> 0" }
    }

    /// `SUM(shards.views)`
    fn sum(self) -> impl Sql<'b, DB> {
        sql! { "SUM(", self.names.shards_column(self.field), ")" }
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
    use crate::test_schema::{assert_sql, downloads, sql, videos};
    use crate::top;
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::query_builder::AsQuery;
    use diesel::sqlite::Sqlite;

    #[test]
    fn sql_of_all_rows() {
        let ids = || {
            top(videos::table, videos::views, 10)
                .select(videos::id)
                .as_query()
        };
        assert_sql!(ids();
            Pg => r#"SELECT "videos"."id" FROM (SELECT "sharded_key_0", "sharded_total" FROM (SELECT "sharded_key_0", "sharded_total" FROM (SELECT "videos"."id" AS "sharded_key_0", "videos"."views" AS "sharded_total" FROM "videos" WHERE NOT EXISTS (SELECT 1 FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id" AND "videos_shards"."views" <> 0) ORDER BY "videos"."views" DESC, "videos"."id" DESC LIMIT $1) AS sharded_bases UNION ALL SELECT "videos"."id" AS "sharded_key_0", "videos"."views" + "sharded_sums"."sharded_sum" AS "sharded_total" FROM (SELECT "videos_shards"."id", SUM("videos_shards"."views") AS "sharded_sum" FROM "videos_shards" WHERE "videos_shards"."views" <> 0 GROUP BY "videos_shards"."id") AS "sharded_sums" JOIN "videos" ON "sharded_sums"."id" = "videos"."id") AS sharded_candidates ORDER BY "sharded_total" DESC, "sharded_key_0" DESC LIMIT $2 OFFSET $3) AS "sharded_top" JOIN "videos" ON "sharded_top"."sharded_key_0" = "videos"."id" ORDER BY "sharded_top"."sharded_total" DESC, "videos"."id" DESC"#,
            Mysql => "SELECT `videos`.`id` FROM (SELECT `sharded_key_0`, `sharded_total` FROM (SELECT `sharded_key_0`, `sharded_total` FROM (SELECT `videos`.`id` AS `sharded_key_0`, `videos`.`views` AS `sharded_total` FROM `videos` WHERE (SELECT 1 FROM `videos_shards` WHERE `videos_shards`.`id` = `videos`.`id` AND `videos_shards`.`views` <> 0 LIMIT 1) IS NULL ORDER BY `videos`.`views` DESC, `videos`.`id` DESC LIMIT ?) AS sharded_bases UNION ALL SELECT `videos`.`id` AS `sharded_key_0`, MAX(`videos`.`views`) + SUM(`videos_shards`.`views`) AS `sharded_total` FROM `videos_shards` STRAIGHT_JOIN `videos` ON `videos_shards`.`id` = `videos`.`id` WHERE `videos_shards`.`views` <> 0 GROUP BY `videos`.`id`) AS sharded_candidates ORDER BY `sharded_total` DESC, `sharded_key_0` DESC LIMIT ? OFFSET ?) AS `sharded_top` JOIN `videos` ON `sharded_top`.`sharded_key_0` = `videos`.`id` ORDER BY `sharded_top`.`sharded_total` DESC, `videos`.`id` DESC LIMIT 18446744073709551615",
        );
        let as_sqlite = sql!(Pg, ids())
            .replace('"', "`")
            .replace(['1', '2', '3'], "");
        let sqlite = sql!(Sqlite, ids()).replace('1', "").replace('?', "$");
        assert_eq!(sqlite, as_sqlite);
    }

    #[test]
    fn sql_of_filtered_rows() {
        let few = || {
            top(videos::table, videos::views, 10)
                .filter(videos::slug.eq("a"))
                .ascending()
                .select(videos::id)
                .as_query()
        };
        assert_sql!(few();
            Pg => r#"SELECT "videos"."id" FROM (SELECT "sharded_key_0", "sharded_total" FROM (SELECT "sharded_key_0", "sharded_total" FROM (SELECT "videos"."id" AS "sharded_key_0", "videos"."views" AS "sharded_total" FROM (SELECT "videos"."id", "videos"."views" FROM "videos" WHERE ("videos"."slug" = $1)) AS "videos" WHERE NOT EXISTS (SELECT 1 FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id" AND "videos_shards"."views" <> 0) ORDER BY "videos"."views" ASC, "videos"."id" ASC LIMIT $2) AS sharded_bases UNION ALL SELECT "videos"."id" AS "sharded_key_0", "videos"."views" + (SELECT SUM("videos_shards"."views") FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id") AS "sharded_total" FROM (SELECT "videos"."id", "videos"."views" FROM "videos" WHERE ("videos"."slug" = $3)) AS "videos" WHERE EXISTS (SELECT 1 FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id" AND "videos_shards"."views" <> 0)) AS sharded_candidates ORDER BY "sharded_total" ASC, "sharded_key_0" ASC LIMIT $4 OFFSET $5) AS "sharded_top" JOIN "videos" ON "sharded_top"."sharded_key_0" = "videos"."id" ORDER BY "sharded_top"."sharded_total" ASC, "videos"."id" ASC"#,
        );
        assert!(
            sql!(Mysql, few()).contains(
                "FROM `videos_shards` JOIN (SELECT `videos`.`id`, `videos`.`views` FROM `videos` WHERE (`videos`.`slug` = ?)) AS `videos` ON `videos_shards`.`id` = `videos`.`id` WHERE `videos_shards`.`views` <> 0 GROUP BY `videos`.`id`)"
            ),
            "{}",
            sql!(Mysql, few())
        );
    }

    #[test]
    fn sql_under_a_composite_key() {
        let versions = top(downloads::table, downloads::number, 10)
            .select(downloads::version)
            .as_query();
        assert_sql!(versions;
            Pg => r#"SELECT "downloads"."version" FROM (SELECT "sharded_key_0", "sharded_key_1", "sharded_total" FROM (SELECT "sharded_key_0", "sharded_key_1", "sharded_total" FROM (SELECT "downloads"."version" AS "sharded_key_0", "downloads"."day" AS "sharded_key_1", "downloads"."number" AS "sharded_total" FROM "downloads" WHERE NOT EXISTS (SELECT 1 FROM "download ""counts""" WHERE "download ""counts"""."version" = "downloads"."version" AND "download ""counts"""."day" = "downloads"."day" AND "download ""counts"""."number" <> 0) ORDER BY "downloads"."number" DESC, "downloads"."version" DESC, "downloads"."day" DESC LIMIT $1) AS sharded_bases UNION ALL SELECT "downloads"."version" AS "sharded_key_0", "downloads"."day" AS "sharded_key_1", "downloads"."number" + "sharded_sums"."sharded_sum" AS "sharded_total" FROM (SELECT "download ""counts"""."version", "download ""counts"""."day", SUM("download ""counts"""."number") AS "sharded_sum" FROM "download ""counts""" WHERE "download ""counts"""."number" <> 0 GROUP BY "download ""counts"""."version", "download ""counts"""."day") AS "sharded_sums" JOIN "downloads" ON "sharded_sums"."version" = "downloads"."version" AND "sharded_sums"."day" = "downloads"."day") AS sharded_candidates ORDER BY "sharded_total" DESC, "sharded_key_0" DESC, "sharded_key_1" DESC LIMIT $2 OFFSET $3) AS "sharded_top" JOIN "downloads" ON "sharded_top"."sharded_key_0" = "downloads"."version" AND "sharded_top"."sharded_key_1" = "downloads"."day" ORDER BY "sharded_top"."sharded_total" DESC, "downloads"."version" DESC, "downloads"."day" DESC"#,
        );
    }
}
