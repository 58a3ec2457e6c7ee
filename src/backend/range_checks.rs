//! The `CHECK` of a shard that overflows, where the database has no error for that.

use std::borrow::Cow;

use crate::backend::Dialect;
use crate::model::{ColumnType, Merge};

impl Dialect {
    /// Follows the column's name in a `CHECK` of a shard. The column has the type `sql_type`, or else the one that the shards table
    /// gives it by itself.
    ///
    /// MySQL and MariaDB without their strict mode cut a value to the range of its column, and then check the value that is left.
    /// The column of a small integer therefore is wider than its range. For the other types, and where `sql_type` is given, the
    /// `CHECK` stays one inside the range: nothing else tells such a value from a full shard. It refuses the full shard too.
    pub(crate) fn shard_check(
        self,
        merge: Merge,
        column: ColumnType,
        sql_type: Option<&str>,
    ) -> Option<Cow<'static, str>> {
        if merge != Merge::Sum {
            // A value that is kept as it came leaves no range, but may be no number.
            let is_float = matches!(column, ColumnType::Float | ColumnType::Double);
            let check = is_float.then(|| self.range_check(ColumnType::Double));
            return check.flatten().map(Cow::Borrowed);
        }
        let is_wider = matches!(column, ColumnType::SmallInt | ColumnType::Integer);
        let inside = match sql_type {
            _ if self != Dialect::Mysql => None,
            None if is_wider => None,
            sql_type => inside_of(sql_type.unwrap_or_else(|| self.field_type(column, merge))),
        };
        inside
            .map(Cow::Owned)
            .or_else(|| self.range_check(column).map(Cow::Borrowed))
    }

    /// The same for a column that cuts no value in this range.
    ///
    /// SQLite keeps any value, and PostgreSQL a NaN or an infinity, which no later count would repair. MySQL
    /// and MariaDB take `0 - (-9223372036854775808)` for the smallest integer.
    fn range_check(self, column: ColumnType) -> Option<&'static str> {
        use ColumnType::{BigInt, Double, Integer, Numeric, SmallInt};
        match (self, column) {
            (Dialect::Sqlite | Dialect::Mysql, SmallInt) => Some(" BETWEEN -32768 AND 32767"),
            (Dialect::Sqlite | Dialect::Mysql, Integer) => {
                Some(" BETWEEN -2147483648 AND 2147483647")
            }
            // One less than there are: the float that overflows downwards equals SQLite's smallest integer.
            (Dialect::Sqlite | Dialect::Mysql, BigInt) => {
                Some(" BETWEEN -9223372036854775807 AND 9223372036854775807")
            }
            (Dialect::Sqlite, Double | Numeric) => {
                Some(" BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308")
            }
            (Dialect::Postgres, Double) => Some(" NOT IN ('NaN', 'Infinity', '-Infinity')"),
            _ => None,
        }
    }
}

/// ` BETWEEN the least + 1 AND the greatest - 1` for a type that MySQL cuts values to. An integer that leaves the range of a
/// `BIGINT` is an error in each mode.
fn inside_of(sql_type: &str) -> Option<String> {
    let sql_type = sql_type.trim().to_ascii_uppercase();
    let (name, rest) = match sql_type.find(|c: char| !c.is_ascii_alphanumeric()) {
        Some(end) => sql_type.split_at(end),
        None => (&*sql_type, ""),
    };
    let bits = match name {
        "TINYINT" | "INT1" => 8,
        "SMALLINT" | "INT2" => 16,
        "MEDIUMINT" | "INT3" => 24,
        "INT" | "INTEGER" | "INT4" => 32,
        "DECIMAL" | "NUMERIC" | "DEC" | "FIXED" => return inside_of_decimal(rest),
        _ => return None,
    };
    let half = 1_i64 << (bits - 1);
    Some(match rest.contains("UNSIGNED") {
        // Zero is what a shard begins at.
        true => format!(" BETWEEN 0 AND {}", 2 * half - 2),
        false => format!(" BETWEEN {} AND {}", 1 - half, half - 2),
    })
}

/// The same for a `DECIMAL`. `rest` follows its name: `(10, 2)`, `(10)` or nothing.
fn inside_of_decimal(rest: &str) -> Option<String> {
    let numbers = match rest.trim_start().strip_prefix('(') {
        Some(rest) => rest.split_once(')')?.0,
        None => "10",
    };
    let (digits, scale) = numbers.split_once(',').unwrap_or((numbers, "0"));
    let digits: usize = digits.trim().parse().ok()?;
    let scale: usize = scale.trim().parse().ok()?;
    if !(1..=65).contains(&digits) || scale > digits {
        return None;
    }
    let mut last = "9".repeat(digits - 1) + "8";
    if scale > 0 {
        last.insert(digits - scale, '.');
        last.insert_str(0, if scale == digits { "0" } else { "" });
    }
    Some(format!(" BETWEEN -{last} AND {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Where the database would keep a value that no later count repairs, and where it would not.
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
            (
                UnsignedBigInt,
                None,
                "-99999999999999999998 AND 99999999999999999998",
            ),
            (
                Numeric,
                None,
                &*format!("-{whole}.{part}8 AND {whole}.{part}8"),
            ),
            (
                Numeric,
                Some("decimal(10, 2)"),
                "-99999999.98 AND 99999999.98",
            ),
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
}
