//! Sums of fields as numbers in text, exact however large they are.

use bigdecimal::{BigDecimal, Zero};
use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::DescribedTable;
use diesel_sharded::model::{ColumnType, ShardsColumn};
use diesel_sharded::operation::Amount;

use crate::key::as_text;
use crate::sharded::is_integer;
use crate::statement::{Row, Statement};

/// Doubles that are none, without a sign, as PostgreSQL and SQLite write them.
const NO_NUMBERS: [&str; 3] = ["NaN", "Infinity", "Inf"];

/// The bits of the lower half of an integer.
pub const HALF: u32 = 32;

/// The lower half alone.
pub const LOWER: u32 = u32::MAX;

/// Whether `SUM` refuses a sum that leaves 64 bits. SQLite's does; the others have wider sums.
pub fn by_halves(dialect: Dialect, field: &ShardsColumn) -> bool {
    dialect == Dialect::Sqlite && is_integer(field.column_type())
}

/// The sum of `column` as a text that [`read`] takes. Where no double holds it, it is NULL on MySQL.
///
/// ```sql
/// CASE WHEN COUNT(*) = 0 THEN '0' ELSE … END
/// -- CAST(SUM("likes") AS TEXT)
/// -- CAST(SUM(CAST("weight" AS NUMERIC)) AS TEXT)                                         -- PostgreSQL, of doubles
/// -- CASE WHEN SUM(ABS(`weight`) / 1e16) < 1.79e292 THEN CAST(SUM(`weight`) AS CHAR) END    -- MySQL, of doubles
/// -- CAST(SUM(`likes` >> 32) AS TEXT) || ' ' || CAST(SUM(`likes` & 4294967295) AS TEXT)   -- SQLite, of integers
/// ```
pub fn select(
    statement: Statement,
    dialect: Dialect,
    field: &ShardsColumn,
    column: impl Fn(Statement) -> Statement,
) -> Statement {
    let sum = |statement: Statement, before: &str, behind: &str| {
        let statement = column(statement.sql("CAST(SUM(").sql(before));
        statement.sql(behind).sql(")").sql(as_text(dialect))
    };
    let statement = statement.sql("CASE WHEN COUNT(*) = 0 THEN '0' ELSE ");
    let statement = match (dialect, field.column_type()) {
        _ if by_halves(dialect, field) => {
            let high = sum(statement, "", &format!(" >> {HALF}"));
            sum(high.sql(" || ' ' || "), "", &format!(" & {LOWER}"))
        }
        // It refuses a sum that no double holds.
        (Dialect::Postgres, ColumnType::Double) => sum(statement, "CAST(", " AS NUMERIC)"),
        // MariaDB shows 0 for such a sum.
        (Dialect::Mysql, ColumnType::Double) => {
            let statement = column(statement.sql("CASE WHEN SUM(ABS("));
            sum(statement.sql(") / 1e16) < 1.79e292 THEN "), "", "").sql(" END")
        }
        _ => sum(statement, "", ""),
    };
    statement.sql(" END")
}

/// The sum in a column of a row, if there is one, and it is a number.
pub fn read(row: &Row, column: usize) -> QueryResult<Option<BigDecimal>> {
    let Some(text) = row.get(column) else {
        return Ok(None);
    };
    if NO_NUMBERS.contains(&text.trim_start_matches('-')) {
        return Ok(None);
    }
    let Some((high, low)) = text.split_once(' ') else {
        return row.parse(column).map(Some);
    };
    let halves: Option<(i64, i64)> = high.parse().ok().zip(low.parse().ok());
    let Some((high, low)) = halves else {
        return row.parse(column).map(Some); // its error
    };
    let sum = (i128::from(high) << HALF) + i128::from(low);
    Ok(Some(sum.into()))
}

/// A sum as a decimal.
pub fn as_decimal(amount: &Amount) -> QueryResult<BigDecimal> {
    let text = amount.to_string();
    text.parse().map_err(|_| {
        let message = format!("`{text}` is no number");
        diesel::result::Error::DeserializationError(message.into())
    })
}

/// `: views +5, likes -1`
pub fn moved(sharded: &DescribedTable, amounts: &[&BigDecimal]) -> String {
    let fields = sharded.fields().iter().zip(amounts);
    let moved: Vec<_> = fields
        .filter(|(_, amount)| !amount.is_zero())
        .map(|(field, amount)| format!("{} {:+}", field.name(), Plain(amount)))
        .collect();
    match moved.is_empty() {
        true => String::new(),
        false => format!(" ({})", moved.join(", ")),
    }
}

/// A number without an exponent and without zeros at its end.
pub struct Plain<'a>(pub &'a BigDecimal);

impl std::fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = self.0.normalized().to_plain_string();
        match f.sign_plus() && !text.starts_with('-') {
            true => write!(f, "+{text}"),
            false => f.write_str(&text),
        }
    }
}
