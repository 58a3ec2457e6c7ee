//! Numbers: sums, totals and ranges of fields, exact however large they are.

use std::fmt;

use bigdecimal::{BigDecimal, ToPrimitive, Zero};
use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::declared_type;
use diesel_sharded::model::{ColumnType, ShardsColumn};
use serde::ser::{Error, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::column_type::is_integer;
use crate::key::as_text;
use crate::sharded::Sharded;
use crate::statement::Row;

/// Doubles that are none, without a sign, as PostgreSQL and SQLite write them.
const NO_NUMBERS: [&str; 3] = ["NaN", "Infinity", "Inf"];

/// The bits of the lower half of an integer.
const HALF: u32 = 32;

/// The lower half alone.
const LOWER: u32 = u32::MAX;

impl Sharded {
    /// Whether `SUM` refuses a sum that leaves 64 bits. SQLite's does; the others have wider sums.
    pub fn sums_overflow(&self, field: &ShardsColumn) -> bool {
        self.dialect == Dialect::Sqlite && is_integer(field.column_type())
    }

    /// The sum of a field over the rows of a table as a text that [`read`] takes. Where no double holds it, it is NULL on MySQL.
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
            _ if self.sums_overflow(field) => {
                let high = sum(&format!("{column} >> {HALF}"));
                let low = sum(&format!("{column} & {LOWER}"));
                format!("{high} || ' ' || {low}")
            }
            // It refuses a sum that no double holds.
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

/// The sum in a column of a row, if there is one, and it is a number.
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

/// A number of any size, which JSON holds with all its digits: without an exponent and without zeros at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Number(pub BigDecimal);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.normalized().to_plain_string();
        match f.sign_plus() && !text.starts_with('-') {
            true => write!(f, "+{text}"),
            false => f.write_str(&text),
        }
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digits = RawValue::from_string(self.to_string());
        digits.map_err(S::Error::custom)?.serialize(serializer)
    }
}

/// A field of one row, or of all.
#[derive(Default)]
pub struct Total {
    /// Nothing for a NULL, a double that is no number, or what was not read.
    pub base: Option<BigDecimal>,
    pub shards: Option<BigDecimal>,
}

impl Total {
    /// From two columns, as [`Sharded::total`] selects them.
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

    /// The part of what is counted that is on shards, whatever its sign: at most 1.
    pub fn share(&self) -> Option<f64> {
        let shards = self.shards.as_ref()?.abs();
        if shards.is_zero() {
            return Some(0.0);
        }
        let all = &shards + self.base.as_ref()?.abs();
        Some((shards / all).to_f64().unwrap_or(1.0))
    }
}

/// Nothing for a column that takes any number, or doubles, whose sums are compared nowhere.
pub fn range(dialect: Dialect, field: &ShardsColumn) -> Option<(BigDecimal, BigDecimal)> {
    let integers = |least: i128, greatest: i128| Some((least.into(), greatest.into()));
    match field.column_type() {
        ColumnType::SmallInt => integers(i16::MIN.into(), i16::MAX.into()),
        ColumnType::Integer => integers(i32::MIN.into(), i32::MAX.into()),
        ColumnType::BigInt => integers(i64::MIN.into(), i64::MAX.into()),
        ColumnType::UnsignedSmallInt => integers(0, u16::MAX.into()),
        ColumnType::UnsignedInteger => integers(0, u32::MAX.into()),
        ColumnType::UnsignedBigInt => integers(0, u64::MAX.into()),
        ColumnType::Numeric => {
            let greatest = greatest_decimal(declared_type(dialect, field))?;
            Some((-greatest.clone(), greatest))
        }
        _ => None,
    }
}

/// Whether a column holds this number.
pub fn fits(dialect: Dialect, field: &ShardsColumn, number: &BigDecimal) -> bool {
    range(dialect, field).is_none_or(|(least, greatest)| (least..=greatest).contains(number))
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
