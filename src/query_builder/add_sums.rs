//! The changes of several callers that are combined.

use std::fmt::Debug;

use diesel::internal::derives::multiconnection::AstPassHelper;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::sql_types::BigInt;

use crate::backend::ShardedBackend;
use crate::query_builder::{bind, fragments, id, sql};

/// `"views" = ("views" + $1), "likes" = ("likes" + $2)`
///
/// Every sum is bound as a `BigInt`, because it may be negative even if the column is unsigned.
#[derive(Debug, Clone)]
pub(crate) struct AddSums(Vec<(&'static str, i64)>);

impl AddSums {
    pub(crate) fn new(fields: &'static [&'static str], sums: Vec<i64>) -> Self {
        AddSums(fields.iter().copied().zip(sums).collect())
    }
}

fragments! {
    [] AddSums, no query id [];
    |self, out| sql!(out; for sum in (&self.0, ", ") {
        id(sum.0), " = (", id(sum.0), " + ", bind(BigInt, &sum.1), ")"
    });
}

/// The values that a fragment binds, for their `Debug`; `None` if the fragment cannot be written.
pub(crate) fn shown_binds<'b, DB: ShardedBackend>(
    fragment: &'b dyn QueryFragment<DB>,
    backend: &'b DB,
) -> Option<Vec<Box<dyn Debug + 'b>>> {
    let mut binds = vec![];
    let pass = <AstPass<'_, 'b, DB> as AstPassHelper<'_, 'b, DB>>::collect_debug_binds_pass(
        &mut binds, backend,
    );
    fragment.walk_ast(pass).ok()?;
    Some(binds)
}

#[cfg(all(test, feature = "postgres_backend", feature = "mysql_backend"))]
mod tests {
    use super::*;
    use crate::test_schema::assert_sql;
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;

    #[test]
    fn each_sum_is_added_to_its_field() {
        let sums = || AddSums::new(&["views", "likes"], vec![64, -3]);
        assert_sql!(sums();
            Pg => r#""views" = ("views" + $1), "likes" = ("likes" + $2)"#,
            Mysql => "`views` = (`views` + ?), `likes` = (`likes` + ?)",
        );
        let (sums, backend) = (sums(), Pg);
        assert_eq!(
            format!("{:?}", shown_binds(&sums, &backend).unwrap()),
            "[64, -3]"
        );
    }
}
