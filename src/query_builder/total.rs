//! `views.total()`: base + sum of shards, inside any Diesel query.

use std::marker::PhantomData;

use diesel::expression::{
    AppearsOnTable, Expression, SelectableExpression, ValidGrouping, is_aggregate,
};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::query_source::{AliasSource, AliasedField};
use diesel::sql_types::{DieselNumericOps, SqlType};

use crate::backend::{ShardedBackend, TotalForm};
use crate::model::{ShardsColumn, TotalColumn, TotalOf};
use crate::query_builder::{Names, Sql, fragments, sql};

/// The exact value of a sharded field, read in one statement: base + sum of shards, or the greatest or least of them. Made by
/// [`total`](ShardedExpressionMethods::total).
///
/// A total has the column's own SQL type, so you can use it wherever you could use the column: in `select`, `filter`, `order`, joins and
/// boxed queries. You can calculate with a total that is a number: `+`, `-`, `*` and `/` accept a value, a column or another total, and
/// `sum` and `max` accept the totals of a group. Models select it by [`ShardedSelectable`](derive@crate::ShardedSelectable).
///
/// In `having`, MariaDB finds a total, of an alias too, only if the plain column is selected as well; `filter` needs no such column.
///
/// ```
/// # mod schema { diesel::table! { posts (id) { id -> BigInt, author -> Text, ups -> BigInt, downs -> BigInt, } } }
/// # use schema::posts::{self, dsl::{author, downs, id, posts as all, ups}};
/// # #[derive(diesel_sharded::ShardedField)]
/// # struct Post { id: i64, #[sharded] ups: i64, #[sharded] downs: i64 }
/// # fn main() -> diesel::QueryResult<()> {
/// # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
/// # diesel::sql_query("CREATE TABLE posts (id INTEGER PRIMARY KEY, author TEXT NOT NULL, ups BIGINT NOT NULL, downs BIGINT NOT NULL)").execute(conn)?;
/// # for (key, n, m) in [(1, 9, 4), (2, 7, 1)] {
/// #     diesel::insert_into(all).values((id.eq(key), author.eq("ann"), ups.eq(n), downs.eq(m))).execute(conn)?;
/// # }
/// # diesel_sharded::ShardsTable::of(posts::table).create(conn)?;
/// # diesel_sharded::update(all.find(2)).set(ups.eq(ups + 3)).execute(conn)?;
/// use diesel::dsl::max;
/// use diesel::prelude::*;
/// use diesel_sharded::Total;
/// use diesel_sharded::prelude::*;
///
/// let score = || ups.total() - downs.total();
/// let best = all
///     .filter(ups.total().gt(downs.total()))
///     .order(score().desc())
///     .select((id, score() * 2));
/// assert_eq!(best.load(conn), Ok(vec![(2_i64, 18_i64), (1, 10)]));
/// let by_author = all.group_by(author).select((author, max(ups.total())));
/// assert_eq!(by_author.load(conn), Ok(vec![("ann".to_owned(), Some(10_i64))]));
///
/// // Where Diesel infers a type, as in `#[auto_type]`, the total has to be named: it knows no `diesel::dsl::Total`. Beside `HasQuery`'s
/// // `base_query`, give its `base_query_type`.
/// #[diesel::dsl::auto_type]
/// fn popular() -> _ {
///     let total: Total<posts::ups> = ups.total();
///     all.filter(total.gt(8_i64)).select(total)
/// }
/// assert_eq!(popular().load(conn), Ok(vec![9_i64, 10]));
///
/// // Of an aliased table.
/// let other = diesel::alias!(posts as other);
/// let first = other.select(other.field(ups).total()).order(other.field(id)).first(conn);
/// assert_eq!(first, Ok(9_i64));
/// # Ok(())
/// # }
/// ```
///
/// ```sql
/// -- PostgreSQL; no CAST where SUM keeps the type (double precision, numeric)
/// CAST(("videos"."views" + (SELECT COALESCE(SUM("videos_shards"."views"), 0) FROM "videos_shards"
///     WHERE "videos_shards"."id" = "videos"."id")) AS bigint)
/// -- MySQL, MariaDB
/// (`videos`.`views` + (SELECT COALESCE(SUM(`videos_shards`.`views`), 0) FROM `videos_shards`
///     WHERE `videos_shards`.`id` = `videos`.`id`))
/// -- SQLite; all other types check their range instead of the type
/// (SELECT CASE WHEN total IS NULL OR typeof(total) = 'integer' THEN total ELSE abs(-9223372036854775807 - 1) END
///     FROM (SELECT `videos`.`views` + COALESCE(SUM(`videos_shards`.`views`), 0) AS total FROM `videos_shards`
///         WHERE `videos_shards`.`id` = `videos`.`id`))
/// -- `#[sharded(max)]`, on every database; MIN and < for `#[sharded(min)]`
/// (SELECT COALESCE(MAX("videos_shards"."last_viewed_at"), "videos"."last_viewed_at") FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id"
///     AND ("videos"."last_viewed_at" IS NULL OR "videos_shards"."last_viewed_at" > "videos"."last_viewed_at"))
/// ```
///
/// Reading a total outside the range of the column's type is an error: the database's own on PostgreSQL and SQLite ("integer overflow"),
/// Diesel's on MySQL. A total never wraps and is never cut off. (If a sum of `Double`s exceeds an `f64`, MySQL fails in the middle of the
/// result. Its client library has been seen to wait forever when the same prepared statement was used again. Do not count that far there.)
///
/// The query is Diesel's, and so are its errors. If the shards table is missing, the database's own error names it. An increment and
/// [`RowCounter::get`](crate::RowCounter::get) report [`MissingShardsTable`](crate::Error::MissingShardsTable), which says what to do.
#[derive(Debug, Clone, Copy, Default, DieselNumericOps, QueryId)]
#[must_use = "an expression does nothing until it is part of a query"]
pub struct Total<C> {
    column: PhantomData<C>,
}

