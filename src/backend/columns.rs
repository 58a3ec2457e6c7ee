//! Columns and their values: types, ranges, and texts.

use super::dialect::Dialect;
use crate::model::{ColumnType, Merge, ShardsColumn};

impl Dialect {
    /// The type of a sharded field's column in a shards table, where a single shard of a sum may be negative.
    pub(crate) fn field_type(self, column: ColumnType, merge: Merge) -> &'static str {
        use ColumnType::{UnsignedBigInt, UnsignedInteger, UnsignedSmallInt};
        if merge != Merge::Sum {
            return self.key_type(column);
        }
        match column {
            // `signed - unsigned` is unsigned in MySQL and fails below zero; `decimal - unsigned` is not.
            UnsignedSmallInt | UnsignedInteger | UnsignedBigInt => "DECIMAL(20, 0)",
            signed => self
                .roomy_type(signed)
                .unwrap_or_else(|| self.key_type(signed)),
        }
    }

    /// The type of any other column in a shards table, whose values are the parent's.
    pub(crate) fn key_type(self, column: ColumnType) -> &'static str {
        self.own_type(column).unwrap_or(match column {
            ColumnType::TinyInt | ColumnType::SmallInt => "SMALLINT",
            ColumnType::Integer => "INTEGER",
            ColumnType::BigInt => "BIGINT",
            ColumnType::UnsignedTinyInt => "TINYINT UNSIGNED",
            ColumnType::UnsignedSmallInt => "SMALLINT UNSIGNED",
            ColumnType::UnsignedInteger => "INTEGER UNSIGNED",
            ColumnType::UnsignedBigInt => "BIGINT UNSIGNED",
            ColumnType::Float => "REAL",
            ColumnType::Double => "DOUBLE",
            ColumnType::Numeric => "NUMERIC",
            ColumnType::Text | ColumnType::Other => "TEXT",
            ColumnType::Binary => "BLOB",
            ColumnType::Uuid => "BINARY(16)",
            ColumnType::Date => "DATE",
            ColumnType::Timestamp => "TIMESTAMP",
            ColumnType::Timestamptz => "TIMESTAMPTZ",
            ColumnType::Bool => "BOOLEAN",
        })
    }

    /// Follows the column's name in a `CHECK` of a shard. The column has the type `sql_type`, or else the one that the shards table
    /// gives it by itself.
    ///
    /// MySQL and MariaDB without their strict mode cut a value to the range of its column, and then check the value that is left.
    /// The column of a small integer therefore is wider than its range. For the other types, and where `sql_type` is given, the `CHECK`
    /// stays one inside the range, because nothing else tells a cut value from a full shard. It refuses the full shard too.
    pub(crate) fn shard_check(
        self,
        merge: Merge,
        column: ColumnType,
        sql_type: Option<&str>,
    ) -> Option<String> {
        if merge != Merge::Sum {
            // A value that is kept unchanged stays in its range, but may be no number.
            let is_float = matches!(column, ColumnType::Float | ColumnType::Double);
            return is_float
                .then(|| self.range_check(ColumnType::Double))
                .flatten();
        }
        let is_roomy = self.roomy_type(column).is_some();
        let own_type = || (!is_roomy).then(|| self.field_type(column, merge));
        sql_type
            .or_else(own_type)
            .and_then(|sql_type| self.check_of_cut_values(sql_type))
            .or_else(|| self.range_check(column))
    }

    /// The same for a column that cuts no value in this range.
    ///
    /// For MySQL and MariaDB `0 - (-9223372036854775808)` is the smallest integer. The range of a `BIGINT` leaves that integer out: on
    /// SQLite it equals the float that a downward overflow yields.
    fn range_check(self, column: ColumnType) -> Option<String> {
        use ColumnType::{BigInt, Double, Integer, Numeric, SmallInt};
        match column {
            SmallInt | Integer | BigInt if self.keeps_any_integer() => {
                let (least, greatest) = column.integers();
                Some(format!(" BETWEEN {least} AND {greatest}"))
            }
            Numeric if !self.numerics_are_doubles() => None,
            Double | Numeric => self.double_check().map(str::to_owned),
            _ => None,
        }
    }

    /// Whether sums of this type round, so that a comparison has to allow for it.
    pub(crate) fn rounds_sums(self, column: ColumnType) -> bool {
        match column {
            ColumnType::Double => true,
            ColumnType::Numeric => self.numerics_are_doubles(),
            _ => false,
        }
    }

    /// See [`nan_refusal`](Dialect::nan_refusal).
    pub(crate) fn refuses_nan(self, field: &ShardsColumn) -> Option<&'static str> {
        let is_float = matches!(field.column_type, ColumnType::Float | ColumnType::Double);
        is_float.then(|| self.nan_refusal(field)).flatten()
    }

    /// Whether values of this type are read as doubles.
    pub(crate) fn reads_doubles(self, column: ColumnType) -> bool {
        column == ColumnType::Float || self.rounds_sums(column)
    }

    /// The SQL before and after a value of a field of this type that reads it as a text, if it is no double.
    pub(crate) fn value_as_text(self, column: ColumnType) -> (&'static str, &'static str) {
        match column {
            ColumnType::Timestamp | ColumnType::Timestamptz => self.time_as_text(),
            _ => self.as_text(),
        }
    }

    /// The SQL before and after a column of a key that reads it as a text, bytes in hexadecimal.
    #[doc(hidden)]
    pub fn key_as_text(self, column: ColumnType) -> (&'static str, &'static str) {
        match column {
            ColumnType::Binary => self.bytes_as_text(),
            _ => self.as_text(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::TotalForm;

    #[test]
    fn ranges_are_those_of_the_types() {
        assert_eq!(ColumnType::SmallInt.integers(), (-32768, 32767));
        let integers = (i32::MIN.into(), i32::MAX.into());
        assert_eq!(ColumnType::Integer.integers(), integers);
        assert_eq!(ColumnType::BigInt.integers(), (-i64::MAX, i64::MAX));
        assert_eq!(ColumnType::UnsignedSmallInt.integers(), (0, 65535));
        assert_eq!(ColumnType::UnsignedInteger.integers(), (0, 4_294_967_295));
        assert_eq!(ColumnType::UnsignedBigInt.integers(), (0, i64::MAX));
    }

    /// Where the database would keep a value that no later increment repairs, and where it would not.
    #[test]
    fn a_value_that_a_database_does_not_refuse_is_checked() {
        use ColumnType::*;
        for column in [SmallInt, Integer, BigInt, Double, Numeric] {
            let checks = |dialect: Dialect| dialect.range_check(column).is_some();
            assert!(checks(Dialect::Sqlite));
            assert_eq!(checks(Dialect::Postgres), column == Double);
            let checks_cut = Dialect::Mysql
                .shard_check(Merge::Sum, column, None)
                .is_some();
            assert_eq!(checks_cut, column != Double);
        }
    }

    #[test]
    fn a_value_that_mysql_cuts_is_checked_one_inside_its_range() {
        use ColumnType::*;
        let check = |column, sql_type| Dialect::Mysql.shard_check(Merge::Sum, column, sql_type);
        let whole = "9".repeat(45);
        let part = "9".repeat(19);
        for (column, sql_type, range) in [
            (SmallInt, None, "-32768 AND 32767"),
            (Integer, None, "-2147483648 AND 2147483647"),
            (BigInt, None, "-9223372036854775807 AND 9223372036854775807"),
            (UnsignedBigInt, None, &*format!("-{part}8 AND {part}8")),
            (
                Numeric,
                None,
                &*format!("-{whole}.{part}8 AND {whole}.{part}8"),
            ),
            (Numeric, Some("decimal(9, 2)"), "-9999999.98 AND 9999999.98"),
            (Numeric, Some("DECIMAL (5)"), "-99998 AND 99998"),
            (Numeric, Some("NUMERIC"), "-9999999998 AND 9999999998"),
            (Numeric, Some("DECIMAL(2,2)"), "-0.98 AND 0.98"),
            (Integer, Some("MEDIUMINT"), "-8388607 AND 8388606"),
            (Integer, Some("TINYINT(3) UNSIGNED"), "0 AND 254"),
        ] {
            let range = format!(" BETWEEN {range}");
            assert_eq!(check(column, sql_type).as_deref(), Some(&*range));
        }
        assert_eq!(check(Double, None), None);
        assert_eq!(check(Numeric, Some("DECIMAL(x)")), None);
        assert_eq!(
            Dialect::Postgres.shard_check(Merge::Sum, Numeric, Some("DECIMAL(5)")),
            None
        );
    }

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
