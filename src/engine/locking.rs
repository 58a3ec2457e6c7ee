//! Parents that are held: locked together with their shards, so that nothing of these changes but by the holder.
//!
//! The parent's row lock comes first and is the mutex: while it is held, nobody else holds the parent. Then the shards are locked, in the
//! order in which counts lock them. Counts on these shards wait until the holder's transaction ends.
//!
//! On MySQL no shard can be created meanwhile, since that locks the parent for the foreign key. On PostgreSQL a fold, a repair and a bounded
//! counter let rows that refer to the parent be inserted, shards too: a stream of the application's own rows would keep a stronger lock away
//! for ever. A fold and a bounded counter begin again if a shard appears. A set locks the parent against it, and so does a fold in a caller's
//! transaction, which may write the base next: a count on such a shard could be seen before their commit and survive it.

use std::collections::BTreeSet;
use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use diesel::result::{DatabaseErrorKind, Error as DieselError};

use super::keyed::Parents;
use super::retry_loop::RetryLoop;
use crate::backend::{Dialect, ShardedBackend, Strength, literal};
use crate::connection::{Io, Link, LoadIo, TransactionOptions};
use crate::error::database_error;
use crate::model::{Amount, ShardedColumn, ShardedTable, ShardsColumn};
use crate::policy::RetryPolicy;
pub(crate) use crate::query_builder::Sums;
use crate::query_builder::{
    AddShardsToBases, BaseValues, EmptyShards, Fields, FindHot, FindPolicy, KeysAre, LockShards,
    NotLocked, PickAgain, ReadShards, ReadStates, RemoveOrphans, RemoveShards, RowKind,
    SelectFirstShards, SelectKeys, SelectShards, StatementRows, Write, WriteRests, WriteValues,
};
use crate::unfit::{FieldState, Unfit};

/// Parents that the connection's transaction has locked, with all their shards or with one.
///
/// Only parents whose locks were acquired are in it. A parent that was picked before and is absent when it is to be locked may
/// come back under the same key, with shards of its own.
pub(crate) struct LockedParents<P: Parents<DB>, DB: ShardedBackend> {
    of: P,
    /// In key order.
    locked: Vec<P::Key>,
    keys: KeysAre<P::KeyIs>,
    shard: Option<i32>,
    /// The shards that were locked, where rows can be locked and others may be created.
    shards: Option<LockedShards>,
}

/// Shards that were locked.
#[derive(Debug, Clone, Copy)]
struct LockedShards {
    number: usize,
    filled: usize,
}

/// Which shards are held, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shards {
    /// The one of this number, or all.
    pub(crate) only: Option<i32>,
    /// How they and their parents are locked.
    pub(crate) strength: Strength,
}

impl Shards {
    pub(crate) const fn all(strength: Strength) -> Self {
        Shards {
            only: None,
            strength,
        }
    }
}

/// The base and the shards of some fields of each locked parent, in key order.
pub(crate) type States = Vec<Vec<FieldState>>;

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

/// A transaction of its own that may hold parents and is tried again after a conflict, or a savepoint of the caller's.
pub(crate) fn locking<M: Io<Conn>, Conn>(
    link: &mut Link<'_, M, Conn>,
    retry: RetryPolicy,
) -> QueryResult<RetryLoop> {
    let options = locking_options(link.dialect());
    RetryLoop::transaction(link, retry, options)
}

/// A transaction that may hold parents.
pub(crate) fn locking_options(dialect: Dialect) -> TransactionOptions {
    TransactionOptions {
        isolation: dialect.locking_isolation(),
        ..TransactionOptions::guarded()
    }
}

impl<P: Parents<DB>, DB: ShardedBackend> LockedParents<P, DB> {
    /// Parents that the open transaction has locked already.
    pub(crate) fn locked(of: P, locked: Vec<P::Key>) -> Self {
        LockedParents {
            keys: of.are(&locked),
            of,
            locked,
            shard: None,
            shards: None,
        }
    }

