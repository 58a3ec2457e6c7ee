//! The values of parents that are held, before an operation writes and after it.

use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use diesel::result::Error as DieselError;

use crate::backend::ShardedBackend;
use crate::connection::{Link, LoadIo};
use crate::model::{Amount, ShardedColumn, ShardedTable, ShardsColumn};
use crate::query_builder::{Fields, ReadStates, RowKind, Sums};
use crate::unfit::{FieldState, Unfit};

use super::locked::{LockError, LockedKeys};

/// The base and the shards of some fields of each locked parent, in key order.
pub(crate) type States = Vec<Vec<FieldState>>;

impl<K, DB> LockedKeys<'_, K, DB>
where
    K: QueryFragment<DB> + Sync,
    DB: ShardedBackend,
{
    /// Reads the bases of `fields` and the sums of their shards. Shards that are to be `Replaced` are not read: their sum may be out
    /// of every range.
    ///
    /// # Errors
    /// [`Unfit::Removed`] if not all of them are there, [`Unfit::NoBase`] for a base that is `NULL`, [`Unfit::Altered`] for one
    /// that is no number.
    pub(crate) async fn states<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        fields: &Fields<'_>,
        sums: Sums,
    ) -> Result<States, LockError>
    where
        M: LoadIo<Conn, Backend = DB>,
    {
        if fields.is_empty() {
            return Ok(vec![vec![]; self.parents]);
        }
        let of = self.rows(RowKind::Parents);
        let read = ReadStates { of, fields, sums };
        let texts = link.load::<Option<String>, _>(read);
        let texts = texts.await?;
        if texts.len() != self.parents {
            return Err(LockError::Unfit(0, Unfit::Removed));
        }
        let mut states = Vec::with_capacity(texts.len());
        for (parent, text) in texts.iter().enumerate() {
            let text = text.as_deref().ok_or(Unfit::NoBase);
            let state = text.and_then(|text| parse_states(fields, text));
            states.push(state.map_err(|reason| LockError::Unfit(parent, reason))?);
        }
        Ok(states)
    }

    /// Compares the parents with what they are to hold after an operation.
    ///
    /// # Errors
    /// [`LockError::Unfit`] if anything differs, whatever the reason.
    pub(super) async fn check<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        fields: &Fields<'_>,
        before: &States,
        expected: &States,
    ) -> Result<(), LockError>
    where
        M: LoadIo<Conn, Backend = DB>,
    {
        let dialect = link.dialect();
        let found = self.states(link, fields, Sums::Read).await?;
        let parents = before.iter().zip(expected).zip(&found);
        for (parent, ((before, expected), found)) in parents.enumerate() {
            let fields = before.iter().zip(expected).zip(found).zip(fields);
            for (((before, expected), found), field) in fields {
                let rounds = dialect.rounds_sums(field.column_type);
                if let Some(unfit) = Unfit::between(&field.name, before, expected, found, rounds) {
                    return Err(LockError::Unfit(parent, unfit));
                }
            }
        }
        Ok(())
    }
}

/// Nothing of each field.
pub(crate) fn zeros(fields: &[ShardsColumn]) -> Vec<Amount> {
    let zeros = fields.iter().map(|field| Amount::zero(field.column_type));
    zeros.collect()
}

/// The field of a column.
pub(crate) fn field<C: ShardedColumn>() -> QueryResult<&'static ShardsColumn> {
    let mut fields = C::Table::FIELDS.iter();
    fields
        .find(|field| field.name == C::NAME)
        .ok_or(DieselError::NotFound) // every sharded column is one
}

/// Reads what [`ReadStates`] gives of one parent.
fn parse_states(fields: &Fields<'_>, text: &str) -> Result<Vec<FieldState>, Unfit> {
    let mut numbers = text.split(' ');
    let parse = |field: &ShardsColumn, text: Option<&str>| {
        let text = text.unwrap_or_default();
        Amount::parse(text, field.column_type).map_err(|_| Unfit::Altered {
            field: field.name.to_string(),
            expected: "a number".to_owned(),
            found: format!("`{text}`"),
        })
    };
    let states = fields.iter().map(|field| {
        Ok(FieldState {
            base: parse(field, numbers.next())?,
            shards: parse(field, numbers.next())?,
        })
    });
    states.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_schema::videos as table;

    #[test]
    fn states_are_numbers() {
        let fields: Vec<_> = table::table::FIELDS.iter().collect();
        let states = parse_states(&fields, "100 10 1 -2").unwrap();
        let state = |base, shards| FieldState {
            base: Amount::Integer(base),
            shards: Amount::Integer(shards),
        };
        assert_eq!(states, [state(100, 10), state(1, -2)]);
        let unfit = parse_states(&fields, "").unwrap_err();
        assert!(matches!(unfit, Unfit::Altered { field, .. } if field == "views"));
    }
}
