//! Values that are written into a trigger.

use diesel::expression::{
    AppearsOnTable, Expression, SelectableExpression, TypedExpressionType, ValidGrouping,
    is_aggregate,
};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::result::Error as DieselError;
use diesel::sql_types::{self, SqlType};

use crate::backend::{Dialect, ShardedBackend};
use crate::query_builder::no_query_id;

/// A value that stands in the SQL itself, quoted as the database needs it, instead of being bound: a trigger holds no binds.
///
/// ```
/// # diesel::table! { comments (id) { id -> BigInt, status -> Text, } }
/// # use diesel::prelude::*;
/// use diesel_sharded::counter_cache::literal;
///
/// let published = comments::status.eq(literal("published"));
/// # let sql = diesel::debug_query::<diesel::sqlite::Sqlite, _>(&published).to_string();
/// # assert_eq!(sql, "(`comments`.`status` = 'published') -- binds: []");
/// ```
///
/// ```sql
/// "comments"."status" = 'published'
/// ```
///
/// It may be a `bool`, an `i16`, `i32` or `i64` of the column's own width, or a text. For a nullable column write
/// `literal(2).nullable()`. Other types go through [`diesel::dsl::sql`].
pub fn literal<V: LiteralValue>(value: V) -> Literal<V> {
    Literal(value)
}

/// A value that stands in the SQL itself; made by [`literal`].
#[derive(Debug, Clone, Copy)]
#[must_use = "an expression does nothing until it is part of a condition"]
pub struct Literal<V>(V);

/// A value that [`literal`] can write.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be written as a literal",
    note = "a literal is a `bool`, an `i16`, `i32` or `i64`, a `&str` or a `String`; write others by `diesel::dsl::sql`"
)]
pub trait LiteralValue {
    /// Its type in SQL.
    type SqlType: SqlType + TypedExpressionType;

    /// Its text.
    #[doc(hidden)]
    fn write(&self, dialect: Dialect) -> QueryResult<String>;
}

impl LiteralValue for bool {
    type SqlType = sql_types::Bool;

    fn write(&self, _: Dialect) -> QueryResult<String> {
        Ok(if *self { "TRUE" } else { "FALSE" }.to_owned())
    }
}

macro_rules! integers {
    ($($value:ty => $sql_type:ident;)*) => {$(
        impl LiteralValue for $value {
            type SqlType = sql_types::$sql_type;

            /// In parentheses, since two minus signs begin a comment.
            fn write(&self, _: Dialect) -> QueryResult<String> {
                Ok(match *self {
                    0.. => self.to_string(),
                    _ => format!("({self})"),
                })
            }
        }
    )*};
}

integers! {
    i16 => SmallInt;
    i32 => Integer;
    i64 => BigInt;
}

impl LiteralValue for &str {
    type SqlType = sql_types::Text;

    fn write(&self, dialect: Dialect) -> QueryResult<String> {
        if self.contains('\0') {
            let message = "a text in a trigger cannot contain the character zero";
            return Err(DieselError::QueryBuilderError(message.into()));
        }
        Ok(crate::query_builder::literal(dialect, self))
    }
}

impl LiteralValue for String {
    type SqlType = sql_types::Text;

    fn write(&self, dialect: Dialect) -> QueryResult<String> {
        self.as_str().write(dialect)
    }
}

impl<V: LiteralValue> Expression for Literal<V> {
    type SqlType = V::SqlType;
}

impl<V: LiteralValue, QS> SelectableExpression<QS> for Literal<V> {}

impl<V: LiteralValue, QS> AppearsOnTable<QS> for Literal<V> {}

impl<V, G> ValidGrouping<G> for Literal<V> {
    type IsAggregate = is_aggregate::Never;
}

impl<V, DB> QueryFragment<DB> for Literal<V>
where
    V: LiteralValue,
    DB: ShardedBackend,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared(); // a text of its own for each value
        let text = self.0.write(out.backend().dialect())?;
        out.push_sql(&text);
        Ok(())
    }
}

no_query_id!([V] Literal<V>);

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::sql;
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::sqlite::Sqlite;

    #[test]
    fn literals_are_quoted() {
        assert_eq!(sql!(Pg, literal(r"it's \'")), r"E'it''s \\'''");
        assert_eq!(sql!(Mysql, literal("a\\")), "_utf8mb4 x'615C'");
        assert_eq!(sql!(Sqlite, literal("a'".to_owned())), "'a'''");
        assert_eq!(sql!(Pg, literal(true)), "TRUE");
        assert_eq!(sql!(Mysql, literal(-5)), "(-5)");
        assert_eq!(sql!(Sqlite, literal(i64::MIN)), "(-9223372036854775808)");
        assert_eq!(sql!(Pg, literal(7_i16)), "7");
    }

    #[test]
    fn a_text_with_a_zero_is_refused() {
        assert!("a\0b".write(Dialect::Postgres).is_err());
    }
}