    /// Locks the parents that `keys` names and that are there, and then their shards, in the transaction that is open.
    pub(crate) async fn lock<M: LoadIo<Conn, Backend = DB>, Conn>(
        of: P,
        link: &mut Link<'_, M, Conn>,
        keys: &KeysAre<P::KeyIs>,
        shards: Shards,
    ) -> QueryResult<Self> {
        let mut locked = Self::lock_parents(of, link, keys, shards.strength).await?;
        locked.shard = shards.only;
        locked.with_shards(link, shards.strength).await
    }

    /// Locks the parents that `keys` names and that are there, without their shards. On SQLite, where other writers already
    /// wait, it only finds them.
    pub(crate) async fn lock_parents<M: LoadIo<Conn, Backend = DB>, Conn>(
        of: P,
        link: &mut Link<'_, M, Conn>,
        keys: &KeysAre<P::KeyIs>,
        strength: Strength,
    ) -> QueryResult<Self> {
        let clause = link.dialect().locks_rows(strength);
        let lock = SelectKeys::locking(of.names(), keys, clause.unwrap_or_default());
        let locked = P::load(link, lock).await?;
        Ok(Self::locked(of, locked))
    }

    /// Locks the parents that `keys` names and that are there, and then all their shards; all that can be seen have to be lockable.
    ///
    /// # Errors
    /// [`Unfit::NotLocked`] for a parent that can be seen and not be locked.
    pub(crate) async fn lock_all<M: LoadIo<Conn, Backend = DB>, Conn>(
        of: P,
        link: &mut Link<'_, M, Conn>,
        keys: &KeysAre<P::KeyIs>,
        strength: Strength,
    ) -> QueryResult<Self> {
        let locked = Self::lock_all_parents(of, link, keys, strength).await?;
        locked.with_shards(link, strength).await
    }

    /// The same, without their shards.
    ///
    /// # Errors
    /// As there.
    pub(crate) async fn lock_all_parents<M: LoadIo<Conn, Backend = DB>, Conn>(
        of: P,
        link: &mut Link<'_, M, Conn>,
        keys: &KeysAre<P::KeyIs>,
        strength: Strength,
    ) -> QueryResult<Self> {
        let mut tries = 0;
        loop {
            let locked = Self::lock_parents(of, link, keys, strength).await?;
            locked.refuse_hidden_shards(link).await?;
            let Some(key) = locked.not_locked(link, keys).await?.pop() else {
                return Ok(locked);
            };
            tries += 1;
            if tries == TRIES_TO_LOCK {
                return Err(locked.unfit(&key, Unfit::NotLocked));
            }
        }
    }

