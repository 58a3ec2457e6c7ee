//! Whether there is a parent.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::Integer;

use crate::backend::ShardedBackend;
use crate::model::ShardedTable;
use crate::query_builder::query_ids::query_ids;

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

query_ids!(FindParent<'a, T, W>);

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::videos::dsl::*;
    use crate::test_schema::{sql, videos as table};
    use diesel::pg::Pg;
    use diesel::query_builder::IntoUpdateTarget;

    #[test]
    fn find_parent() {
        let find = FindParent::<table::table, _> {
            filter: &videos.find(7).into_update_target().where_clause,
            table: PhantomData,
        };
        assert_eq!(
            sql!(Pg, find),
            r#"SELECT 1 FROM "videos" WHERE ("videos"."id" = $1)"#
        );
    }
}