/// Adds [`total`](Self::total) and [`estimate`](Self::estimate) to sharded fields, including those of an aliased table
/// (`alias.field(views)`).
pub trait ShardedExpressionMethods: Expression + Sized {
    /// The exact value of this field: base + sum of shards. See [`Total`] for the SQL.
    fn total(self) -> Total<Self> {
        Total {
            column: PhantomData,
        }
    }

    /// The base without the shards: the plain column, with its index, under a name that warns the reader. It is as fresh as the last
    /// [`fold`](crate::fold()) and does not include increments on shards since then.
    ///
    /// ```sql
    /// "videos"."views"
    /// ```
    fn estimate(self) -> Self {
        self
    }
}

impl<C: TotalColumn> ShardedExpressionMethods for C {}

impl<S, C> ShardedExpressionMethods for AliasedField<S, C>
where
    S: AliasSource<Target = C::Table>,
    C: TotalColumn,
{
}

impl<C: Expression> Expression for Total<C> {
    type SqlType = C::SqlType;
}

/// A total may appear beside a `GROUP BY` that contains the whole key: each group then is one parent.
impl<C, G> ValidGrouping<G> for Total<C>
where
    C: TotalColumn + ValidGrouping<G>,
    <C::Table as Table>::PrimaryKey: ValidGrouping<G>,
{
    type IsAggregate = C::IsAggregate;
}

impl<S, C> ValidGrouping<()> for Total<AliasedField<S, C>>
where
    S: AliasSource<Target = C::Table>,
    C: TotalColumn,
{
    type IsAggregate = is_aggregate::No;
}

/// Diesel knows no groups by several columns of an alias, so this is a key of one column.
impl<S, C, K> ValidGrouping<AliasedField<S, K>> for Total<AliasedField<S, C>>
where
    S: AliasSource<Target = C::Table>,
    C: TotalColumn + ValidGrouping<K, IsAggregate = is_aggregate::Yes>,
    C::Table: Table<PrimaryKey = K>,
    K: Column<Table = C::Table>,
{
    type IsAggregate = is_aggregate::Yes;
}

impl<C: SelectableExpression<QS>, QS> SelectableExpression<QS> for Total<C> where
    Self: AppearsOnTable<QS>
{
}

impl<C: AppearsOnTable<QS>, QS> AppearsOnTable<QS> for Total<C> {}

