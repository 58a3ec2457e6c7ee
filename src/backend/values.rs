//! Numbers, texts and times in SQL.

use crate::backend::Dialect;
use crate::model::{ColumnType, Merge, ShardsColumn};

/// How a total is converted back to its column's type, so that no overflow passes unseen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TotalForm {
    /// `(base + sum)`: the client checks the range as it reads.
    Plain,
    /// `CAST(base + sum AS type)`, which fails out of range.
    Cast(&'static str),
    /// SQLite makes a float of an integer that grew too large, and Diesel cuts it to the column's width. Where this
    /// condition on `total` does not hold, `abs` of the smallest integer raises "integer overflow": no other function
    /// of SQLite's raises an error.
    Checked(&'static str),
}

impl Dialect {
    /// How a total is written; see [`Total`](crate::Total) for the whole.
    pub(crate) fn total_form(self, column: ColumnType) -> TotalForm {
        use ColumnType::{BigInt, Double, Integer, Numeric, SmallInt};
        match (self, column) {
            // SUM widens: smallint and integer to bigint, bigint to numeric.
            (Dialect::Postgres, SmallInt) => TotalForm::Cast("smallint"),
            (Dialect::Postgres, Integer) => TotalForm::Cast("integer"),
            (Dialect::Postgres, BigInt) => TotalForm::Cast("bigint"),
            (Dialect::Sqlite, SmallInt) => TotalForm::Checked("total BETWEEN -32768 AND 32767"),
            (Dialect::Sqlite, Integer) => {
                TotalForm::Checked("total BETWEEN -2147483648 AND 2147483647")
            }
            (Dialect::Sqlite, BigInt) => TotalForm::Checked("typeof(total) = 'integer'"),
            (Dialect::Sqlite, Double | Numeric) => TotalForm::Checked(
                "total BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308",
            ),
            // MySQL sums integers as DECIMAL, which Diesel reads into an integer and refuses when it does not fit.
            _ => TotalForm::Plain,
        }
    }

    /// Follows `CASE WHEN` and a value that a shard of this field is compared with, where a NaN would be taken for none: SQLite binds it as
    /// `NULL`, and on PostgreSQL it is greater than any number.
    pub(crate) fn refuses_nan(self, field: &ShardsColumn) -> Option<&'static str> {
        if !matches!(field.column_type, ColumnType::Float | ColumnType::Double) {
            return None;
        }
        match (self, field.merge) {
            (Dialect::Sqlite, _) => Some(" IS NULL THEN abs(-9223372036854775807 - 1) WHEN "),
            (Dialect::Postgres, Merge::Min) => Some(" = 'NaN' THEN 'NaN' WHEN "),
            _ => None,
        }
    }

    /// Whether sums of this type round, so that a comparison has to allow for it.
    pub(crate) fn rounds_sums(self, column: ColumnType) -> bool {
        match column {
            ColumnType::Double => true,
            ColumnType::Numeric => self == Dialect::Sqlite, // which keeps doubles
            _ => false,
        }
    }

    /// The SQL before and behind a number of this type that reads it as a text.
    /// SQLite's cast writes a double in 15 digits, too few to read every double back.
    pub(crate) fn number_as_text(self, column: ColumnType) -> (&'static str, &'static str) {
        match (self, column) {
            (Dialect::Mysql, _) => ("CAST(", " AS CHAR)"),
            (Dialect::Sqlite, ColumnType::Double | ColumnType::Numeric) => {
                ("printf('%!.17g', ", ")")
            }
            _ => ("CAST(", " AS TEXT)"),
        }
    }

    /// The SQL before and behind a value of this type that reads it as a text, `NULL` for one that is not there. Texts of equal values
    /// are equal, up to the form of a number.
    pub(crate) fn nullable_as_text(self, column: ColumnType) -> (&'static str, &'static str) {
        match (self, column) {
            (Dialect::Postgres, _) => ("COALESCE(CAST(", " AS TEXT), 'NULL')"),
            // As many digits of the fraction for each, and all digits of a float.
            (Dialect::Mysql, ColumnType::Timestamp | ColumnType::Timestamptz) => {
                ("COALESCE(CAST(CAST(", " AS DATETIME(6)) AS CHAR), 'NULL')")
            }
            (Dialect::Mysql, ColumnType::Float) => ("COALESCE(CAST(0e0 + ", " AS CHAR), 'NULL')"),
            (Dialect::Mysql, _) => ("COALESCE(CAST(", " AS CHAR), 'NULL')"),
            (Dialect::Sqlite, _) => ("quote(", ")"),
        }
    }

    /// The SQL before and behind a column of a key that reads it as a text, bytes in hexadecimal.
    pub(crate) fn key_as_text(self, column: ColumnType) -> (&'static str, &'static str) {
        match (self, column) {
            (Dialect::Postgres, ColumnType::Binary) => ("encode(", ", 'hex')"),
            (_, ColumnType::Binary) => ("HEX(", ")"),
            (Dialect::Mysql, _) => ("CAST(", " AS CHAR)"),
            _ => ("CAST(", " AS TEXT)"),
        }
    }

    /// The type of a `CAST` to text.
    pub(crate) fn text_type(self) -> &'static str {
        match self {
            Dialect::Mysql => "CHAR",
            _ => "TEXT",
        }
    }

    /// The SQL before several texts, between two of them and behind them that joins them with a space in between.
    pub(crate) fn joined_texts(self) -> [&'static str; 3] {
        match self {
            Dialect::Mysql => ["CONCAT(", ", ' ', ", ")"],
            _ => ["", " || ' ' || ", ""],
        }
    }

    /// Whether a `CHAR(n)` is read with spaces up to its length, and then differs from the same text without them.
    pub(crate) fn pads_text(self) -> bool {
        self == Dialect::Postgres
    }

    /// The time at which a statement begins by the database's own clock, which all processes share, as a `BIGINT`.
    pub(crate) fn seconds_since_1970(self) -> &'static str {
        match self {
            Dialect::Postgres => "EXTRACT(EPOCH FROM statement_timestamp())::BIGINT",
            Dialect::Mysql => "CAST(UNIX_TIMESTAMP() AS SIGNED)",
            Dialect::Sqlite => "CAST(strftime('%s', 'now') AS INTEGER)",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_total_out_of_range_fails_in_the_database_or_in_the_client() {
        use ColumnType::{BigInt, Double, Integer, Numeric, SmallInt};
        for column in [SmallInt, Integer, BigInt, Double, Numeric] {
            let form = |dialect: Dialect| dialect.total_form(column);
            assert!(matches!(form(Dialect::Sqlite), TotalForm::Checked(_)));
            let casts = matches!(form(Dialect::Postgres), TotalForm::Cast(_));
            assert_eq!(casts, matches!(column, SmallInt | Integer | BigInt));
            assert_eq!(form(Dialect::Mysql), TotalForm::Plain);
        }
    }

    /// Doubles round whatever they add up, and SQLite's numbers are doubles.
    #[test]
    fn sums_of_doubles_round() {
        use ColumnType::{BigInt, Double, Integer, Numeric, SmallInt};
        for column in [SmallInt, Integer, BigInt, Double, Numeric] {
            let rounds = |dialect: Dialect| dialect.rounds_sums(column);
            assert_eq!(rounds(Dialect::Sqlite), matches!(column, Double | Numeric));
            assert_eq!(rounds(Dialect::Postgres), column == Double);
            assert_eq!(rounds(Dialect::Mysql), column == Double);
        }
    }
}
