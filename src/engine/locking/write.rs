//! Writing to parents that are held and to their shards.

use std::collections::BTreeSet;

use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use diesel::result::{DatabaseErrorKind, Error as DieselError};

use crate::backend::{Dialect, ShardedBackend};
use crate::connection::{Link, LoadIo};
use crate::model::Amount;
use crate::query_builder::{
    AddShardsToBases, BaseValues, EmptyShards, Fields, KeysAre, RemoveShards, RowKind, Sums, Write,
    WriteValues, literal,
};
use crate::unfit::FieldState;

use super::locked::{LockError, LockedKeys};
use super::peaks::{PeakState, PeakStates};
use super::states::{States, zeros};

/// The amounts that moved from shards to bases.
#[derive(Debug, Clone)]
pub(crate) struct Moved {
    /// The number of parents that had something to move.
    pub(crate) parents: usize,
    /// The number of shards that it was moved from.
    pub(crate) shards: usize,
    /// How much of each field.
    pub(crate) sums: Vec<Amount>,
}

impl<K, DB> LockedKeys<'_, K, DB>
where
    K: QueryFragment<DB> + Sync,
    DB: ShardedBackend,
{
    /// Adds the shards that are held to the bases and empties them: no total changes.
    ///
    /// # Errors
    /// [`LockError::Unfit`] if a base or a shard came to hold anything else.
    pub(crate) async fn fold<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
    ) -> Result<Moved, LockError>
    where
        M: LoadIo<Conn, Backend = DB>,
    {
        let mut sums = zeros(self.names.fields);
        if self.parents == 0 {
            return Ok(Moved {
                parents: 0,
                shards: 0,
                sums,
            });
        }
        let all: Vec<_> = self.names.fields.iter().collect();
        let (fields, peaks): (Vec<_>, Vec<_>) = all.iter().partition(|field| field.is_sum());
        let before = self.states(link, &fields, Sums::Read).await?;
        let peaks_before = self.peaks(link, &peaks).await?;
        let mut added = before.clone();
        let mut expected = before.clone();
        for (added, expected) in added.iter_mut().zip(&mut expected) {
            let sums = self.names.fields.iter().zip(&mut sums);
            let sums = sums.filter(|(field, _)| field.is_sum());
            for ((added, expected), (field, sum)) in added.iter_mut().zip(expected).zip(sums) {
                added.base += &added.shards;
                *sum += &added.shards;
                *expected = FieldState {
                    base: added.base.clone(),
                    shards: Amount::zero(field.column_type),
                };
            }
        }
        let parents = match link.dialect().reads_what_triggers_write() {
            true => {
                let of = self.rows(RowKind::Parents);
                link.execute(AddShardsToBases { of }).await?
            }
            false => {
                let added = added_values(&fields, &before);
                let new = new_peaks(link.dialect(), &peaks, &peaks_before);
                self.write_values(link, added, new).await?
            }
        };
        // A trigger on the parent may have added to shards: that must not be emptied with the rest.
        self.check(link, &fields, &before, &added).await?;
        self.check_peaks(link, &peaks, &peaks_before).await?;
        let shards = self.empty(link, &all).await?;
        if self.filled.is_some_and(|filled| shards > filled) {
            return Err(appeared().into());
        }
        self.check(link, &fields, &added, &expected).await?;
        self.check_peaks(link, &peaks, &peaks_before).await?;
        Ok(Moved {
            parents,
            shards,
            sums,
        })
    }

    /// Adds values to the bases of sums, by one statement, and writes the others, by one for each field. The number of parents.
    async fn write_values<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        added: Vec<BaseValues<'_>>,
        new: Vec<BaseValues<'_>>,
    ) -> QueryResult<usize>
    where
        M: LoadIo<Conn, Backend = DB>,
    {
        let mut written = BTreeSet::new();
        let statements = std::iter::once(&added[..]).chain(new.chunks(1));
        for values in statements {
            let of_fields = values.iter().flat_map(|field| &field.of);
            let parents: BTreeSet<_> = of_fields.map(|(parent, _)| *parent).collect();
            if parents.is_empty() {
                continue;
            }
            let write = WriteValues {
                names: self.names,
                keys: &self.keys.0,
                values,
                written: KeysAre(
                    parents
                        .iter()
                        .filter_map(|parent| self.keys.0.get(*parent))
                        .collect(),
                ),
            };
            link.execute(write).await?;
            written.extend(parents);
        }
        Ok(written.len())
    }

    /// Writes columns of the bases, `assignments`, and empties the shards of these `fields` if `empties`, so that the parents hold
    /// what is `expected` of them, and nothing else.
    ///
    /// # Errors
    /// [`LockError::Unfit`] if they do not.
    pub(crate) async fn write_bases<A, M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        assignments: &A,
        fields: &Fields<'_>,
        empties: bool,
        before: &States,
        expected: &States,
    ) -> Result<(), LockError>
    where
        M: LoadIo<Conn, Backend = DB>,
        A: QueryFragment<DB>,
    {
        let of = self.rows(RowKind::Parents);
        link.execute(Write { of, assignments }).await?;
        if empties {
            self.empty(link, fields).await?;
        }
        self.check(link, fields, before, expected).await
    }

    /// Writes columns of the shards, whatever that does to the totals: the bases are to be [written](Self::write_bases) next.
    pub(crate) async fn write_shards<A, M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        assignments: &A,
    ) -> QueryResult<usize>
    where
        M: LoadIo<Conn, Backend = DB>,
        A: QueryFragment<DB>,
    {
        let of = self.rows(RowKind::Shards);
        link.execute(Write { of, assignments }).await
    }

    /// Sets fields of the shards to zero. The number of shards that were not.
    async fn empty<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        fields: &Fields<'_>,
    ) -> QueryResult<usize>
    where
        M: LoadIo<Conn, Backend = DB>,
    {
        let of = self.rows(RowKind::Shards);
        link.execute(EmptyShards { of, fields }).await
    }

    /// Removes the shards numbered `first` and above that are empty. The number removed.
    pub(crate) async fn remove_shards<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        first: u16,
    ) -> QueryResult<usize>
    where
        M: LoadIo<Conn, Backend = DB>,
    {
        if self.parents == 0 {
            return Ok(0);
        }
        let of = self.rows(RowKind::Shards);
        let first = i32::from(first);
        link.execute(RemoveShards { of, first }).await
    }
}

