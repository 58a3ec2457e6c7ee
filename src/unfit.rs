//! Bases that do not accept what an operation writes to them.
//!
//! An operation that moves a value reads each parent before and after it writes. A difference to what was to be written is
//! reported here, whatever the reason: a number that was rounded or cut, an update that row security or a trigger suppressed, a
//! row that was redirected.

use crate::model::{Amount, FieldValue, ShardsColumn};

/// Why a row's base does not accept what an operation writes to it; in [`Folded::unfit`](crate::operation::Folded::unfit) and
/// [`Error::Unfit`](crate::Error::Unfit).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unfit {
    /// The total is out of the range of the column.
    #[error("has a column whose range does not hold the total: use a wider type")]
    OutOfRange,
    /// The row does not pass a `CHECK` with the total in its base.
    #[error(
        "does not pass a CHECK with the total in its base: change the CHECK, or correct the total ({says})"
    )]
    Check {
        /// The database's own words, which name the `CHECK`.
        says: String,
    },
    /// The database refused the update of the row's base for another reason, such as a trigger or a unique index.
    #[error("refuses the update of its base: {says}")]
    Refused {
        /// The database's own words.
        says: String,
    },
    /// The row can be read but not locked, as PostgreSQL's row security has it for rows that a role may not update.
    #[error(
        "can be read, but not locked for an update: let a role do this whose row security policies allow the update"
    )]
    NotLocked,
    /// Row security may hide some of the row's shards from this role, so that its total is not known.
    #[error(
        "may have shards that row security hides: let a role do this to which no policy of the shards table applies"
    )]
    HiddenShards,
    /// The update did not change the base.
    #[error(
        "did not take the update of `{field}`: row security, a trigger or a rule suppresses it (let it pass for this role), or the \
         column's scale rounds the difference away, or MySQL without its strict `sql_mode` cuts what is beyond its limit"
    )]
    NotWritten {
        /// The column.
        field: String,
    },
    /// The base came to hold another number.
    #[error(
        "holds {found} in `{field}` after {expected} was written: a trigger changed it, or the column rounds or cuts; give \
         it the scale that its column in the shards table has (`#[sharded(sql_type = \"..\")]`), and let MySQL's `sql_mode` be strict"
    )]
    Altered {
        /// The column.
        field: String,
        /// The number that was written, or that the shards were to hold.
        expected: String,
        /// The number that the database shows.
        found: String,
    },
    /// The base of a counted field is `NULL`.
    #[error(
        "has NULL in a counted column, to which nothing can be added: give it a number, and let the column be NOT NULL"
    )]
    NoBase,
    /// There are shards of this key and no row, or none that can be seen.
    #[error(
        "is not there, or cannot be seen, and has shards: remove these, or let a role that sees every row do this"
    )]
    NoRow,
    /// The row is gone after it was written.
    #[error(
        "was removed by its own update: a trigger or a rule does that; let the update pass for this role"
    )]
    Removed,
}

/// What a parent and its shards hold of one field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FieldState {
    /// Of a counted field.
    Sum {
        /// The column itself.
        base: Amount,
        /// The sum of the shards, or of the one that is held.
        shards: Amount,
    },
    /// Of a field that keeps its greatest or its least value; `None` is `NULL`.
    Peak {
        /// The column itself.
        base: Option<FieldValue>,
        /// The greatest or the least of the column and its shards, or of the column and the shard that is held.
        total: Option<FieldValue>,
    },
}

impl FieldState {
    /// From the base, and the sum of the shards or the greatest or least value of all.
    ///
    /// # Errors
    /// [`Unfit::NoBase`] for a counted base that is `NULL`, [`Unfit::Altered`] for a value that is no number.
    pub(crate) fn of(
        field: &ShardsColumn,
        base: Option<FieldValue>,
        merged: Option<FieldValue>,
    ) -> Result<Self, Unfit> {
        let typed = |value: FieldValue| {
            let found = value.to_string();
            let typed = value.of_type(field.column_type);
            typed.ok_or_else(|| Unfit::altered(field, "a number", format!("`{found}`")))
        };
        let (base, merged) = (base.map(typed).transpose()?, merged.map(typed).transpose()?);
        Ok(match (field.is_sum(), base, merged) {
            (true, Some(FieldValue::Number(base)), Some(FieldValue::Number(shards))) => {
                FieldState::Sum { base, shards }
            }
            (true, ..) => return Err(Unfit::NoBase),
            (false, base, total) => FieldState::Peak { base, total },
        })
    }
}

impl Unfit {
    /// The difference between what a parent was to hold of a field and what it holds, if there is one. `rounds`: sums of this
    /// field round.
    pub(crate) fn between(
        field: &ShardsColumn,
        before: &FieldState,
        expected: &FieldState,
        found: &FieldState,
        rounds: bool,
    ) -> Option<Self> {
        use FieldState::{Peak, Sum};
        match (before, expected, found) {
            (
                Sum { base: old, shards },
                Sum {
                    base: new,
                    shards: rest,
                },
                Sum {
                    base,
                    shards: found,
                },
            ) => {
                if old != new && base == old {
                    return Some(Unfit::not_written(field));
                }
                let among = [old, shards, new, base];
                let (expected, found) = [(new, base), (rest, found)]
                    .into_iter()
                    .find(|(expected, found)| !found.agrees(expected, &among, rounds))?;
                Some(Unfit::altered(field, expected.plain(), found.plain()))
            }
            (Peak { base: old, .. }, Peak { total: new, .. }, Peak { base, total }) => {
                if old != new && base == old {
                    return Some(Unfit::not_written(field));
                }
                let found = [base, total].into_iter().find(|found| *found != new)?;
                let [expected, found] = [new, found].map(|value| match value {
                    Some(value) => value.to_string(),
                    None => "NULL".to_owned(),
                });
                Some(Unfit::altered(field, expected, found))
            }
            _ => Some(Unfit::Removed), // they are of one field
        }
    }

