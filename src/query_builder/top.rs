//! The query of the rows with the greatest or least totals.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::BigInt;

use crate::backend::{Dialect, ShardedBackend, SumsForm};
use crate::model::ShardedColumn;
use crate::query_builder::count::picked_key;
use crate::query_builder::{Names, Sql, bind, copies, fragments, id, on, part, sql, text_of, walk};

/// Reads `selection` of the rows with the greatest totals of the field `C`; see [`top`](crate::top()) for the SQL.
///
/// Parents without shards are ordered by their bases, for which an index may exist: only the first of them can be in the result. Every
/// parent with shards can be in it, since its base does not bound its total. A shard that holds 0 does not count as one.
#[derive(Debug, Clone, QueryId)]
pub struct SelectTop<C, W, S, Order = SortedBy, A = ()> {
    pub(crate) filter: W,
    pub(crate) selection: S,
    pub(crate) after: A,
    pub(crate) limit: i64,
    pub(crate) offset: i64,
    /// `limit` + `offset`: the number of parents without shards that may be in the result.
    pub(crate) candidates: i64,
    pub(crate) ascending: bool,
    pub(crate) field: PhantomData<(C, Order)>,
}

/// The columns that a list is sorted by besides the total: one before it, one after it.
#[derive(Debug, Clone, Copy, QueryId)]
pub struct SortedBy<First = NoColumn, Then = NoColumn>(PhantomData<(First, Then)>);

/// No column.
#[derive(Debug, Clone, Copy, QueryId)]
pub struct NoColumn;

/// A column, or [`NoColumn`].
pub trait SortColumn {
    /// Its name.
    const NAME: Option<&'static str>;
}

impl SortColumn for NoColumn {
    const NAME: Option<&'static str> = None;
}

impl<C: Column> SortColumn for C {
    const NAME: Option<&'static str> = Some(C::NAME);
}

/// The sort values of the row after which a list begins.
#[derive(Debug, Clone, QueryId)]
pub struct After<Lead, Values> {
    /// The first of `values` once more: MySQL can start an index scan at a single value, but not at a row of values.
    pub(crate) lead: Lead,
    pub(crate) values: Values,
}

/// The first sort value, and all of them.
type AfterRow<'b, DB> = (&'b dyn QueryFragment<DB>, &'b dyn QueryFragment<DB>);

/// Where a list begins: at its first row (`()`), or [`After`] another row.
pub trait Beginning<DB: Backend> {
    /// The sort values of the row before the list.
    fn values(&self) -> Option<AfterRow<'_, DB>>;
}

impl<DB: Backend> Beginning<DB> for () {
    fn values(&self) -> Option<AfterRow<'_, DB>> {
        None
    }
}

impl<DB: Backend, Lead: QueryFragment<DB>, Values: QueryFragment<DB>> Beginning<DB>
    for After<Lead, Values>
{
    fn values(&self) -> Option<AfterRow<'_, DB>> {
        Some((&self.lead, &self.values))
    }
}

/// The query for keys and totals.
const TOP: &str = "sharded_top";
/// The sums of the shards of each parent.
const SUMS: &str = "sharded_sums";
const FIRST: &str = "sharded_first";
const TOTAL: &str = "sharded_total";
const THEN: &str = "sharded_then";
const SUM: &str = "sharded_sum";

