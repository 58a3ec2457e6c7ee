//! Values that are written into a trigger.

use std::marker::PhantomData;

use diesel::expression::{
    AppearsOnTable, AsExpression, Expression, SelectableExpression, TypedExpressionType,
    ValidGrouping, is_aggregate,
};
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel::sql_types::SqlType;

use crate::backend::Dialect;
use crate::query_builder::{fragments, sql};

/// A value that is part of the SQL itself, quoted as the database needs it, instead of being bound: a trigger holds no binds.
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
/// It may be a `bool`, an `i16`, `i32` or `i64` of the column's own width, or a text. The column may be nullable, without a `.nullable()` of
/// the value. Other types go through [`diesel::dsl::sql`].
pub fn literal<V, ST>(value: V) -> Literal<V, ST>
where
    V: LiteralValue + AsExpression<ST>,
    ST: SqlType + TypedExpressionType,
{
    Literal {
        value,
        sql_type: PhantomData,
    }
}

/// A value that is part of the SQL itself; made by [`literal`]. Its type `ST` is that of the expression that it is compared with.
#[derive(Debug, Clone, Copy)]
#[must_use = "an expression does nothing until it is part of a condition"]
pub struct Literal<V, ST> {
    value: V,
    sql_type: PhantomData<ST>,
}

/// A value that [`literal`] can write.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be written as a literal",
    note = "a literal is a `bool`, an `i16`, `i32` or `i64`, a `&str` or a `String`; write others by `diesel::dsl::sql`"
)]
pub trait LiteralValue {
    /// Its text.
    #[doc(hidden)]
    fn write(&self, dialect: Dialect) -> QueryResult<String>;
}

macro_rules! literals {
    ($($value:ty, $this:ident, $dialect:ident => $text:expr;)+) => {$(
        impl LiteralValue for $value {
            fn write(&self, $dialect: Dialect) -> QueryResult<String> {
                let $this = self;
                $text
            }
        }
    )+};
}

literals! {
    bool, is, _dialect => Ok(if *is { "TRUE" } else { "FALSE" }.to_owned());
    i16, number, _dialect => Ok(integer((*number).into()));
    i32, number, _dialect => Ok(integer((*number).into()));
    i64, number, _dialect => Ok(integer(*number));
    &str, text, dialect => quoted(text, dialect);
    String, text, dialect => quoted(text, dialect);
}

/// In parentheses if it is negative, since two minus signs begin a comment.
fn integer(number: i64) -> String {
    match number {
        0.. => number.to_string(),
        _ => format!("({number})"),
    }
}

fn quoted(text: &str, dialect: Dialect) -> QueryResult<String> {
    if text.contains('\0') {
        let message = "a text in a trigger cannot contain the character zero";
        return Err(DieselError::QueryBuilderError(message.into()));
    }
    Ok(crate::backend::literal(dialect, text))
}

impl<V, ST: SqlType + TypedExpressionType> Expression for Literal<V, ST> {
    type SqlType = ST;
}

impl<V, ST, QS> SelectableExpression<QS> for Literal<V, ST> where Self: AppearsOnTable<QS> {}

impl<V, ST, QS> AppearsOnTable<QS> for Literal<V, ST> where Self: Expression {}

impl<V, ST, G> ValidGrouping<G> for Literal<V, ST> {
    type IsAggregate = is_aggregate::Never;
}

fragments! {
    [V: LiteralValue, ST,] Literal<V, ST>, no query id [V, ST];
    |self, mut out| {
        out.unsafe_to_cache_prepared(); // a text of its own for each value
        let text = self.value.write(out.backend().dialect())?;
        sql!(out; text.as_str())
    };
}

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
    use diesel::sql_types::{BigInt, Bool, Integer, SmallInt, Text};
    use diesel::sqlite::Sqlite;

    #[test]
    fn literals_are_quoted() {
        assert_eq!(sql!(Pg, literal::<_, Text>(r"it's \'")), r"E'it''s \\'''");
        assert_eq!(sql!(Mysql, literal::<_, Text>("a\\")), "_utf8mb4 x'615C'");
        assert_eq!(sql!(Sqlite, literal::<_, Text>("a'".to_owned())), "'a'''");
        assert_eq!(sql!(Pg, literal::<_, Bool>(true)), "TRUE");
        assert_eq!(sql!(Mysql, literal::<_, Integer>(-5)), "(-5)");
        assert_eq!(
            sql!(Sqlite, literal::<_, BigInt>(i64::MIN)),
            "(-9223372036854775808)"
        );
        assert_eq!(sql!(Pg, literal::<_, SmallInt>(7_i16)), "7");
    }

    #[test]
    fn a_text_with_a_zero_is_refused() {
        assert!("a\0b".write(Dialect::Postgres).is_err());
    }
}
