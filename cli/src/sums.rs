//! Numbers: sums, totals and ranges of fields, exact at any size. Also the numbers of rows and shards: up to a bound they are counted, and
//! beyond it the database estimates them, unless the user asks for exact ones.

use std::fmt;

use bigdecimal::{BigDecimal, Signed, ToPrimitive, Zero};
use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::declared_type;
use diesel_sharded::model::{ColumnType, ShardsColumn, TableName};
use serde::ser::{Error, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::connection::{AnyConnection, within};
use crate::key::as_text;
use crate::live::is_integer;
use crate::sharded::Sharded;
use crate::statement::{Row, quoted_table, sql};

/// Doubles that are not finite numbers, without a sign, as PostgreSQL and SQLite write them.
const NO_NUMBERS: [&str; 3] = ["NaN", "Infinity", "Inf"];

/// The number of bits in the lower half of an integer.
const HALF: u32 = 32;

/// A mask of the lower half.
const LOWER: u32 = u32::MAX;

impl Sharded {
    /// The sum of a field over the rows of a table, as a text for [`read`]. If no double can hold it, it is NULL on MySQL.
    ///
    /// ```sql
    /// CASE WHEN COUNT(*) = 0 THEN '0' ELSE … END
    /// -- CAST(SUM("likes") AS TEXT)
    /// -- CAST(SUM(CAST("weight" AS NUMERIC)) AS TEXT)                                         -- PostgreSQL, of doubles
    /// -- CASE WHEN SUM(ABS(`weight`) / 1e16) < 1.79e292 THEN CAST(SUM(`weight`) AS CHAR) END    -- MySQL, of doubles
    /// -- CAST(SUM(`likes` >> 32) AS TEXT) || ' ' || CAST(SUM(`likes` & 4294967295) AS TEXT)   -- SQLite, of integers
    /// ```
    pub fn sum(&self, field: &ShardsColumn, table: &str) -> String {
        let column = self.column(table, field.name());
        let sum = |summed: &str| as_text(self.dialect, &format!("SUM({summed})"));
        let sum = match (self.dialect, field.column_type()) {
            // SQLite refuses a sum beyond 64 bits. The other databases have wider sums.
            (Dialect::Sqlite, of) if is_integer(of) => {
                let high = sum(&format!("{column} >> {HALF}"));
                let low = sum(&format!("{column} & {LOWER}"));
                format!("{high} || ' ' || {low}")
            }
            // PostgreSQL refuses a sum that no double holds.
            (Dialect::Postgres, ColumnType::Double) => sum(&format!("CAST({column} AS NUMERIC)")),
            // MariaDB shows 0 for such a sum.
            (Dialect::Mysql, ColumnType::Double) => {
                let sum = sum(&column);
                format!("CASE WHEN SUM(ABS({column}) / 1e16) < 1.79e292 THEN {sum} END")
            }
            _ => sum(&column),
        };
        format!("CASE WHEN COUNT(*) = 0 THEN '0' ELSE {sum} END")
    }

    /// `CAST("videos"."likes" AS TEXT), (SELECT … FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id")`
    pub fn total(&self, field: &ShardsColumn) -> String {
        let (parent, shards) = (self.parent(), self.shards());
        let base = as_text(self.dialect, &self.column(&parent, field.name()));
        let (sum, same) = (self.sum(field, &shards), self.same_key(&shards, &parent));
        format!("{base}, (SELECT {sum} FROM {shards} WHERE {same})")
    }
}

/// The sum in a column of a row, if there is one and it is a number.
pub fn read(row: &Row, column: usize) -> QueryResult<Option<BigDecimal>> {
    let Some(text) = row.get(column) else {
        return Ok(None);
    };
    if NO_NUMBERS.contains(&text.trim_start_matches('-')) {
        return Ok(None);
    }
    let halves = text.split_once(' ');
    let halves =
        halves.and_then(|(high, low)| high.parse::<i64>().ok().zip(low.parse::<i64>().ok()));
    match halves {
        Some((high, low)) => Ok(Some(((i128::from(high) << HALF) + i128::from(low)).into())),
        None => row.parse(column).map(Some),
    }
}

/// A number of any size. JSON contains all its digits, without an exponent and without trailing zeros.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Number(pub BigDecimal);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.abs().normalized().to_plain_string();
        f.pad_integral(!self.0.is_negative(), "", &digits)
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits = RawValue::from_string(self.to_string());
        digits.map_err(S::Error::custom)?.serialize(serializer)
    }
}

