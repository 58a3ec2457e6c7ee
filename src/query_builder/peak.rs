//! `last_viewed_at.raise_to(now)`: a shard keeps a new value if it is greater, or less, than the shard's own.

use std::marker::PhantomData;

use diesel::expression::{AppearsOnTable, AsExpression, Expression};
use diesel::prelude::*;
use diesel::query_builder::{AsChangeset, QueryFragment, QueryId};
use diesel::sql_types::{SingleValue, SqlType};

use crate::backend::ShardedBackend;
use crate::model::counting_update::Change;
use crate::model::{MaxColumn, Merge, MinColumn, PeakValue, ShardsColumn, TotalColumn};
use crate::query_builder::{Names, Sql, fragments, id, on, sql, walk};

/// Adds [`raise_to`](Self::raise_to) and [`lower_to`](Self::lower_to) to columns: changes for [`update`](crate::update).
pub trait PeakExpressionMethods: Column + Sized {
    /// Sets this field's total to `value` if `value` is greater. Otherwise the total stays. A field that is `NULL` has no total yet, so any
    /// value is greater.
    ///
    /// The value has the column's type and is not `NULL`: a plain value, or an SQL function such as [`now`](diesel::dsl::now). Wrap the
    /// whole change in an `Option` to leave it out.
    ///
    /// ```
    /// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, best_score -> Nullable<Integer>, } } }
    /// # use schema::videos::{self, dsl::{best_score, id, videos as all, views}};
    /// # #[derive(diesel_sharded::ShardedField)]
    /// # #[diesel(table_name = videos)]
    /// # struct Video { id: i64, #[sharded] views: i64, #[sharded(max)] best_score: Option<i32> }
    /// # fn main() -> diesel::QueryResult<()> {
    /// # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
    /// # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, views BIGINT NOT NULL, best_score INTEGER)").execute(conn)?;
    /// # diesel::insert_into(all).values((id.eq(7), views.eq(0))).execute(conn)?;
    /// # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
    /// use diesel::prelude::*;
    /// use diesel_sharded::prelude::*;
    /// use diesel_sharded::update;
    ///
    /// for score in [40, 90, 70] {
    ///     update(all.find(7)).set((views.eq(views + 1), best_score.raise_to(score))).execute(conn)?;
    /// }
    /// let row = all.find(7).select((views.total(), best_score.total())).first(conn);
    /// assert_eq!(row, Ok((3_i64, Some(90))));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// ```sql
    /// UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + $1), "best_score" =
    ///     CASE WHEN "videos"."best_score" IS NULL OR "videos"."best_score" < $2 THEN $3 ELSE "videos"."best_score" END
    /// WHERE ("videos"."id" = $4) AND "videos"."shard" = $5
    /// ```
    fn raise_to<V>(self, value: V) -> NewPeak<Self, V::Expression>
    where
        Self: MaxColumn,
        V: PlainValue<PeakValue<Self>>,
    {
        NewPeak::new(value.as_expression())
    }

    /// Sets this field's total to `value` if `value` is less. Otherwise it works like [`raise_to`](Self::raise_to).
    fn lower_to<V>(self, value: V) -> NewPeak<Self, V::Expression>
    where
        Self: MinColumn,
        V: PlainValue<PeakValue<Self>>,
    {
        NewPeak::new(value.as_expression())
    }
}

impl<C: Column> PeakExpressionMethods for C {}

/// A value that shards can be compared with. It has the field's type, is not `NULL`, and contains no column.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no value that a `#[sharded(max)]` or `#[sharded(min)]` field of type `{ST}` can be compared with",
    note = "pass a plain value of the field's type, or an SQL function without columns such as `diesel::dsl::now`: a shard has no other column \
            of its row",
    note = "`None` has no order: wrap the whole change, `value.map(|value| column.raise_to(value))`"
)]
pub trait PlainValue<ST: SqlType + SingleValue>: AsExpression<ST> {}

#[diagnostic::do_not_recommend]
impl<ST, V> PlainValue<ST> for V
where
    ST: SqlType + SingleValue,
    V: AsExpression<ST, Expression: AppearsOnTable<NoTable>>,
{
}

/// A query source without columns.
#[derive(Debug)]
pub struct NoTable;

/// A change of a `#[sharded(max)]` or `#[sharded(min)]` field; made by [`raise_to`](PeakExpressionMethods::raise_to) and
/// [`lower_to`](PeakExpressionMethods::lower_to).
#[derive(Debug, Clone, Copy, QueryId)]
#[must_use = "a change does nothing until it is part of an update"]
pub struct NewPeak<C, E> {
    value: E,
    column: PhantomData<C>,
}

impl<C, E> NewPeak<C, E> {
    pub(crate) fn new(value: E) -> Self {
        NewPeak {
            value,
            column: PhantomData,
        }
    }
}

/// Keeps the impls of [`Change`] apart.
#[derive(Debug)]
pub struct ByPeak;

impl<C: TotalColumn, E> Change<C, ByPeak> for NewPeak<C, E> {
    const COLUMN: &'static str = C::NAME;
}

impl<C: TotalColumn, E> AsChangeset for NewPeak<C, E> {
    type Target = C::Table;
    type Changeset = Self;

    fn as_changeset(self) -> Self {
        self
    }
}

