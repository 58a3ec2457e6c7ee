//! Sums of fields as numbers in text.

use bigdecimal::{BigDecimal, Zero};
use diesel::prelude::*;
use diesel_sharded::described::DescribedTable;
use diesel_sharded::operation::Amount;

use crate::statement::Row;

/// The numbers in `columns` columns from `first` on.
pub fn numbers(row: &Row, first: usize, columns: usize) -> QueryResult<Vec<BigDecimal>> {
    (first..first + columns)
        .map(|column| row.parse(column))
        .collect()
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