/// Base and shards of a field, of one row or of all.
#[derive(Default)]
pub struct Total {
    /// `None` for NULL, for a double that is not finite, or if it was not read.
    pub base: Option<BigDecimal>,
    pub shards: Option<BigDecimal>,
}

impl Total {
    /// Reads the two columns that [`Sharded::total`] selects.
    pub fn read(row: &Row, first: usize) -> QueryResult<Self> {
        Ok(Total {
            base: read(row, first)?,
            shards: read(row, first + 1)?,
        })
    }

    /// Base and shards together, if both are numbers.
    pub fn sum(&self) -> Option<BigDecimal> {
        let both = self.base.as_ref().zip(self.shards.as_ref());
        both.map(|(base, shards)| base + shards)
    }

    /// The fraction on shards, by absolute values: at most 1.
    pub fn share(&self) -> Option<f64> {
        let shards = self.shards.as_ref()?.abs();
        if shards.is_zero() {
            return Some(0.0);
        }
        let all = &shards + self.base.as_ref()?.abs();
        Some((shards / all).to_f64().unwrap_or(1.0))
    }
}

/// Whether a column holds this number. Sums of doubles are not checked.
pub fn fits(dialect: Dialect, field: &ShardsColumn, number: &BigDecimal) -> bool {
    if field.column_type() == ColumnType::Numeric {
        let greatest = greatest_decimal(declared_type(dialect, field));
        return greatest.is_none_or(|greatest| number.abs() <= greatest);
    }
    let range = field.column_type().range();
    range.is_none_or(|(least, greatest)| {
        (BigDecimal::from(least)..=greatest.into()).contains(number)
    })
}

/// `99999999.99` of `NUMERIC(10,2)`
fn greatest_decimal(declared: &str) -> Option<BigDecimal> {
    let (_, numbers) = declared.split_once('(')?;
    let (numbers, _) = numbers.split_once(')')?;
    let (digits, scale) = numbers.split_once(',').unwrap_or((numbers, "0"));
    let digits: usize = digits.trim().parse().ok()?;
    let scale: usize = scale.trim().parse().ok()?;
    format!("{}e-{scale}", "9".repeat(digits)).parse().ok()
}

/// The greatest number of rows of a table that are read for one number.
pub const MOST: u64 = 10_000;

/// A number of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(tag = "accuracy", content = "number", rename_all = "snake_case")]
pub enum Count {
    Exact(u64),
    /// From the database's statistics.
    Estimate(u64),
    AtLeast(u64),
}

impl Count {
    pub fn is_exact(self) -> bool {
        matches!(self, Count::Exact(_))
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Count::Exact(number) => write!(f, "{number}"),
            Count::Estimate(number) => write!(f, "~{number}"),
            Count::AtLeast(number) => write!(f, ">={number}"),
        }
    }
}

/// The number of a table's rows.
pub fn rows(table: TableName<'_>, conn: &mut AnyConnection) -> QueryResult<Count> {
    let dialect = conn.dialect();
    let (count, from) = (as_text(dialect, "COUNT(*)"), quoted_table(dialect, table));
    let some = format!(
        "SELECT {count} FROM (SELECT 1 AS one FROM {from} LIMIT {}) AS some_rows",
        MOST + 1
    );
    let number = sql!(some).number(conn)?;
    if number <= MOST {
        return Ok(Count::Exact(number));
    }
    let estimate = within(table.schema(), conn, |conn| estimate(table.name(), conn))?;
    Ok(match estimate.filter(|estimate| *estimate > MOST) {
        Some(number) => Count::Estimate(number),
        None => Count::AtLeast(MOST),
    })
}

/// The statistics that the database keeps about the table, if it keeps any.
fn estimate(table: &str, conn: &mut AnyConnection) -> QueryResult<Option<u64>> {
    let dialect = conn.dialect();
    let analyzed = "SELECT name FROM sqlite_master WHERE name = 'sqlite_stat1'";
    if dialect == Dialect::Sqlite && conn.text(analyzed, &[])?.is_none() {
        return Ok(None);
    }
    let kept = conn.text(catalog!(dialect, "estimate"), &[table])?;
    Ok(kept.and_then(|number| number.parse().ok()))
}

