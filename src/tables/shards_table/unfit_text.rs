//! The text that names a row which does not fit: `videos_shards, key 7: 100 + 10 gave 100`.
//!
//! The script that drops a shards table checks itself, and users run it by `psql` without this crate. An error's text is all that it can give.
//! So the library, which runs the same script, reads values out of a text here, and nowhere else.

use diesel::result::Error as DieselError;

use crate::backend::Dialect;
use crate::error::Error;
use crate::model::{Amount, FieldValue, ShardedTable, ShardsColumn};
use crate::unfit::{FieldState, Unfit};

use super::caches;

// The parts of a text that says which row does not fit: `videos_shards, key 7: 100 + 10 gave 100`. A key may contain any of
// them, a number none.
pub(super) const KEY: &str = ", key ";
pub(super) const COLON: &str = ": ";
pub(super) const PLUS: &str = " + ";
pub(super) const GAVE: &str = " gave ";
pub(super) const NOTHING: &str = "nothing";
pub(super) const NULL: &str = "NULL";
pub(super) const NO_ROW: &str = ": it has shards and no row";

/// The error that such a text describes.
pub(super) fn told<T: ShardedTable>(text: &str) -> Option<DieselError> {
    let cache = caches::told(text, T::SHARDS_TABLE.as_str());
    if cache.is_some() {
        return cache;
    }
    let (key, reason) = read(text, T::SHARDS_TABLE.as_str(), T::FIELDS)?;
    let table = T::SHARDS_TABLE.to_string();
    Some(Error::Unfit { table, key, reason }.into())
}

fn read(text: &str, shards_table: &str, fields: &[ShardsColumn]) -> Option<(String, Unfit)> {
    let row = text.strip_prefix(shards_table)?.strip_prefix(KEY)?;
    if let Some(key) = row.strip_suffix(NO_ROW) {
        return Some((key.to_owned(), Unfit::NoRow));
    }
    let (row, found) = row.rsplit_once(GAVE)?;
    let (row, sums) = row.rsplit_once(PLUS)?;
    let (key, bases) = row.rsplit_once(COLON)?;
    if found == NOTHING {
        return Some((key.to_owned(), Unfit::Removed));
    }
    let mut numbers = bases
        .split(", ")
        .zip(sums.split(", "))
        .zip(found.split(", "))
        .zip(fields);
    let reason =
        numbers.find_map(|(((base, sum), found), field)| reason(field, base, sum, found))?;
    Some((key.to_owned(), reason))
}

/// Why a base is not its earlier value plus the sum of its shards, if it is not. For a greatest or least value, `sum` is
/// what the base was to become.
fn reason(field: &ShardsColumn, base: &str, sum: &str, found: &str) -> Option<Unfit> {
    let value = |text: &str| (text != NULL).then(|| FieldValue::Text(text.to_owned()));
    let state = |base: &str, merged: &str| FieldState::of(field, value(base), value(merged));
    let before = match state(base, sum) {
        Err(Unfit::NoBase) => return Some(Unfit::NoBase),
        before => before.ok()?,
    };
    let (expected, found) = match &before {
        FieldState::Sum { base, shards } => {
            let (base, _) = base.plus(shards, field.column_type);
            if let (Amount::Integer(n), Some((least, greatest))) =
                (&base, field.column_type.range())
                && !(least..=greatest).contains(n)
            {
                return Some(Unfit::OutOfRange);
            }
            let shards = Amount::zero(field.column_type);
            (FieldState::Sum { base, shards }, state(found, "0"))
        }
        FieldState::Peak { total, .. } => {
            let (base, total) = (total.clone(), total.clone());
            (FieldState::Peak { base, total }, state(found, found))
        }
    };
    match found {
        Ok(found) => Unfit::between(field, &before, &expected, &found, false),
        Err(reason) => Some(reason),
    }
}

/// Names the row that does not fit, or the cache, if the text's own check failed.
pub(crate) fn explain_unfit<T: ShardedTable>(dialect: Dialect, error: DieselError) -> DieselError {
    let text = match &error {
        DieselError::DatabaseError(_, says) => dialect.reason_not_dropped(says.message()),
        _ => None,
    };
    text.and_then(told::<T>).unwrap_or(error)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use crate::model::{ColumnType, Merge};

    const FIELDS: &[ShardsColumn] = &[
        field("views", ColumnType::BigInt, Merge::Sum),
        field("likes", ColumnType::SmallInt, Merge::Sum),
        field("score", ColumnType::Double, Merge::Sum),
        field("best", ColumnType::Timestamp, Merge::Max),
    ];

    const fn field(name: &'static str, column_type: ColumnType, merge: Merge) -> ShardsColumn {
        ShardsColumn {
            name: Cow::Borrowed(name),
            column_type,
            sql_type: None,
            merge,
        }
    }

    fn not_written(field: &str) -> Unfit {
        Unfit::NotWritten {
            field: field.to_owned(),
        }
    }

    fn altered(field: &str, expected: &str, found: &str) -> Unfit {
        Unfit::Altered {
            field: field.to_owned(),
            expected: expected.to_owned(),
            found: found.to_owned(),
        }
    }

    macro_rules! reads {
        ($($text:expr => $key:expr, $reason:expr;)+) => {$(
            let found = read($text, "s", FIELDS);
            assert_eq!(found, Some(($key.to_owned(), $reason)), "{}", $text);
        )+};
    }

    #[test]
    fn a_text_tells_the_row_and_the_reason() {
        let (ten, one_later) = ("2026-01-01 10:00:00", "2026-01-01 10:00:01");
        reads! {
            "s, key 7: 100, 1, 0.5 + 10, 0, 0 gave 100, 1, 0.5" => "7", not_written("views");
            &format!("s, key 7: 1, 1, 1, NULL + 1, 0, 0, {ten} gave 2, 1, 1, NULL") => "7", not_written("best");
            &format!("s, key 7: 1, 1, 1, NULL + 1, 0, 0, {ten} gave 2, 1, 1, {one_later}")
                => "7", altered("best", ten, one_later);
            "s, key 7: 100, 1, 0.5 + 0, 2, 0 gave 100, 1, 0.5" => "7", not_written("likes");
            "s, key a: 1 + 1 gave 2, 2: 0, 32767, 0 + 0, 1, 0 gave 0, 32767, 0"
                => "a: 1 + 1 gave 2, 2", Unfit::OutOfRange;
            "s, key 7: 100, 1, 0.5 + 10, 0, 0 gave 105, 1, 0.5" => "7", altered("views", "110", "105");
            "s, key 7: 1, 1, 1 + 1, 1, 1 gave nothing" => "7", Unfit::Removed;
            "s, key it's, 7: it has shards and no row" => "it's, 7", Unfit::NoRow;
        }
        for text in [
            "",
            "s",
            "t, key 7: it has shards and no row",
            "s, key 7",
            "s, key 7: x + y gave z",
        ] {
            assert!(read(text, "s", FIELDS).is_none(), "{text}");
        }
    }
}
