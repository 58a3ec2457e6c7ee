//! A total in the selection of a model that reads totals.

use diesel::expression::{AppearsOnTable, Expression, SelectableExpression, ValidGrouping};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::sql_types::SqlType;

use super::total::{ShardedExpressionMethods, Total};
use crate::backend::ShardedBackend;
use crate::model::{TotalColumn, TotalOf};

/// The [total](Total) of a sharded field, of an SQL type that no column has. `#[derive(ShardedSelectable)]` selects it.
#[derive(Debug, Clone, Copy)]
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

impl<C: QueryId> QueryId for TotalInRow<C> {
    type QueryId = TotalInRow<C::QueryId>;
    const HAS_STATIC_QUERY_ID: bool = C::HAS_STATIC_QUERY_ID;
}

impl<C, DB> QueryFragment<DB> for TotalInRow<C>
where
    Total<C>: QueryFragment<DB>,
    DB: ShardedBackend,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.0.walk_ast(out)
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
    use crate::test_schema::{sql, videos};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::sqlite::Sqlite;

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
        assert_eq!(
            sql!(Pg, videos::table.select(Card::as_select())),
            r#"SELECT "videos"."slug", CAST(("videos"."likes" + (SELECT COALESCE(SUM("videos_shards"."likes"), 0) FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id")) AS integer) FROM "videos""#
        );
        assert_eq!(
            sql!(Mysql, videos::table.select(Card::as_select())),
            "SELECT `videos`.`slug`, (`videos`.`likes` + (SELECT COALESCE(SUM(`videos_shards`.`likes`), 0) FROM `videos_shards` WHERE `videos_shards`.`id` = `videos`.`id`)) FROM `videos`"
        );
        let total = sql!(Sqlite, videos::likes.total());
        assert_eq!(
            sql!(Sqlite, videos::table.select(Card::as_select())),
            format!("SELECT `videos`.`slug`, {total} FROM `videos`")
        );
    }
}
