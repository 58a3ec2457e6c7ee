//! The range of a field: the least and the greatest value that its column holds.

use bigdecimal::BigDecimal;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::declared_type;
use diesel_sharded::model::{ColumnType, ShardsColumn};

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

/// `99999999.99` of `NUMERIC(10,2)`
fn greatest_decimal(declared: &str) -> Option<BigDecimal> {
    let (_, numbers) = declared.split_once('(')?;
    let (numbers, _) = numbers.split_once(')')?;
    let (digits, scale) = numbers.split_once(',').unwrap_or((numbers, "0"));
    let digits: usize = digits.trim().parse().ok()?;
    format!(
        "{}e-{}",
        "9".repeat(digits),
        scale.trim().parse::<usize>().ok()?
    )
    .parse()
    .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
