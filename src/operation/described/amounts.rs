//! Numbers of fields, for repairs of described tables.

use diesel::prelude::*;
use diesel::result::Error as DieselError;

use crate::backend::Dialect;
use crate::model::{Amount, ColumnType};
use crate::operation::verify;
use crate::unfit::Unfit;

/// Whether a total of this type is not as a recount expects it; of doubles it may differ a little.
pub fn differs(dialect: Dialect, column: ColumnType, total: &Amount, expected: &Amount) -> bool {
    verify::differs(dialect, column, total, expected)
}

/// An amount of a field of this type.
///
/// # Errors
/// If it is none.
pub fn amount(number: &str, column: ColumnType) -> QueryResult<Amount> {
    Amount::parse(number, column)
}

/// Its digits in SQL; `None` if it is no number.
pub fn literal(amount: &Amount) -> Option<String> {
    amount.literal()
}

/// Why a base does not take a value that this error refused.
pub fn refused(dialect: Dialect, overflow: &DieselError) -> Unfit {
    dialect.refused(overflow)
}
