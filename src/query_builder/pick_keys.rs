//! The keys of the parents that a filter matches.

use std::marker::PhantomData;

use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};

use crate::backend::ShardedBackend;
use crate::model::ShardedTable;
use crate::query_builder::query_ids::query_ids;
use crate::query_builder::{Names, Sql};

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
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        Names::of::<T>().select_keys(self.filter).push(out)
    }
}

impl<T: Table, W> Query for PickKeys<'_, T, W> {
    type SqlType = <T::PrimaryKey as Expression>::SqlType;
}

query_ids!(PickKeys<'a, T, W>);

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::{downloads, sql};
    use diesel::pg::Pg;
    use diesel::query_builder::IntoUpdateTarget;

    #[test]
    fn pick_keys() {
        let pick = PickKeys::<downloads::table, _> {
            filter: &downloads::table
                .filter(downloads::day.eq("x"))
                .into_update_target()
                .where_clause,
            table: PhantomData,
        };
        assert_eq!(
            sql!(Pg, pick),
            r#"SELECT "downloads"."version", CAST("downloads"."day" AS TEXT) FROM "downloads" WHERE ("downloads"."day" = $1) ORDER BY "downloads"."version", "downloads"."day""#
        );
    }
}
