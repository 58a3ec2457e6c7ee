//! The changes of several callers that are combined.

use std::fmt::Debug;

use diesel::internal::derives::multiconnection::AstPassHelper;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::QueryResult;
#[cfg(feature = "numeric")]
use diesel::sql_types::Numeric;
use diesel::sql_types::{BigInt, Double};

use crate::backend::ShardedBackend;
use crate::model::Amount;
use crate::query_builder::{Sql, bind, fragments, id, sql};

/// `"views" = ("views" + $1), "likes" = ("likes" + $2)`
///
/// A sum of integers is bound as a `BigInt`, because it may be negative even if the column is unsigned.
#[derive(Debug, Clone)]
pub(crate) struct AddSums(Vec<(&'static str, Addend)>);

/// What is added to a field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Addend {
    Integer(i64),
    Double(f64),
    #[cfg(feature = "numeric")]
    Numeric(bigdecimal::BigDecimal),
}

impl Addend {
    /// `None` if no statement can add the amount.
    pub(crate) fn of(amount: Amount) -> Option<Self> {
        match amount {
            Amount::Integer(n) => n.try_into().ok().map(Addend::Integer),
            Amount::Double(n) => n.is_finite().then_some(Addend::Double(n)),
            #[cfg(feature = "numeric")]
            Amount::Numeric(n) => Some(Addend::Numeric(n)),
        }
    }
}

impl<'b, DB: ShardedBackend> Sql<'b, DB> for &'b Addend {
    fn push(self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        match self {
            Addend::Integer(n) => bind(BigInt, n).push(out),
            Addend::Double(n) => bind(Double, n).push(out),
            #[cfg(feature = "numeric")]
            Addend::Numeric(n) => bind(Numeric, n).push(out),
        }
    }
}

impl AddSums {
    pub(crate) fn new(fields: &'static [&'static str], sums: Vec<Addend>) -> Self {
        AddSums(fields.iter().copied().zip(sums).collect())
    }
}

fragments! {
    [] AddSums, no query id [];
    |self, out| sql!(out; for (field, n) in (&self.0, ", ") {
        id(field), " = (", id(field), " + ", n, ")"
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
        let sums = || {
            AddSums::new(
                &["views", "likes"],
                vec![Addend::Integer(64), Addend::Double(-0.5)],
            )
        };
        assert_sql!(sums();
            Pg => r#""views" = ("views" + $1), "likes" = ("likes" + $2)"#,
            Mysql => "`views` = (`views` + ?), `likes` = (`likes` + ?)",
        );
        let (sums, backend) = (sums(), Pg);
        assert_eq!(
            format!("{:?}", shown_binds(&sums, &backend).unwrap()),
            "[64, -0.5]"
        );
    }
}