    fn not_written(field: &ShardsColumn) -> Self {
        Unfit::NotWritten {
            field: field.name.to_string(),
        }
    }

    fn altered(field: &ShardsColumn, expected: impl ToString, found: impl ToString) -> Self {
        Unfit::Altered {
            field: field.name.to_string(),
            expected: expected.to_string(),
            found: found.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ShardedTable;
    use crate::test_schema::players::table as players;
    use crate::test_schema::videos::table as videos;

    fn between(values: [FieldState; 3], rounds: bool) -> Option<Unfit> {
        let [before, expected, found] = values;
        Unfit::between(&videos::FIELDS[0], &before, &expected, &found, rounds)
    }

    fn not_written() -> Option<Unfit> {
        Some(Unfit::not_written(&videos::FIELDS[0]))
    }

    fn altered(expected: &str, found: &str) -> Option<Unfit> {
        Some(Unfit::altered(&videos::FIELDS[0], expected, found))
    }

    #[test]
    fn a_base_holds_what_was_written_or_is_unfit() {
        for (before, expected, found, unfit) in [
            ((100, 10), (110, 0), (110, 0), None),
            ((100, 10), (110, 0), (100, 0), not_written()),
            ((100, 10), (110, 0), (109, 0), altered("110", "109")),
            // The shards were not emptied.
            ((100, 10), (110, 0), (110, 10), altered("0", "10")),
            // Nothing was to change, and something did.
            ((100, 0), (100, 0), (101, 0), altered("100", "101")),
        ] {
            let values = [before, expected, found].map(|(base, shards)| FieldState::Sum {
                base: Amount::Integer(base),
                shards: Amount::Integer(shards),
            });
            assert_eq!(between(values, false), unfit);
        }
    }

    /// A suppressed update is noticed however little it was to add.
    #[test]
    fn doubles_may_round_and_have_to_be_written() {
        for (before, expected, found, unfit) in [
            ((1e15, 1.0), 1e15 + 1.0, 1e15 + 1.0, None),
            ((1e15, 1.0), 1e15 + 1.0, 1e15, not_written()),
            ((0.1, 0.2), 0.1 + 0.2, 0.3, None),
        ] {
            let values =
                [before, (expected, 0.0), (found, 0.0)].map(|(base, shards)| FieldState::Sum {
                    base: Amount::Double(base),
                    shards: Amount::Double(shards),
                });
            assert_eq!(between(values, true), unfit);
        }
    }

    /// The state of a field whose values were read as texts.
    fn read(field: &ShardsColumn, base: &str, merged: &str) -> Result<FieldState, Unfit> {
        let value = |text: &str| (text != "NULL").then(|| FieldValue::Text(text.to_owned()));
        FieldState::of(field, value(base), value(merged))
    }

    #[test]
    fn a_fold_leaves_the_total_in_the_base() {
        let between = |field: usize, before: (&str, &str), found: (&str, &str)| {
            let field = &players::FIELDS[field];
            let expected = read(field, before.1, before.1).unwrap();
            let [before, found] =
                [before, found].map(|(base, total)| read(field, base, total).unwrap());
            Unfit::between(field, &before, &expected, &found, false)
        };
        assert_eq!(between(1, ("7", "9"), ("9", "9")), None);
        assert_eq!(between(1, ("NULL", "NULL"), ("NULL", "NULL")), None);
        assert_eq!(between(3, ("NULL", "1.50"), ("1.5", "1.5")), None);
        let field = "best".to_owned();
        let not_written = Some(Unfit::NotWritten { field });
        assert_eq!(between(1, ("7", "9"), ("7", "9")), not_written);
        assert!(matches!(
            between(2, ("a", "b"), ("c", "c")),
            Some(Unfit::Altered { field, expected, found }) if field == "last_game" && expected == "b" && found == "c"
        ));
        // A shard came to hold more than was folded.
        assert!(matches!(
            between(1, ("7", "9"), ("9", "11")),
            Some(Unfit::Altered { found, .. }) if found == "11"
        ));
    }

    #[test]
    fn values_are_of_the_types_of_their_fields() {
        let integer = FieldState::Sum {
            base: Amount::Integer(100),
            shards: Amount::Integer(-2),
        };
        assert_eq!(read(&videos::FIELDS[0], "100", "-2"), Ok(integer));
        let double = |n| Some(FieldValue::Number(Amount::Double(n)));
        let fastest = FieldState::of(&players::FIELDS[3], None, double(0.1));
        let (base, total) = (None, double(0.1));
        assert_eq!(fastest, Ok(FieldState::Peak { base, total }));
        let last_game = read(&players::FIELDS[2], "2026-01-01 10:00:00", "NULL");
        let base = Some(FieldValue::Text("2026-01-01 10:00:00".to_owned()));
        assert_eq!(last_game, Ok(FieldState::Peak { base, total: None }));
        assert_eq!(read(&videos::FIELDS[0], "NULL", "0"), Err(Unfit::NoBase));
        let unfit = read(&videos::FIELDS[0], "x", "10");
        assert!(matches!(unfit, Err(Unfit::Altered { field, .. }) if field == "views"));
    }
}