    /// The parents among `keys` that can be seen and are not locked, where row security may hide them from locks. A parent that has come
    /// back since may be among them.
    pub(crate) async fn not_locked<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        keys: &KeysAre<P::KeyIs>,
    ) -> QueryResult<Vec<P::Key>> {
        let all_are_locked = self.locked.len() == keys.0.len();
        if all_are_locked || !link.dialect().hides_rows_from_locks() {
            return Ok(vec![]);
        }
        let not_locked = NotLocked {
            names: self.of.names(),
            keys,
            locked: &self.keys,
            key_sql: PhantomData,
        };
        P::load(link, not_locked).await
    }

    /// Those of them that `filter` matches still, as the transaction sees them: one may have left it before it was locked.
    pub(crate) async fn matching<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        filter: &impl QueryFragment<DB>,
    ) -> QueryResult<Self> {
        let again = PickAgain {
            names: self.of.names(),
            filter,
            keys: &self.keys,
            key_sql: PhantomData,
        };
        let still = match self.is_empty() {
            true => vec![],
            false => P::load(link, again).await?,
        };
        Ok(LockedParents {
            shards: self.shards,
            ..Self::locked(self.of, still)
        })
    }

    /// Refuses parents whose totals may be other than this role sees.
    ///
    /// # Errors
    /// [`Unfit::HiddenShards`].
    pub(crate) async fn refuse_hidden_shards<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<()> {
        let shards_table = self.of.names().shards_table;
        self.refuse_policy(&shards_table, Unfit::HiddenShards, link)
            .await
    }

    /// Refuses parents for this reason if row security may hide rows of `table` from this role.
    async fn refuse_policy<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        table: &(dyn QueryFragment<DB> + Sync),
        reason: Unfit,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<()> {
        let hides_rows = link.dialect().hides_rows_from_locks();
        let (true, Some(key)) = (hides_rows, self.locked.first()) else {
            return Ok(());
        };
        let active = link.load::<i32, _>(FindPolicy(table)).await?;
        match active.is_empty() {
            true => Ok(()),
            false => Err(self.unfit(key, reason)),
        }
    }

    /// Whether no parent is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.locked.is_empty()
    }

    /// The keys of the parents that are held, in their order.
    pub(crate) fn parents(&self) -> &[P::Key] {
        &self.locked
    }

    /// A `WHERE` clause that names the parents that are held.
    pub(crate) fn keys(&self) -> &KeysAre<P::KeyIs> {
        &self.keys
    }

    /// The numbers of the shards that there are, held or not.
    pub(crate) async fn shards<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<Vec<i32>> {
        self.select_shards(link, "").await
    }

    /// Locks the shards that nobody else holds, and returns their numbers; `None` where the others cannot be left out.
    pub(crate) async fn lock_free_shards<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<Option<Vec<i32>>> {
        let dialect = link.dialect();
        let clause = dialect.locks_rows(Strength::ExclusiveIfFree);
        Ok(match clause.filter(|_| dialect.supports_skip_locked()) {
            Some(clause) => Some(self.select_shards(link, clause).await?),
            None => None,
        })
    }

    async fn select_shards<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        clause: &'static str,
    ) -> QueryResult<Vec<i32>> {
        let of = self.all_shards();
        link.load::<i32, _>(SelectShards { of, clause }).await
    }

    /// What each shard holds of a field, by its number, as far as it is committed or this transaction's own.
    pub(crate) async fn amounts<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        field: &ShardsColumn,
    ) -> QueryResult<Vec<(i32, Amount)>> {
        let of = self.all_shards();
        let texts = link.load::<Option<String>, _>(ReadShards { of, field });
        let texts = texts.await?.into_iter().flatten();
        let amounts = texts.map(|text| {
            let (shard, amount) = text.split_once(' ').unwrap_or_default();
            let shard = shard
                .parse()
                .map_err(|error| DieselError::DeserializationError(Box::new(error)))?;
            Ok((shard, Amount::parse(amount, field.column_type)?))
        });
        amounts.collect()
    }

    fn all_shards(&self) -> StatementRows<'_, DB> {
        StatementRows {
            shard: None,
            ..self.rows(RowKind::Shards)
        }
    }

    /// The error of a parent that is unfit.
    pub(crate) fn unfit(&self, key: &P::Key, reason: Unfit) -> DieselError {
        self.of.unfit(key, reason).into()
    }

    /// The error of the parent of this number, in key order.
    fn unfit_at(&self, parent: usize, reason: Unfit) -> DieselError {
        match self.locked.get(parent) {
            Some(key) => self.unfit(key, reason),
            None => DieselError::NotFound, // it is one of those that are held
        }
    }

    fn rows(&self, rows: RowKind) -> StatementRows<'_, DB> {
        StatementRows {
            rows,
            names: self.of.names(),
            keys: &self.keys,
            shard: self.shard,
        }
    }

    /// Adds these amounts to the bases of `fields`, of each parent in their order, by an `assignment` that does so, in a transaction whose
    /// snapshot is as young as the parents' locks.
    ///
    /// # Errors
    /// [`Error::Unfit`](crate::Error::Unfit).
    pub(crate) async fn add_to_bases<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        fields: &Fields<'_>,
        amounts: &[&[Amount]],
        assignment: &impl QueryFragment<DB>,
    ) -> QueryResult<()> {
        let before = self.states(link, fields, Sums::Seen).await?;
        let mut expected = before.clone();
        for (parent, amounts) in expected.iter_mut().zip(amounts) {
            for (state, amount) in parent.iter_mut().zip(*amounts) {
                if let FieldState::Sum { base, .. } = state {
                    *base += amount;
                }
            }
        }
        self.write_bases(link, assignment, fields, Sums::Seen, &before, &expected)
            .await
    }

    /// The parents among these of which at least `shards` are filled, and the others.
    pub(crate) async fn hot_and_cold<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        shards: u16,
    ) -> QueryResult<[Self; 2]> {
        let find = FindHot {
            of: self.rows(RowKind::Parents),
            shards: shards.into(),
        };
        let are_hot = match self.is_empty() {
            true => vec![],
            false => link.load::<i32, _>(find).await?,
        };
        let (mut hot, mut cold) = (vec![], vec![]);
        for (key, is_hot) in self.locked.iter().zip(are_hot) {
            let parents = if is_hot != 0 { &mut hot } else { &mut cold };
            parents.push(key.clone());
        }
        Ok([hot, cold].map(|parents| Self::locked(self.of, parents)))
    }

    /// Locks the shards of parents that were locked without them.
    pub(crate) async fn with_shards<M: LoadIo<Conn, Backend = DB>, Conn>(
        mut self,
        link: &mut Link<'_, M, Conn>,
        strength: Strength,
    ) -> QueryResult<Self> {
        self.shards = self.lock_shards(link, strength).await?;
        Ok(self)
    }

    /// Locks the shards, where rows can be locked.
    async fn lock_shards<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        strength: Strength,
    ) -> QueryResult<Option<LockedShards>> {
        let clause = link.dialect().locks_rows(strength);
        let (Some(clause), 1..) = (clause, self.locked.len()) else {
            return Ok(None);
        };
        let of = self.rows(RowKind::Shards);
        let locked = link.load::<i32, _>(LockShards { of, clause }).await?;
        Ok(Some(LockedShards {
            number: locked.len(),
            filled: locked.iter().filter(|filled| **filled != 0).count(),
        }))
    }

    /// Reads the bases of `fields` and the sums of their shards, or their totals. Shards that are to be `Replaced` are not read: their
    /// sum may be out of every range.
    ///
    /// # Errors
    /// [`Unfit::Removed`] if not all of them are there, [`Unfit::NoBase`] for a base that is `NULL`, [`Unfit::Altered`] for one
    /// that is no number.
    pub(crate) async fn states<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        fields: &Fields<'_>,
        sums: Sums,
    ) -> QueryResult<States> {
        if fields.is_empty() {
            return Ok(vec![vec![]; self.locked.len()]);
        }
        let of = self.rows(RowKind::Parents);
        let read = ReadStates { of, fields, sums };
        let texts = link.load::<Option<String>, _>(read);
        let texts = texts.await?;
        if texts.len() != self.locked.len() {
            return Err(self.unfit_at(0, Unfit::Removed));
        }
        let mut states = Vec::with_capacity(texts.len());
        for (parent, text) in texts.iter().enumerate() {
            let text = text.as_deref().ok_or(Unfit::NoBase);
            let state = text.and_then(|text| parse_states(fields, text));
            states.push(state.map_err(|reason| self.unfit_at(parent, reason))?);
        }
        Ok(states)
    }

    /// Compares the parents with what they are to hold after an operation.
    ///
    /// # Errors
    /// [`Error::Unfit`](crate::Error::Unfit) if anything differs, whatever the reason.
    async fn check<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        fields: &Fields<'_>,
        sums: Sums,
        before: &States,
        expected: &States,
    ) -> QueryResult<()> {
        let dialect = link.dialect();
        let found = self.states(link, fields, sums).await?;
        let parents = before.iter().zip(expected).zip(&found);
        for (parent, ((before, expected), found)) in parents.enumerate() {
            let fields = before.iter().zip(expected).zip(found).zip(fields);
            for (((before, expected), found), field) in fields {
                let rounds = dialect.rounds_sums(field.column_type);
                if let Some(unfit) = Unfit::between(field, before, expected, found, rounds) {
                    return Err(match self.others_appeared(link).await? {
                        true => appeared(),
                        false => self.unfit_at(parent, unfit),
                    });
                }
            }
        }
        Ok(())
    }

    /// Whether more shards can be locked by now than were, where that matters.
    async fn others_appeared<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<bool> {
        let Some(locked) = self.shards else {
            return Ok(false);
        };
        let now = self.lock_shards(link, Strength::ExclusiveAtOnce).await?;
        Ok(now.is_some_and(|now| now.number > locked.number))
    }

    /// Refuses what was done if a shard appeared meanwhile, where this lock lets others create some.
    ///
    /// # Errors
    /// A conflict.
    pub(crate) async fn refuse_others<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<()> {
        let dialect = link.dialect();
        let may_appear =
            dialect.locks_rows(Strength::Exclusive) != dialect.locks_rows(Strength::Full);
        match may_appear && self.others_appeared(link).await? {
            true => Err(appeared()),
            false => Ok(()),
        }
    }

    /// Adds the shards that are held to the bases and empties them: no total changes. A shard of each parent keeps the rests that its bases
    /// round away, unless the parent is to have no shards.
    ///
    /// # Errors
    /// [`Error::Unfit`](crate::Error::Unfit) if a base or a shard came to hold anything else.
    pub(crate) async fn fold<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        keeps_rests: bool,
    ) -> QueryResult<Moved> {
        let names = self.of.names();
        let mut sums = zeros(names.fields);
        if self.is_empty() {
            return Ok(Moved {
                parents: 0,
                shards: 0,
                sums,
            });
        }
        let all: Vec<_> = names.fields.iter().collect();
        let before = self.states(link, &all, Sums::Read).await?;
        let (mut added, mut expected) = (before.clone(), before.clone());
        let mut rests = vec![];
        for (parent, (added, expected)) in added.iter_mut().zip(&mut expected).enumerate() {
            let states = added.iter_mut().zip(expected);
            for (i, ((added, expected), sum)) in states.zip(&mut sums).enumerate() {
                match added {
                    FieldState::Sum { base, shards } => {
                        let zero = Amount::zero(all[i].column_type);
                        let (new, rest) = base.plus(shards, all[i].column_type);
                        if !new.is_finite() {
                            return Err(self.unfit_at(parent, Unfit::OutOfRange));
                        }
                        *sum += &shards.minus(&rest).unwrap_or(zero.clone()); // it is one of a field
                        *base = new;
                        let keeps_it = keeps_rests && rest != zero;
                        *expected = FieldState::Sum {
                            base: base.clone(),
                            shards: if keeps_it { rest.clone() } else { zero },
                        };
                        if let (true, Some(rest)) = (keeps_it, rest.literal()) {
                            rests.push((i, parent, rest));
                        }
                    }
                    FieldState::Peak { base, total } => {
                        base.clone_from(total);
                        expected.clone_from(added);
                    }
                }
            }
        }
        let values = base_values(link.dialect(), &all, &before, &added);
        let parents = match link.dialect().reads_what_triggers_write() {
            true => self.add_shards(link, &values).await?,
            false => self.write_values(link, values).await?,
        };
        // A trigger on the parent may have added to shards: that must not be emptied with the rest.
        self.check(link, &all, Sums::Read, &before, &added).await?;
        let shards = self.empty(link, &all).await?;
        if self.shards.is_some_and(|locked| shards > locked.filled) {
            return Err(appeared());
        }
        self.write_rests(link, &all, rests).await?;
        self.check(link, &all, Sums::Read, &added, &expected)
            .await?;
        Ok(Moved {
            parents,
            shards,
            sums,
        })
    }

    /// Adds shards to their bases where one of them is not empty, and to those that round the sums that were read, so that the rests are
    /// theirs. The number of parents.
    async fn add_shards<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        values: &[BaseValues<'_>],
    ) -> QueryResult<usize> {
        let names = self.of.names();
        let changes: BTreeSet<_> = values.iter().flat_map(BaseValues::parents).collect();
        let changed = KeysAre(
            changes
                .iter()
                .filter_map(|parent| self.keys.0.get(*parent))
                .collect(),
        );
        let leave_rests = names.fields.iter().any(ShardsColumn::leaves_rests);
        if leave_rests && changes.is_empty() {
            return Ok(0);
        }
        let of = StatementRows {
            keys: if leave_rests { &changed } else { &self.keys },
            ..self.rows(RowKind::Parents)
        };
        let keys = &self.keys.0;
        link.execute(AddShardsToBases { of, keys, values }).await
    }

    /// Writes rests, each of a field of a parent, to the first of the parent's shards, which are empty.
    async fn write_rests<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        fields: &Fields<'_>,
        rests: Vec<(usize, usize, String)>,
    ) -> QueryResult<()> {
        if rests.is_empty() {
            return Ok(());
        }
        let of = self.rows(RowKind::Parents);
        let first = link.load::<i32, _>(SelectFirstShards { of }).await?;
        let parents: BTreeSet<_> = rests.iter().map(|(_, parent, _)| *parent).collect();
        let written = KeysAre(
            parents
                .iter()
                .filter_map(|parent| self.keys.0.get(*parent))
                .collect(),
        );
        let shards = parents
            .iter()
            .filter_map(|parent| Some((*parent, first.get(*parent)?.to_string())));
        let values = fields.iter().enumerate().map(|(i, field)| BaseValues {
            field,
            of: rests
                .iter()
                .filter(|rest| rest.0 == i)
                .map(|(_, parent, rest)| (*parent, rest.clone()))
                .collect(),
        });
        let write = WriteRests {
            of: StatementRows {
                keys: &written,
                ..self.rows(RowKind::Shards)
            },
            keys: &self.keys.0,
            shards: &shards.collect::<Vec<_>>(),
            values: &values
                .filter(|values| !values.of.is_empty())
                .collect::<Vec<_>>(),
        };
        link.execute(write).await.map(drop)
    }

    /// Adds values to the bases of sums, by one statement, and writes the others, by one for each field. The number of parents.
    async fn write_values<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        values: Vec<BaseValues<'_>>,
    ) -> QueryResult<usize> {
        let (added, new): (Vec<_>, Vec<_>) =
            values.into_iter().partition(|values| values.field.is_sum());
        let mut written = BTreeSet::new();
        let statements = std::iter::once(&added[..]).chain(new.chunks(1));
        for values in statements {
            let parents: BTreeSet<_> = values.iter().flat_map(BaseValues::parents).collect();
            if parents.is_empty() {
                continue;
            }
            let write = WriteValues {
                names: self.of.names(),
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

    /// Writes columns of the bases, `assignments`, and empties the shards of these `fields` if they are `Replaced`, so that the parents hold
    /// what is `expected` of them, and nothing else.
    ///
    /// # Errors
    /// [`Error::Unfit`](crate::Error::Unfit) if they do not.
    pub(crate) async fn write_bases<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        assignments: &impl QueryFragment<DB>,
        fields: &Fields<'_>,
        sums: Sums,
        before: &States,
        expected: &States,
    ) -> QueryResult<()> {
        let of = self.rows(RowKind::Parents);
        link.execute(Write { of, assignments }).await?;
        let sums = match sums {
            Sums::Replaced => {
                self.empty(link, fields).await?;
                Sums::Read
            }
            sums => sums,
        };
        self.check(link, fields, sums, before, expected).await
    }

    /// Writes the base of one field, so that it holds what is expected of it, whatever others do to the shards meanwhile.
    ///
    /// # Errors
    /// [`Error::Unfit`](crate::Error::Unfit) if it does not.
    pub(crate) async fn write_base_alone<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        assignment: &impl QueryFragment<DB>,
        field: &ShardsColumn,
        before: &States,
        expected: &States,
    ) -> QueryResult<()> {
        let of = self.rows(RowKind::Parents);
        link.execute(Write {
            of,
            assignments: assignment,
        })
        .await?;
        self.check(link, &[field], Sums::Replaced, before, expected)
            .await
    }

    /// Writes columns of the shards, whatever that does to the totals: the bases are to be [written](Self::write_bases) next.
    pub(crate) async fn write_shards<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        assignments: &impl QueryFragment<DB>,
    ) -> QueryResult<usize> {
        let of = self.rows(RowKind::Shards);
        link.execute(Write { of, assignments }).await
    }

    /// Sets fields of the shards to zero. The number of shards that were not.
    async fn empty<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        fields: &Fields<'_>,
    ) -> QueryResult<usize> {
        let of = self.rows(RowKind::Shards);
        link.execute(EmptyShards { of, fields }).await
    }

    /// Removes the shards numbered `first` and above that are empty. The number removed.
    pub(crate) async fn remove_shards<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        first: u16,
    ) -> QueryResult<usize> {
        if self.is_empty() {
            return Ok(0);
        }
        let of = self.rows(RowKind::Shards);
        let first = i32::from(first);
        link.execute(RemoveShards { of, first }).await
    }

    /// Removes the shards of those that are no parents, which nobody could lock, in the transaction that is open. The number removed.
    ///
    /// The shards are locked before the parents are looked for. So no count is removed with them that was committed for a parent
    /// which is being inserted meanwhile.
    ///
    /// # Errors
    /// [`Unfit::NoRow`] where row security may hide parents from this role.
    pub(crate) async fn remove_orphans<M: LoadIo<Conn, Backend = DB>, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<usize> {
        if self.is_empty() {
            return Ok(0);
        }
        self.refuse_policy(self.of.names().parent, Unfit::NoRow, link)
            .await?;
        self.lock_shards(link, Strength::Exclusive).await?;
        let of = self.rows(RowKind::Shards);
        link.execute(RemoveOrphans { of }).await
    }
}

