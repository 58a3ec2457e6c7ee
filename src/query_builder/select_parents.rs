//! Columns of the parents that a filter matches.

use std::marker::PhantomData;

use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};

use crate::backend::ShardedBackend;
use crate::model::ShardedTable;
use crate::query_builder::query_ids::query_ids;
use crate::query_builder::{sql, walk};

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
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        sql!(out; "SELECT ", walk(&self.selection), " FROM ", walk(T::TABLE), walk(self.filter))
    }
}

impl<T, W, S: Expression> Query for SelectParents<'_, T, W, S> {
    type SqlType = S::SqlType;
}

query_ids!(SelectParents<'a, T, W, S>);

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::query_builder::KeysAre;
    use crate::test_schema::videos::dsl::id;
    use crate::test_schema::{sql, videos as table};
    use diesel::pg::Pg;

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
}