/// The sums of shards that are not zero.
fn added_values<'f>(fields: &'f Fields<'f>, before: &States) -> Vec<BaseValues<'f>> {
    let fields = fields.iter().enumerate().map(|(i, field)| {
        let zero = Amount::zero(field.column_type);
        let shards = before.iter().enumerate().filter_map(|(parent, states)| {
            let shards = &states.get(i)?.shards;
            let moves = *shards != zero;
            Some((parent, shards.literal()?)).filter(|_| moves)
        });
        BaseValues {
            field,
            of: shards.collect(),
        }
    });
    fields.filter(|field| !field.of.is_empty()).collect()
}

/// The totals of greatest and least values that are not those of the bases.
fn new_peaks<'f>(
    dialect: Dialect,
    fields: &'f Fields<'f>,
    before: &PeakStates,
) -> Vec<BaseValues<'f>> {
    let fields = fields.iter().enumerate().map(|(i, field)| {
        let totals = before.iter().enumerate().filter_map(|(parent, states)| {
            let PeakState { base, total } = states.get(i)?;
            (base != total).then(|| (parent, literal(dialect, total)))
        });
        BaseValues {
            field,
            of: totals.collect(),
        }
    });
    fields.filter(|field| !field.of.is_empty()).collect()
}

/// A shard that was not locked was emptied. The foreign key keeps new shards away from a parent that is held, unless a
/// connection that counts has switched foreign keys off.
fn appeared() -> DieselError {
    let message = "a shard appeared while its row was locked: a connection counts with foreign keys switched off";
    DieselError::DatabaseError(
        DatabaseErrorKind::SerializationFailure,
        Box::new(message.to_owned()),
    )
}