/// A parent that can be seen and not be locked may have been inserted in between: so often it is tried again.
pub(crate) const TRIES_TO_LOCK: u8 = 3;

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
    let mut values = text.split(' ');
    let parse = |field: &ShardsColumn, text: &str| {
        Amount::parse(text, field.column_type).map_err(|_| Unfit::Altered {
            field: field.name.to_string(),
            expected: "a number".to_owned(),
            found: format!("`{text}`"),
        })
    };
    let states = fields.iter().map(|field| {
        let (Some(base), Some(value)) = (values.next(), values.next()) else {
            return Err(Unfit::Removed);
        };
        Ok(match field.is_sum() {
            true => FieldState::Sum {
                base: parse(field, base)?,
                shards: parse(field, value)?,
            },
            false => FieldState::Peak {
                base: base.to_owned(),
                total: value.to_owned(),
            },
        })
    });
    states.collect()
}

/// What a fold adds to bases, or writes to those that keep a value, where that changes them.
fn base_values<'f>(
    dialect: Dialect,
    fields: &'f Fields<'f>,
    before: &States,
    added: &States,
) -> Vec<BaseValues<'f>> {
    let fields = fields.iter().enumerate().map(|(i, field)| {
        let parents = before.iter().zip(added).enumerate();
        let values = parents.filter_map(|(parent, (before, added))| {
            let value = match (before.get(i)?, added.get(i)?) {
                (FieldState::Sum { base, shards }, FieldState::Sum { base: new, .. }) => {
                    shards.literal().filter(|_| base != new)
                }
                (FieldState::Peak { base, total }, _) => {
                    (base != total).then(|| literal(dialect, total))
                }
                _ => None, // they are of one field
            };
            Some((parent, value?))
        });
        BaseValues {
            field,
            of: values.collect(),
        }
    });
    fields.filter(|field| !field.of.is_empty()).collect()
}