fragments! {
    [C: TotalColumn<Table: QueryFragment<DB>>,] Total<C>;
    |self, out| Names::of::<C::Table>().total(&C::FIELD, None).push(out);

    [S: AliasSource<Target = C::Table> + 'static, C: TotalColumn,] Total<AliasedField<S, C>>;
    |self, out| Names::of_alias::<S, C::Table>().total(&C::FIELD, None).push(out);

    [C: TotalColumn<Table: QueryFragment<DB>>,] TotalInRow<C>;
    |self, out| self.0.walk_ast(out);
}

/// The [total](Total) of a sharded field, with an SQL type that no column has. `#[derive(ShardedSelectable)]` selects it.
#[derive(Debug, Clone, Copy, QueryId)]
pub struct TotalInRow<C>(Total<C>);

impl<C: TotalColumn> TotalInRow<C> {
    /// The total of `column`.
    pub fn of(column: C) -> Self {
        TotalInRow(column.total())
    }
}

impl<C: Expression<SqlType: SqlType>> Expression for TotalInRow<C> {
    type SqlType = TotalOf<C::SqlType>;
}

impl<C, G> ValidGrouping<G> for TotalInRow<C>
where
    Total<C>: ValidGrouping<G>,
{
    type IsAggregate = <Total<C> as ValidGrouping<G>>::IsAggregate;
}

impl<C, QS> SelectableExpression<QS> for TotalInRow<C>
where
    Total<C>: SelectableExpression<QS>,
    Self: AppearsOnTable<QS>,
{
}

impl<C, QS> AppearsOnTable<QS> for TotalInRow<C>
where
    Total<C>: AppearsOnTable<QS>,
    Self: Expression,
{
}

impl<'b, DB: ShardedBackend> Names<'b, DB> {
    /// The total of a sharded field, or, for a given `shard`, base + that shard.
    pub(crate) fn total(self, field: &ShardsColumn, shard: Option<&'b i32>) -> impl Sql<'b, DB> {
        move |mut out: AstPass<'_, 'b, DB>| {
            let name = &*field.name;
            let dialect = out.backend().dialect();
            if dialect.has_faulty_client() {
                out.unsafe_to_cache_prepared();
            }
            if !field.is_sum() {
                return self.peak(field, shard, "").push(out);
            }
            let sum =
                sql! { "(", self.column(name), " + ", self.sum_of_shards(name, shard, ""), ")" };
            match dialect.total_form(field.column_type) {
                TotalForm::Plain => sum.push(out),
                TotalForm::Cast(sql_type) => sql!(out; "CAST(", sum, " AS ", sql_type, ")"),
                TotalForm::Checked(condition) => sql!(out;
                    "(SELECT CASE WHEN total IS NULL OR ", condition, " THEN total ELSE abs(-9223372036854775807 - 1) END",
                    " FROM (SELECT ", self.column(name), " + ", self.sum_or_0(name), " AS total FROM ", self.shards_of_parent(shard), "))"),
            }
        }
    }

    /// `(SELECT COALESCE(SUM(…), 0) FROM shards WHERE …)`, with `lock` at its end.
    ///
    /// If MariaDB interrupts a subquery at its start, the subquery is NULL, without an error. The `COALESCE` is inside, so that the total
    /// then becomes NULL instead of the base alone.
    pub(super) fn sum_of_shards(
        self,
        name: &str,
        shard: Option<&'b i32>,
        lock: &str,
    ) -> impl Sql<'b, DB> {
        sql! { "(SELECT ", self.sum_or_0(name), " FROM ", self.shards_of_parent(shard), lock, ")" }
    }

    /// `COALESCE(SUM(shards.name), 0)`
    fn sum_or_0(self, name: &str) -> impl Sql<'b, DB> {
        sql! { "COALESCE(SUM(", self.shards_column(name), "), 0)" }
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
    use crate::ShardedSelectable;
    use crate::test_schema::{assert_sql, downloads, sql, videos};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::sqlite::Sqlite;

    #[test]
    fn sql_of_totals() {
        assert_sql!(videos::views.total();
            Pg => r#"CAST(("videos"."views" + (SELECT COALESCE(SUM("videos_shards"."views"), 0) FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id")) AS bigint)"#,
            Mysql => "(`videos`.`views` + (SELECT COALESCE(SUM(`videos_shards`.`views`), 0) FROM `videos_shards` WHERE `videos_shards`.`id` = `videos`.`id`))",
            Sqlite => "(SELECT CASE WHEN total IS NULL OR typeof(total) = 'integer' THEN total ELSE abs(-9223372036854775807 - 1) END FROM (SELECT `videos`.`views` + COALESCE(SUM(`videos_shards`.`views`), 0) AS total FROM `videos_shards` WHERE `videos_shards`.`id` = `videos`.`id`))",
        );
    }

    #[test]
    fn sql_of_arithmetic() {
        let pg = r#"CAST(("videos"."views" + (SELECT COALESCE(SUM("videos_shards"."views"), 0) FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id")) AS bigint)"#;
        assert_sql!(videos::views.total() - 1; Pg => format!("({pg} - $1)"));
        assert_sql!((videos::views.total() - videos::views.total()) * 2;
            Pg => format!("(({pg} - {pg}) * $1)"),
        );
        let mysql = "(`videos`.`views` + (SELECT COALESCE(SUM(`videos_shards`.`views`), 0) FROM `videos_shards` WHERE `videos_shards`.`id` = `videos`.`id`))";
        assert_sql!(videos::views.total() / videos::views;
            Mysql => format!("({mysql} / `videos`.`views`)"),
        );
        let sqlite = sql!(Sqlite, videos::views.total());
        assert_sql!((videos::views.total() + 1).gt(videos::views.total());
            Sqlite => format!("(({sqlite} + ?) > {sqlite})"),
        );
    }

    #[test]
    fn sql_of_a_total_under_an_alias() {
        let alias = diesel::alias!(videos as v);
        assert_sql!(alias.field(videos::views).total();
            Pg => r#"CAST(("v"."views" + (SELECT COALESCE(SUM("videos_shards"."views"), 0) FROM "videos_shards" WHERE "videos_shards"."id" = "v"."id")) AS bigint)"#,
        );
        assert_sql!(alias.select(alias.field(videos::likes).total());
            Mysql => "SELECT (`v`.`likes` + (SELECT COALESCE(SUM(`videos_shards`.`likes`), 0) FROM `videos_shards` WHERE `videos_shards`.`id` = `v`.`id`)) FROM `videos` AS `v`",
        );
        assert_sql!(alias.field(videos::views).total();
            Sqlite => "(SELECT CASE WHEN total IS NULL OR typeof(total) = 'integer' THEN total ELSE abs(-9223372036854775807 - 1) END FROM (SELECT `v`.`views` + COALESCE(SUM(`videos_shards`.`views`), 0) AS total FROM `videos_shards` WHERE `videos_shards`.`id` = `v`.`id`))",
        );
    }

    #[test]
    fn sql_of_a_total_under_a_composite_key() {
        assert_sql!(downloads::number.total();
            Pg => r#"("downloads"."number" + (SELECT COALESCE(SUM("download ""counts"""."number"), 0) FROM "download ""counts""" WHERE "download ""counts"""."version" = "downloads"."version" AND "download ""counts"""."day" = "downloads"."day"))"#,
        );
    }

    #[derive(ShardedSelectable)]
    #[diesel(table_name = videos)]
    #[expect(dead_code, reason = "the selection is tested, and no row")]
    struct Card {
        slug: String,
        #[sharded]
        #[diesel(column_name = likes)]
        number: i32,
    }

    #[test]
    fn sql_of_a_models_selection() {
        assert_sql!(videos::table.select(Card::as_select());
            Pg => r#"SELECT "videos"."slug", CAST(("videos"."likes" + (SELECT COALESCE(SUM("videos_shards"."likes"), 0) FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id")) AS integer) FROM "videos""#,
            Mysql => "SELECT `videos`.`slug`, (`videos`.`likes` + (SELECT COALESCE(SUM(`videos_shards`.`likes`), 0) FROM `videos_shards` WHERE `videos_shards`.`id` = `videos`.`id`)) FROM `videos`",
        );
        let total = sql!(Sqlite, videos::likes.total());
        assert_sql!(videos::table.select(Card::as_select());
            Sqlite => format!("SELECT `videos`.`slug`, {total} FROM `videos`"),
        );
    }
}
