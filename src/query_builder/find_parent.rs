//! Whether there is a parent.

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment};
use diesel::sql_types::Integer;

use crate::backend::ShardedBackend;
use crate::query_builder::{Names, no_query_id, sql};

/// Finds out whether there is a parent, without locking anything.
///
/// ```sql
/// SELECT 1 FROM "videos" WHERE ("videos"."id" = $1)
/// ```
pub(crate) struct FindParent<'a, DB: Backend> {
    pub(crate) names: Names<'a, DB>,
    pub(crate) filter: &'a dyn QueryFragment<DB>,
}

impl<DB: ShardedBackend> QueryFragment<DB> for FindParent<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        sql!(out; "SELECT 1 FROM ", self.names.filtered(self.filter))
    }
}

impl<DB: Backend> Query for FindParent<'_, DB> {
    type SqlType = Integer;
}

no_query_id!(['a, DB: Backend] FindParent<'a, DB>);

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
        let find = FindParent {
            names: Names::of::<table::table>(),
            filter: &videos.find(7).into_update_target().where_clause,
        };
        assert_eq!(
            sql!(Pg, find),
            r#"SELECT 1 FROM "videos" WHERE ("videos"."id" = $1)"#
        );
    }
}