fragments! {
    [
        C: ShardedColumn<Table: QueryFragment<DB>>, W: QueryFragment<DB>, S: QueryFragment<DB>, First: SortColumn, Then: SortColumn,
        A: Beginning<DB>,
    ] SelectTop<C, W, S, SortedBy<First, Then>, A>;
    |self, mut out| {
        let dialect = out.backend().dialect();
        if dialect.has_faulty_client() || self.ascending {
            out.unsafe_to_cache_prepared(); // the query id does not tell ascending from descending
        }
        let is_filtered = !text_of(&self.filter, out.backend())?.is_empty();
        let table = Names::of::<C::Table>();
        let query = TopQuery {
            parent: table,
            names: match is_filtered {
                true => table.under_alias(),
                false => table,
            },
            field: C::NAME,
            first: First::NAME,
            then: Then::NAME,
            filter: &self.filter,
            is_filtered,
            ascending: self.ascending,
        };
        let after = self.after.values();
        sql!(out;
            "SELECT ", walk(&self.selection),
            " FROM (SELECT ", query.picked(""), " FROM (SELECT ", query.picked(""), " FROM (",
            query.without_shards(after, &self.candidates), ") AS sharded_bases UNION ALL ",
            query.with_shards(dialect.sums_form(is_filtered)), ") AS sharded_candidates",
            if let Some((_, values)) = after { " WHERE (", query.picked(""), ")", query.beyond(), " (", walk(values), ")" },
            " ORDER BY ", query.picked(query.direction()),
            " LIMIT ", bind(BigInt, &self.limit), " OFFSET ", bind(BigInt, &self.offset), ") AS ", id(TOP),
            " JOIN ", walk(table.parent), " ON ", table.picked_is(TOP, |name| table.column(name)),
            " ORDER BY ", query.sorted_by(table, sql! { id(TOP), ".", id(TOTAL) }, query.direction()), on(Dialect::all_rows))
    };
}

impl<C, W, S: Expression, Order, A> Query for SelectTop<C, W, S, Order, A> {
    type SqlType = S::SqlType;
}

/// Writes the inner query, for keys and totals.
struct TopQuery<'b, DB: ShardedBackend> {
    parent: Names<'b, DB>,
    /// The names of the filtered parents.
    names: Names<'b, DB>,
    field: &'static str,
    /// The columns that the list is sorted by before and after the total.
    first: Option<&'static str>,
    then: Option<&'static str>,
    filter: &'b dyn QueryFragment<DB>,
    is_filtered: bool,
    ascending: bool,
}