/// A count has created a shard since the others were locked, on PostgreSQL, or elsewhere by a connection that has switched foreign keys
/// off.
fn appeared() -> DieselError {
    let message = "a shard appeared while its row was locked";
    database_error(DatabaseErrorKind::SerializationFailure, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_schema::players::table as players;
    use crate::test_schema::videos::table as videos;

    #[test]
    fn states_are_pairs_of_values() {
        let fields: Vec<_> = videos::FIELDS.iter().collect();
        let states = parse_states(&fields, "100 10 1 -2").unwrap();
        let sum = |base, shards| FieldState::Sum {
            base: Amount::Integer(base),
            shards: Amount::Integer(shards),
        };
        assert_eq!(states, [sum(100, 10), sum(1, -2)]);
        let unfit = parse_states(&fields, "x 10 1 -2").unwrap_err();
        assert!(matches!(unfit, Unfit::Altered { field, .. } if field == "views"));
        assert_eq!(parse_states(&fields, "100 10 1"), Err(Unfit::Removed));
        let fields: Vec<_> = players::FIELDS[..3].iter().collect();
        let states = parse_states(&fields, "1 2 7 9 2026-01-01T10:00:00 NULL").unwrap();
        let peak = |base: &str, total: &str| FieldState::Peak {
            base: base.to_owned(),
            total: total.to_owned(),
        };
        assert_eq!(
            states,
            [
                sum(1, 2),
                peak("7", "9"),
                peak("2026-01-01T10:00:00", "NULL")
            ]
        );
    }
}