pub struct Sizes {
    pub rows: Count,
    pub shards: Count,
    pub rows_with_shards: Count,
    /// The sums of bases and shards of each field, read by one statement.
    pub sums: Vec<Total>,
}

impl Sizes {
    /// Reads the sizes; if `exact`, from every row and shard.
    pub fn read(sharded: &Sharded, exact: bool, conn: &mut AnyConnection) -> QueryResult<Self> {
        let mut size = |table| match exact {
            true => Ok(Count::Exact(0)), // counted below
            false => rows(table, conn),
        };
        let rows = size(sharded.table())?;
        let shards = size(sharded.shards_table())?;
        if !shards.is_exact() {
            return Ok(Sizes {
                rows,
                shards,
                rows_with_shards: Count::AtLeast(sql!(select_some(sharded)).number(conn)?),
                sums: sharded.fields.iter().map(|_| Total::default()).collect(),
            });
        }
        let row = sql!(select(sharded, rows.is_exact())).row(conn)?;
        let sums = (0..sharded.fields.len()).map(|i| Total::read(&row, 3 + 2 * i));
        Ok(Sizes {
            rows: match rows.is_exact() {
                true => Count::Exact(row.parse(2)?),
                false => rows,
            },
            shards: Count::Exact(row.parse(1)?),
            rows_with_shards: Count::Exact(row.parse(0)?),
            sums: sums.collect::<QueryResult<_>>()?,
        })
    }
}

/// A query for the numbers of rows with shards, shards and rows, and for each field the sums of bases and of shards. All come from one
/// snapshot: otherwise a fold in between would change the total. Without `bases`, their sums and the number of rows are NULL.
fn select(sharded: &Sharded, bases: bool) -> String {
    let (parent, shards) = (sharded.parent(), sharded.shards());
    let number = |of: &str| as_text(sharded.dialect, &format!("(SELECT COUNT(*) FROM {of})"));
    let sum =
        |of: &str, field: &ShardsColumn| format!("(SELECT {} FROM {of})", sharded.sum(field, of));
    let of_bases = |read: String| match bases {
        true => read,
        false => "NULL".to_owned(),
    };
    let key = sharded.key_of(&shards);
    let keys = format!("(SELECT 1 AS one FROM {shards} GROUP BY {key}) AS keyed");
    let mut columns = vec![number(&keys), number(&shards), of_bases(number(&parent))];
    for field in &sharded.fields {
        columns.extend([of_bases(sum(&parent, field)), sum(&shards, field)]);
    }
    format!("SELECT {}", columns.join(", "))
}

/// A query for the number of rows with shards among some shards.
fn select_some(sharded: &Sharded) -> String {
    let (count, shards) = (as_text(sharded.dialect, "COUNT(*)"), sharded.shards());
    let [of_shards, key] = [&*shards, "some_shards"].map(|table| sharded.key_of(table));
    let some = format!("SELECT {of_shards} FROM {shards} LIMIT {MOST}");
    format!(
        "SELECT {count} FROM (SELECT 1 AS one FROM ({some}) AS some_shards GROUP BY {key}) AS keyed"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_digit_is_lost() {
        for number in [
            "0",
            "-7",
            "184467440737095516150",
            "0.25",
            "-12345678901234567890.10",
        ] {
            let json = serde_json::to_string(&Number(number.parse().unwrap())).unwrap();
            let plain = match number.contains('.') {
                true => number.trim_end_matches('0'),
                false => number,
            };
            assert_eq!(json, plain);
        }
        let large = serde_json::to_string(&Number("1e30".parse().unwrap())).unwrap();
        assert_eq!(large, format!("1{}", "0".repeat(30)));
    }

    #[test]
    fn decimals_have_as_many_digits_as_declared() {
        for (declared, greatest) in [
            ("NUMERIC(10,2)", Some("99999999.99")),
            ("decimal(5, 0)", Some("99999")),
            ("DECIMAL(3)", Some("999")),
            ("NUMERIC(2,2)", Some("0.99")),
            ("NUMERIC", None),
            ("NUMERIC(3,-2)", None),
        ] {
            let greatest = greatest.map(|text| text.parse().unwrap());
            assert_eq!(greatest_decimal(declared), greatest, "{declared}");
        }
    }
}