copies!([DB: ShardedBackend] TopQuery<'_, DB>);

impl<'b, DB: ShardedBackend> TopQuery<'b, DB> {
    /// `SELECT parent.views AS sharded_total, parent.key AS sharded_key_0 FROM parent WHERE NOT EXISTS (…) AND parent.views <= $n AND
    /// (parent.views, parent.key) < ($n, $n) ORDER BY parent.views DESC, parent.key DESC LIMIT $n`
    fn without_shards(
        self,
        after: Option<AfterRow<'b, DB>>,
        candidates: &'b i64,
    ) -> impl Sql<'b, DB> {
        let sorted_by = move |with| self.sorted_by(self.names, self.base(), with);
        sql! {
            self.select(self.base(), ""), " FROM ", self.rows(),
            " WHERE ", on(|dialect| dialect.finds_none().0), self.a_shard(), on(|dialect| dialect.finds_none().1),
            if let Some((lead, values)) = after {
                " AND ", self.names.column(self.first.unwrap_or(self.field)), self.beyond(), "= ", walk(lead),
                " AND (", sorted_by(""), ")", self.beyond(), " (", walk(values), ")"
            },
            " ORDER BY ", sorted_by(self.direction()), " LIMIT ", bind(BigInt, candidates)
        }
    }

    /// `SELECT parent.views + sum AS sharded_total, parent.key AS sharded_key_0 FROM …`
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
                self.select(sql! { self.base(), " + ", id(SUMS), ".", id(SUM) }, ""), " FROM ", sums,
                " JOIN ", self.rows(), " ON ", key_is(SUMS)),
            SumsForm::GroupJoined { straight } => sql!(out;
                self.select(sql! { "MAX(", self.base(), ") + ", self.sum() }, "MAX"), " FROM ", shards,
                if straight { " STRAIGHT_JOIN " } else { " JOIN " }, self.rows(), " ON ", key_is(shards.name()),
                " WHERE ", self.is_not_zero(), " GROUP BY ", names.key()),
            SumsForm::Correlated => sql!(out;
                self.select(sql! { self.base(), " + (SELECT ", self.sum(), " FROM ", names.shards_of_parent(None), ")" }, ""),
                " FROM ", self.rows(), " WHERE EXISTS (", self.a_shard(), ")"),
        })
    }

    /// The parents. A filter stays in a subquery: it may lack parentheses, so no condition can be appended to it.
    fn rows(self) -> impl Sql<'b, DB> {
        sql! {
            if self.is_filtered {
                "(SELECT ", self.parent.key(), for column in (self.columns(), "") { ", ", self.parent.column(column) },
                " FROM ", self.parent.filtered(self.filter), ") AS "
            },
            walk(self.names.parent)
        }
    }

    /// The columns that the list is sorted by, without the key.
    fn columns(self) -> impl Iterator<Item = &'static str> {
        [self.first, Some(self.field), self.then]
            .into_iter()
            .flatten()
    }

    /// `SELECT parent.first AS sharded_first, total AS sharded_total, parent.then AS sharded_then, parent.key AS sharded_key_0`, with
    /// `aggregate` around the columns outside of the `GROUP BY`
    fn select(self, total: impl Sql<'b, DB>, aggregate: &'static str) -> impl Sql<'b, DB> {
        let column = move |name| sql! { aggregate, "(", self.names.column(name), ")" };
        sql! {
            "SELECT ",
            if let Some(first) = self.first { column(first), " AS ", id(FIRST), ", " },
            total, " AS ", id(TOTAL), ", ",
            if let Some(then) = self.then { column(then), " AS ", id(THEN), ", " },
            self.names.key_as_picked(move |name| self.names.column(name))
        }
    }

    /// `sharded_first, sharded_total, sharded_then, sharded_key_0`, with this suffix on each
    fn picked(self, with: &'static str) -> impl Sql<'b, DB> {
        let columns = [
            self.first.map(|_| FIRST),
            Some(TOTAL),
            self.then.map(|_| THEN),
        ];
        let columns = columns.into_iter().flatten().map(str::to_owned);
        let keys = (0..self.names.key.len()).map(picked_key);
        sql! { for name in (columns.chain(keys), ", ") { id(&name), with } }
    }

    /// `parent.first, total, parent.then, parent.key`, with this suffix on each
    fn sorted_by(
        self,
        names: Names<'b, DB>,
        total: impl Sql<'b, DB>,
        with: &'static str,
    ) -> impl Sql<'b, DB> {
        sql! {
            if let Some(first) = self.first { names.column(first), with, ", " },
            total, with,
            if let Some(then) = self.then { ", ", names.column(then), with },
            for column in (names.key, "") { ", ", names.column(&column.name), with }
        }
    }

    fn direction(self) -> &'static str {
        if self.ascending { " ASC" } else { " DESC" }
    }

    /// The comparison of a row with a row before it.
    fn beyond(self) -> &'static str {
        if self.ascending { " >" } else { " <" }
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
            Pg => r#"SELECT "videos"."id" FROM (SELECT "sharded_total", "sharded_key_0" FROM (SELECT "sharded_total", "sharded_key_0" FROM (SELECT "videos"."views" AS "sharded_total", "videos"."id" AS "sharded_key_0" FROM "videos" WHERE NOT EXISTS (SELECT 1 FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id" AND "videos_shards"."views" <> 0) ORDER BY "videos"."views" DESC, "videos"."id" DESC LIMIT $1) AS sharded_bases UNION ALL SELECT "videos"."views" + "sharded_sums"."sharded_sum" AS "sharded_total", "videos"."id" AS "sharded_key_0" FROM (SELECT "videos_shards"."id", SUM("videos_shards"."views") AS "sharded_sum" FROM "videos_shards" WHERE "videos_shards"."views" <> 0 GROUP BY "videos_shards"."id") AS "sharded_sums" JOIN "videos" ON "sharded_sums"."id" = "videos"."id") AS sharded_candidates ORDER BY "sharded_total" DESC, "sharded_key_0" DESC LIMIT $2 OFFSET $3) AS "sharded_top" JOIN "videos" ON "sharded_top"."sharded_key_0" = "videos"."id" ORDER BY "sharded_top"."sharded_total" DESC, "videos"."id" DESC"#,
            Mysql => "SELECT `videos`.`id` FROM (SELECT `sharded_total`, `sharded_key_0` FROM (SELECT `sharded_total`, `sharded_key_0` FROM (SELECT `videos`.`views` AS `sharded_total`, `videos`.`id` AS `sharded_key_0` FROM `videos` WHERE (SELECT 1 FROM `videos_shards` WHERE `videos_shards`.`id` = `videos`.`id` AND `videos_shards`.`views` <> 0 LIMIT 1) IS NULL ORDER BY `videos`.`views` DESC, `videos`.`id` DESC LIMIT ?) AS sharded_bases UNION ALL SELECT MAX(`videos`.`views`) + SUM(`videos_shards`.`views`) AS `sharded_total`, `videos`.`id` AS `sharded_key_0` FROM `videos_shards` STRAIGHT_JOIN `videos` ON `videos_shards`.`id` = `videos`.`id` WHERE `videos_shards`.`views` <> 0 GROUP BY `videos`.`id`) AS sharded_candidates ORDER BY `sharded_total` DESC, `sharded_key_0` DESC LIMIT ? OFFSET ?) AS `sharded_top` JOIN `videos` ON `sharded_top`.`sharded_key_0` = `videos`.`id` ORDER BY `sharded_top`.`sharded_total` DESC, `videos`.`id` DESC LIMIT 18446744073709551615",
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
            Pg => r#"SELECT "videos"."id" FROM (SELECT "sharded_total", "sharded_key_0" FROM (SELECT "sharded_total", "sharded_key_0" FROM (SELECT "videos"."views" AS "sharded_total", "videos"."id" AS "sharded_key_0" FROM (SELECT "videos"."id", "videos"."views" FROM "videos" WHERE ("videos"."slug" = $1)) AS "videos" WHERE NOT EXISTS (SELECT 1 FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id" AND "videos_shards"."views" <> 0) ORDER BY "videos"."views" ASC, "videos"."id" ASC LIMIT $2) AS sharded_bases UNION ALL SELECT "videos"."views" + (SELECT SUM("videos_shards"."views") FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id") AS "sharded_total", "videos"."id" AS "sharded_key_0" FROM (SELECT "videos"."id", "videos"."views" FROM "videos" WHERE ("videos"."slug" = $3)) AS "videos" WHERE EXISTS (SELECT 1 FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id" AND "videos_shards"."views" <> 0)) AS sharded_candidates ORDER BY "sharded_total" ASC, "sharded_key_0" ASC LIMIT $4 OFFSET $5) AS "sharded_top" JOIN "videos" ON "sharded_top"."sharded_key_0" = "videos"."id" ORDER BY "sharded_top"."sharded_total" ASC, "videos"."id" ASC"#,
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
            Pg => r#"SELECT "downloads"."version" FROM (SELECT "sharded_total", "sharded_key_0", "sharded_key_1" FROM (SELECT "sharded_total", "sharded_key_0", "sharded_key_1" FROM (SELECT "downloads"."number" AS "sharded_total", "downloads"."version" AS "sharded_key_0", "downloads"."day" AS "sharded_key_1" FROM "downloads" WHERE NOT EXISTS (SELECT 1 FROM "download ""counts""" WHERE "download ""counts"""."version" = "downloads"."version" AND "download ""counts"""."day" = "downloads"."day" AND "download ""counts"""."number" <> 0) ORDER BY "downloads"."number" DESC, "downloads"."version" DESC, "downloads"."day" DESC LIMIT $1) AS sharded_bases UNION ALL SELECT "downloads"."number" + "sharded_sums"."sharded_sum" AS "sharded_total", "downloads"."version" AS "sharded_key_0", "downloads"."day" AS "sharded_key_1" FROM (SELECT "download ""counts"""."version", "download ""counts"""."day", SUM("download ""counts"""."number") AS "sharded_sum" FROM "download ""counts""" WHERE "download ""counts"""."number" <> 0 GROUP BY "download ""counts"""."version", "download ""counts"""."day") AS "sharded_sums" JOIN "downloads" ON "sharded_sums"."version" = "downloads"."version" AND "sharded_sums"."day" = "downloads"."day") AS sharded_candidates ORDER BY "sharded_total" DESC, "sharded_key_0" DESC, "sharded_key_1" DESC LIMIT $2 OFFSET $3) AS "sharded_top" JOIN "downloads" ON "sharded_top"."sharded_key_0" = "downloads"."version" AND "sharded_top"."sharded_key_1" = "downloads"."day" ORDER BY "sharded_top"."sharded_total" DESC, "downloads"."version" DESC, "downloads"."day" DESC"#,
        );
    }

    #[test]
    fn sql_of_a_page_after_a_row() {
        let page = || {
            top(videos::table, videos::views, 10)
                .after((350, 7))
                .select(videos::id)
                .as_query()
        };
        let bases = r#"<> 0) AND "videos"."views" <= $1 AND ("videos"."views", "videos"."id") < ($2, $3) ORDER BY "videos"."views" DESC, "videos"."id" DESC LIMIT $4) AS sharded_bases"#;
        let candidates = r#") AS sharded_candidates WHERE ("sharded_total", "sharded_key_0") < ($5, $6) ORDER BY "sharded_total" DESC, "sharded_key_0" DESC LIMIT $7"#;
        let text = sql!(Pg, page());
        assert!(text.contains(bases) && text.contains(candidates), "{text}");
        let back = top(downloads::table, downloads::number, 10)
            .ascending()
            .after((5.0, (1, "a".to_owned())));
        let back = sql!(Mysql, back.as_query());
        let bases = "AND `downloads`.`number` >= ? AND (`downloads`.`number`, `downloads`.`version`, `downloads`.`day`) > (?, ?, ?) ORDER BY";
        assert!(back.contains(bases), "{back}");
    }

    #[test]
    fn sql_sorted_by_further_columns() {
        let page = || {
            top(videos::table, videos::views, 10)
                .first_by(videos::likes)
                .then_by(videos::slug)
                .after((1, 350, "a", 7))
                .select(videos::id)
                .as_query()
        };
        assert_sql!(page();
            Pg => r#"SELECT "videos"."id" FROM (SELECT "sharded_first", "sharded_total", "sharded_then", "sharded_key_0" FROM (SELECT "sharded_first", "sharded_total", "sharded_then", "sharded_key_0" FROM (SELECT ("videos"."likes") AS "sharded_first", "videos"."views" AS "sharded_total", ("videos"."slug") AS "sharded_then", "videos"."id" AS "sharded_key_0" FROM "videos" WHERE NOT EXISTS (SELECT 1 FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id" AND "videos_shards"."views" <> 0) AND "videos"."likes" <= $1 AND ("videos"."likes", "videos"."views", "videos"."slug", "videos"."id") < ($2, $3, $4, $5) ORDER BY "videos"."likes" DESC, "videos"."views" DESC, "videos"."slug" DESC, "videos"."id" DESC LIMIT $6) AS sharded_bases UNION ALL SELECT ("videos"."likes") AS "sharded_first", "videos"."views" + "sharded_sums"."sharded_sum" AS "sharded_total", ("videos"."slug") AS "sharded_then", "videos"."id" AS "sharded_key_0" FROM (SELECT "videos_shards"."id", SUM("videos_shards"."views") AS "sharded_sum" FROM "videos_shards" WHERE "videos_shards"."views" <> 0 GROUP BY "videos_shards"."id") AS "sharded_sums" JOIN "videos" ON "sharded_sums"."id" = "videos"."id") AS sharded_candidates WHERE ("sharded_first", "sharded_total", "sharded_then", "sharded_key_0") < ($7, $8, $9, $10) ORDER BY "sharded_first" DESC, "sharded_total" DESC, "sharded_then" DESC, "sharded_key_0" DESC LIMIT $11 OFFSET $12) AS "sharded_top" JOIN "videos" ON "sharded_top"."sharded_key_0" = "videos"."id" ORDER BY "videos"."likes" DESC, "sharded_top"."sharded_total" DESC, "videos"."slug" DESC, "videos"."id" DESC"#,
        );
        let grouped = "SELECT MAX(`videos`.`likes`) AS `sharded_first`, MAX(`videos`.`views`) + SUM(`videos_shards`.`views`) AS `sharded_total`, MAX(`videos`.`slug`) AS `sharded_then`, `videos`.`id` AS `sharded_key_0` FROM";
        assert!(sql!(Mysql, page()).contains(grouped));
        let few = sql!(
            Mysql,
            top(videos::table.find(7), videos::views, 1)
                .then_by(videos::slug)
                .as_query()
        );
        assert!(
            few.contains(
                "(SELECT `videos`.`id`, `videos`.`views`, `videos`.`slug` FROM `videos` WHERE"
            ),
            "{few}"
        );
    }
}