fragments! {
    [C: TotalColumn<Table: QueryFragment<DB>>, E: Expression + QueryFragment<DB>,] NewPeak<C, E>;
    |self, out| {
        let table = Names::of::<C::Table>();
        let comes_after = match C::FIELD.merge {
            Merge::Min => " > ",
            Merge::Max | Merge::Sum => " < ",
        };
        sql!(out;
            id(C::NAME), " = CASE WHEN ",
            on(|dialect| dialect.refuses_nan(&C::FIELD).map(|refused| sql! { walk(&self.value), refused })),
            table.column(C::NAME), " IS NULL OR ", table.column(C::NAME), comes_after, walk(&self.value),
            " THEN ", walk(&self.value), " ELSE ", table.column(C::NAME), " END")
    };
}

impl<'b, DB: ShardedBackend> Names<'b, DB> {
    /// The greatest or the least of a base and its shards, or of the base and one shard. `lock` is the end of the query of shards.
    ///
    /// `(SELECT COALESCE(MAX(shards.name), parent.name) FROM shards WHERE … AND (parent.name IS NULL OR shards.name > parent.name))`
    pub(super) fn peak(
        self,
        field: &ShardsColumn,
        shard: Option<&'b i32>,
        lock: &str,
    ) -> impl Sql<'b, DB> {
        let base = move || self.column(&field.name);
        let value = move || self.shards_column(&field.name);
        sql! {
            "(SELECT COALESCE(", field.merge.aggregate(), "(", value(), "), ", base(), ") FROM ", self.shards_of_parent(shard),
            " AND (", base(), " IS NULL OR ", value(), field.merge.beyond(), base(), ")", lock, ")"
        }
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
    use crate::query_builder::{Clauses, CountByKey, Names, ShardedExpressionMethods};
    use crate::test_schema::players::dsl::*;
    use crate::test_schema::{assert_sql, players as table, sql};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::query_builder::IntoUpdateTarget;
    use diesel::sqlite::Sqlite;

    #[test]
    fn a_shard_keeps_the_greatest_and_the_least() {
        let changes = (
            games.eq(games + 1),
            best.raise_to(90),
            fastest.lower_to(1.5),
        )
            .as_changeset();
        macro_rules! count {
            () => {
                CountByKey(Clauses {
                    names: Names::of::<table::table>(),
                    changes: &changes,
                    filter: &players.find(7).into_update_target().where_clause,
                    insert: None,
                    shard: 3,
                })
            };
        }
        assert_sql!(count!();
            Pg => r#"UPDATE "players_shards" AS "players" SET "games" = ("players"."games" + $1), "best" = CASE WHEN "players"."best" IS NULL OR "players"."best" < $2 THEN $3 ELSE "players"."best" END, "fastest" = CASE WHEN $4 = 'NaN' THEN 'NaN' WHEN "players"."fastest" IS NULL OR "players"."fastest" > $5 THEN $6 ELSE "players"."fastest" END WHERE ("players"."id" = $7) AND "players"."shard" = $8"#,
        );
        let others = "UPDATE `players_shards` AS `players` SET `games` = (`players`.`games` + ?), `best` = CASE WHEN `players`.`best` IS NULL OR `players`.`best` < ? THEN ? ELSE `players`.`best` END, `fastest` = CASE WHEN `players`.`fastest` IS NULL OR `players`.`fastest` > ? THEN ? ELSE `players`.`fastest` END WHERE (`players`.`id` = ?) AND `players`.`shard` = ?";
        assert_sql!(count!(); Mysql => others);
        let nan = "`fastest` = CASE WHEN ? IS NULL THEN abs(-9223372036854775807 - 1) WHEN ";
        let others = others.replace("`fastest` = CASE WHEN ", nan);
        assert_sql!(count!(); Sqlite => others);
    }

    #[test]
    fn the_databases_own_time_is_a_value() {
        let changes = last_game.raise_to(diesel::dsl::now).as_changeset();
        assert_sql!(changes;
            Sqlite => "`last_game` = CASE WHEN `players`.`last_game` IS NULL OR `players`.`last_game` < CURRENT_TIMESTAMP THEN CURRENT_TIMESTAMP ELSE `players`.`last_game` END",
        );
    }

    #[test]
    fn sql_of_totals() {
        assert_sql!(last_game.total();
            Pg => r#"(SELECT COALESCE(MAX("players_shards"."last_game"), "players"."last_game") FROM "players_shards" WHERE "players_shards"."id" = "players"."id" AND ("players"."last_game" IS NULL OR "players_shards"."last_game" > "players"."last_game"))"#,
        );
        let others = "(SELECT COALESCE(MIN(`players_shards`.`fastest`), `players`.`fastest`) FROM `players_shards` WHERE `players_shards`.`id` = `players`.`id` AND (`players`.`fastest` IS NULL OR `players_shards`.`fastest` < `players`.`fastest`))";
        assert_sql!(fastest.total();
            Mysql => others,
            Sqlite => others,
        );
        let alias = diesel::alias!(table as p);
        assert_sql!(alias.field(best).total().gt(90);
            Mysql => "((SELECT COALESCE(MAX(`players_shards`.`best`), `p`.`best`) FROM `players_shards` WHERE `players_shards`.`id` = `p`.`id` AND (`p`.`best` IS NULL OR `players_shards`.`best` > `p`.`best`)) > ?)",
        );
    }

    /// The total of an integer column is a number too.
    #[test]
    fn sql_of_arithmetic() {
        let total = sql!(Pg, best.total());
        assert_sql!(best.total() + 1; Pg => format!("({total} + $1)"));
    }
}
