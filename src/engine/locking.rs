//! Parents that are held: locked together with their shards, so that only the holder changes either.
//!
//! The parent's row lock comes first and is the mutex: while it is held, nobody else holds the parent. Then the shards are locked, in the
//! order in which increments lock them. Increments on these shards wait until the holder's transaction ends.
//!
//! On MySQL no shard can be created meanwhile, since that locks the parent for the foreign key. On PostgreSQL a fold, a repair and a bounded
//! counter let rows that refer to the parent be inserted, shards too: a stream of the application's own rows would hold off a stronger lock
//! forever. A fold and a bounded counter begin again if a shard appears. A set locks the parent against new shards. So does a fold in a
//! caller's transaction, which may write the base next. Otherwise an increment on a new shard could be seen before their commit and survive it.

use std::collections::BTreeSet;
use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use diesel::result::{DatabaseErrorKind, Error as DieselError};

use super::keyed::{Parents, ReadInto, keys_are};
use super::retry_loop::RetryLoop;
use crate::backend::{Dialect, ShardedBackend, Strength, literal};
use crate::connection::{Io, Link, LoadIo, TransactionOptions};
use crate::error::database_error;
use crate::model::{Amount, FieldValue, FieldValues, ShardedColumn, ShardedTable, ShardsColumn};
use crate::policy::RetryPolicy;
pub(crate) use crate::query_builder::Sums;
use crate::query_builder::{
    AddShardsToBases, BaseValues, EmptyShards, Fields, FindHot, FindPolicy, KeysAre, LockShards,
    NotLocked, PickAgain, ReadShards, ReadStates, RemoveOrphans, RemoveShards, RowKind,
    SelectFirstShards, SelectKeys, SelectShards, StatementRows, Write, WriteRests, WriteValues,
};
use crate::unfit::{FieldState, Unfit};

/// Parents that the connection's transaction has locked, and maybe all their shards or one of each.
///
/// It contains only parents whose locks were acquired. A parent that was picked earlier and is gone when it is locked may come back under the
/// same key, with shards of its own.
pub(crate) struct LockedRows<P: Parents<DB>, DB: ShardedBackend> {
    of: P,
    /// In key order.
    pub(crate) locked: Vec<P::Key>,
    /// A `WHERE` clause that names them.
    pub(crate) keys: KeysAre<P::KeyIs>,
    /// Parents that are visible but were not locked, where row security may hide rows from locks. A parent that has come back since may be
    /// among them.
    pub(crate) not_locked: Vec<P::Key>,
    /// The number of the one shard of each parent that is held; `None` if all are.
    only: Option<i32>,
    /// The shards that were locked, where rows can be locked and more shards may be created.
    shards: Option<LockedShards>,
}

/// Shards that were locked.
#[derive(Debug, Clone, Copy)]
struct LockedShards {
    number: usize,
    filled: usize,
}

/// The base and the shards of some fields of each locked parent, in key order.
pub(crate) type States = Vec<Vec<FieldState>>;

/// The amounts that moved from shards to bases.
#[derive(Debug, Clone, Default)]
pub(crate) struct Moved {
    /// The number of parents that had something to move.
    pub(crate) parents: usize,
    /// The number of shards that it was moved from.
    pub(crate) shards: usize,
    /// How much of each field.
    pub(crate) sums: Vec<Amount>,
    /// The new states of all parents that are held, in key order.
    pub(crate) states: States,
    /// The number of empty shards that were removed afterwards.
    pub(crate) removed: usize,
}

/// A transaction that may hold parents: one of its own, which is retried after a conflict, or a savepoint in the caller's.
pub(crate) fn locking<M: Io>(link: &mut Link<'_, M>, retry: RetryPolicy) -> QueryResult<RetryLoop> {
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

impl<P: Parents<DB>, DB: ShardedBackend> LockedRows<P, DB> {
    /// Locks the existing parents that `keys` names, without their shards. On SQLite, where other writers already wait, it only finds them.
    pub(crate) async fn lock<M: LoadIo<Backend = DB>>(
        of: P,
        link: &mut Link<'_, M>,
        keys: &KeysAre<P::KeyIs>,
        strength: Strength,
    ) -> QueryResult<Self> {
        let clause = link.dialect().locks_rows(strength);
        let lock = SelectKeys::locking(of.names(), keys, clause.unwrap_or_default());
        let mut rows = Self::locked(of, P::KeySql::rows(link, lock).await?);
        if rows.locked.len() < keys.0.len() && link.dialect().hides_rows_from_locks() {
            let not_locked = NotLocked {
                names: of.names(),
                keys,
                locked: &rows.keys,
                key_sql: PhantomData,
            };
            rows.not_locked = P::KeySql::rows(link, not_locked).await?;
        }
        Ok(rows)
    }

    /// The same, but every visible parent has to be lockable, and all of its shards visible.
    ///
    /// # Errors
    /// [`Unfit::NotLocked`] for a parent that is visible and cannot be locked; [`Unfit::HiddenShards`].
    pub(crate) async fn lock_all<M: LoadIo<Backend = DB>>(
        of: P,
        link: &mut Link<'_, M>,
        keys: &KeysAre<P::KeyIs>,
        strength: Strength,
    ) -> QueryResult<Self> {
        let mut tries = 0;
        loop {
            let rows = Self::lock(of, link, keys, strength).await?;
            rows.on(link).refuse_hidden_shards().await?;
            let Some(key) = rows.not_locked.last() else {
                return Ok(rows);
            };
            tries += 1;
            if tries == TRIES_TO_LOCK {
                return Err(rows.unfit(key, Unfit::NotLocked));
            }
        }
    }

    /// Parents that the open transaction has locked already.
    pub(crate) fn locked(of: P, locked: Vec<P::Key>) -> Self {
        LockedRows {
            keys: keys_are(&of, &locked),
            of,
            locked,
            not_locked: vec![],
            only: None,
            shards: None,
        }
    }

    /// Locks the shards too: those of one number, or all.
    pub(crate) async fn with_shards<M: LoadIo<Backend = DB>>(
        mut self,
        link: &mut Link<'_, M>,
        only: Option<i32>,
        strength: Strength,
    ) -> QueryResult<Self> {
        self.only = only;
        self.shards = self.on(link).lock_shards(strength).await?;
        Ok(self)
    }

    /// The held parents that are not cold, and those that are.
    pub(crate) fn split(&self, are_cold: &[bool]) -> [Self; 2] {
        [false, true].map(|cold| {
            let parents = self.locked.iter().zip(are_cold);
            let parents = parents.filter(|(_, is_cold)| **is_cold == cold);
            let parents = parents.map(|(key, _)| key.clone()).collect();
            LockedRows {
                only: self.only,
                ..Self::locked(self.of, parents)
            }
        })
    }

    /// Whether no parent is held.
    pub(crate) fn is_empty(&self) -> bool {
        self.locked.is_empty()
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
            shard: self.only,
        }
    }

    /// The keys of the parents with these numbers, in key order.
    fn keys_of(&self, parents: &BTreeSet<usize>) -> KeysAre<&P::KeyIs> {
        let keys = parents.iter().filter_map(|parent| self.keys.0.get(*parent));
        KeysAre(keys.collect())
    }

    /// The statements on these rows.
    pub(crate) fn on<'a, 'l, M: LoadIo<Backend = DB>>(
        &'a self,
        link: &'a mut Link<'l, M>,
    ) -> OnLink<'a, 'l, P, M> {
        OnLink { rows: self, link }
    }
}

/// Locked rows, and the link of the transaction that holds them.
pub(crate) struct OnLink<'a, 'l, P: Parents<M::Backend>, M: LoadIo> {
    rows: &'a LockedRows<P, M::Backend>,
    link: &'a mut Link<'l, M>,
}

impl<P, DB, M> OnLink<'_, '_, P, M>
where
    P: Parents<DB>,
    DB: ShardedBackend,
    M: LoadIo<Backend = DB>,
{
    /// Locks the shards, where rows can be locked.
    async fn lock_shards(&mut self, strength: Strength) -> QueryResult<Option<LockedShards>> {
        let clause = self.link.dialect().locks_rows(strength);
        let (Some(clause), 1..) = (clause, self.rows.locked.len()) else {
            return Ok(None);
        };
        let of = self.rows.rows(RowKind::Shards);
        let locked = self.link.load::<i32, _>(LockShards { of, clause }).await?;
        Ok(Some(LockedShards {
            number: locked.len(),
            filled: locked.iter().filter(|filled| **filled != 0).count(),
        }))
    }

    /// The held parents that `filter` still matches, as the transaction sees them. A parent may have stopped matching before it was locked.
    pub(crate) async fn matching(
        &mut self,
        filter: &impl QueryFragment<DB>,
    ) -> QueryResult<LockedRows<P, DB>> {
        let again = PickAgain {
            names: self.rows.of.names(),
            filter,
            keys: &self.rows.keys,
            key_sql: PhantomData,
        };
        let still = match self.rows.is_empty() {
            true => vec![],
            false => P::KeySql::rows(self.link, again).await?,
        };
        Ok(LockedRows {
            shards: self.rows.shards,
            ..LockedRows::locked(self.rows.of, still)
        })
    }

    /// Refuses parents whose totals may differ from those that this role sees.
    ///
    /// # Errors
    /// [`Unfit::HiddenShards`].
    pub(crate) async fn refuse_hidden_shards(&mut self) -> QueryResult<()> {
        let shards_table = self.rows.of.names().shards_table;
        self.refuse_policy(&shards_table, Unfit::HiddenShards).await
    }

    /// Refuses parents for this reason if row security may hide rows of `table` from this role.
    async fn refuse_policy(
        &mut self,
        table: &(dyn QueryFragment<DB> + Sync),
        reason: Unfit,
    ) -> QueryResult<()> {
        let hides_rows = self.link.dialect().hides_rows_from_locks();
        let (true, Some(key)) = (hides_rows, self.rows.locked.first()) else {
            return Ok(());
        };
        let active = self.link.load::<i32, _>(FindPolicy(table)).await?;
        match active.is_empty() {
            true => Ok(()),
            false => Err(self.rows.unfit(key, reason)),
        }
    }

    /// The numbers of all existing shards, held or not.
    pub(crate) async fn shards(&mut self) -> QueryResult<Vec<i32>> {
        let (of, clause) = (self.rows.rows(RowKind::Shards), "");
        self.link.load::<i32, _>(SelectShards { of, clause }).await
    }

    /// Locks the shards that nobody else holds, and returns their numbers; `None` where a statement cannot leave out locked rows.
    pub(crate) async fn lock_free_shards(&mut self) -> QueryResult<Option<Vec<i32>>> {
        let dialect = self.link.dialect();
        let clause = dialect.locks_rows(Strength::ExclusiveIfFree);
        let Some(clause) = clause.filter(|_| dialect.supports_skip_locked()) else {
            return Ok(None);
        };
        let of = self.rows.rows(RowKind::Shards);
        let free = self.link.load::<i32, _>(SelectShards { of, clause });
        free.await.map(Some)
    }

    /// The amount of a field of integers on each shard, by the shard's number. It includes what is committed and what this transaction
    /// wrote.
    pub(crate) async fn amounts(
        &mut self,
        field: &ShardsColumn,
    ) -> QueryResult<Vec<(i32, Amount)>> {
        let of = self.rows.rows(RowKind::Shards);
        let shards = self.link.load::<(i32, String), _>(ReadShards { of, field });
        let amounts = shards.await?.into_iter();
        let amounts =
            amounts.map(|(shard, digits)| Ok((shard, Amount::parse(&digits, field.column_type)?)));
        amounts.collect()
    }

    /// Adds these amounts to the bases of a field, one for each parent, in key order. The transaction's snapshot has to be as young as the
    /// parents' locks.
    ///
    /// # Errors
    /// [`Error::Unfit`](crate::Error::Unfit).
    pub(crate) async fn add_to_bases(
        &mut self,
        field: &ShardsColumn,
        amounts: &[Amount],
    ) -> QueryResult<()> {
        let before = self.states(&[field], Sums::Seen).await?;
        let mut expected = before.clone();
        for (state, amount) in expected.iter_mut().flatten().zip(amounts) {
            if let FieldState::Sum { base, .. } = state {
                *base += amount;
            }
        }
        let literals = amounts.iter().enumerate();
        let literals = literals.filter_map(|(parent, amount)| Some((parent, amount.literal()?)));
        let of = literals.collect();
        self.write_values(vec![BaseValues { field, of }]).await?;
        self.check(&[field], Sums::Seen, &before, &expected).await
    }

    /// Whether each of the held parents has fewer filled shards than this, in key order.
    pub(crate) async fn are_cold(&mut self, shards: u16) -> QueryResult<Vec<bool>> {
        let find = FindHot {
            of: self.rows.rows(RowKind::Parents),
            shards: shards.into(),
        };
        let are_hot = match self.rows.is_empty() {
            true => vec![],
            false => self.link.load::<i32, _>(find).await?,
        };
        Ok(are_hot.into_iter().map(|is_hot| is_hot == 0).collect())
    }

    /// Reads the bases of `fields` and the sums of their shards, or their totals. Shards that are to be `Replaced` are not read: their
    /// sum may be out of every range.
    ///
    /// # Errors
    /// [`Unfit::Removed`] if not all of them are there; as [`FieldState::of`].
    pub(crate) async fn states(&mut self, fields: &Fields<'_>, sums: Sums) -> QueryResult<States> {
        if fields.is_empty() {
            return Ok(vec![vec![]; self.rows.locked.len()]);
        }
        let of = self.rows.rows(RowKind::Parents);
        let read = ReadStates { of, fields, sums };
        let rows = self.link.load::<FieldValues, _>(read).await?;
        if rows.len() != self.rows.locked.len() {
            return Err(self.rows.unfit_at(0, Unfit::Removed));
        }
        let rows = rows.into_iter().enumerate();
        let states = rows.map(|(parent, FieldValues(values))| {
            let mut values = values.into_iter();
            let states = fields.iter().map(|field| {
                let (base, merged) = (values.next().flatten(), values.next().flatten());
                FieldState::of(field, base, merged)
            });
            let states: Result<_, _> = states.collect();
            states.map_err(|reason| self.rows.unfit_at(parent, reason))
        });
        states.collect()
    }

    /// Compares the parents with what they are to hold after an operation.
    ///
    /// # Errors
    /// [`Error::Unfit`](crate::Error::Unfit) if anything differs, whatever the reason.
    pub(crate) async fn check(
        &mut self,
        fields: &Fields<'_>,
        sums: Sums,
        before: &States,
        expected: &States,
    ) -> QueryResult<()> {
        let dialect = self.link.dialect();
        let found = self.states(fields, sums).await?;
        let parents = before.iter().zip(expected).zip(&found);
        for (parent, ((before, expected), found)) in parents.enumerate() {
            let fields = before.iter().zip(expected).zip(found).zip(fields);
            for (((before, expected), found), field) in fields {
                let rounds = dialect.rounds_sums(field.column_type);
                if let Some(unfit) = Unfit::between(field, before, expected, found, rounds) {
                    return Err(match self.others_appeared().await? {
                        true => appeared(),
                        false => self.rows.unfit_at(parent, unfit),
                    });
                }
            }
        }
        Ok(())
    }

    /// Whether more shards can be locked now than were locked, where that matters.
    async fn others_appeared(&mut self) -> QueryResult<bool> {
        let Some(locked) = self.rows.shards else {
            return Ok(false);
        };
        let now = self.lock_shards(Strength::ExclusiveAtOnce).await?;
        Ok(now.is_some_and(|now| now.number > locked.number))
    }

    /// Refuses the operation if a shard appeared meanwhile, where this lock lets others create shards.
    ///
    /// # Errors
    /// A conflict.
    pub(crate) async fn refuse_others(&mut self) -> QueryResult<()> {
        let dialect = self.link.dialect();
        let may_appear =
            dialect.locks_rows(Strength::Exclusive) != dialect.locks_rows(Strength::Full);
        match may_appear && self.others_appeared().await? {
            true => Err(appeared()),
            false => Ok(()),
        }
    }

    /// Adds the shards that are held to the bases and empties them: no total changes. A shard of each parent keeps the rests that its bases
    /// round away, unless the parent is to have no shards.
    ///
    /// # Errors
    /// [`Error::Unfit`](crate::Error::Unfit) if a base or a shard came to hold anything else.
    pub(crate) async fn fold(&mut self, keeps_rests: bool) -> QueryResult<Moved> {
        let (rows, dialect) = (self.rows, self.link.dialect());
        let all: Vec<_> = rows.of.names().fields.iter().collect();
        if rows.is_empty() {
            let sums = zeros(rows.of.names().fields);
            return Ok(Moved {
                sums,
                ..Moved::default()
            });
        }
        let before = self.states(&all, Sums::Read).await?;
        let moves = Moves::of(dialect, &all, &before, keeps_rests)
            .map_err(|parent| rows.unfit_at(parent, Unfit::OutOfRange))?;
        let parents = match dialect.reads_what_triggers_write() {
            true => self.add_shards(&moves.values).await?,
            false => self.write_values(moves.values).await?,
        };
        // A trigger on the parent may have added to shards. Such additions must not be emptied with the rest.
        self.check(&all, Sums::Read, &before, &moves.added).await?;
        let shards = self.empty(&all).await?;
        if rows.shards.is_some_and(|locked| shards > locked.filled) {
            return Err(appeared());
        }
        self.write_rests(moves.rests).await?;
        self.check(&all, Sums::Read, &moves.added, &moves.emptied)
            .await?;
        Ok(Moved {
            parents,
            shards,
            sums: moves.sums,
            states: moves.emptied,
            removed: 0,
        })
    }

    /// Adds shards to their bases where one of them is not empty, and returns the number of parents. Bases that round get the sums that
    /// were read, so that the rests belong to these sums.
    async fn add_shards(&mut self, values: &[BaseValues<'_>]) -> QueryResult<usize> {
        let rows = self.rows;
        let changes: BTreeSet<_> = values.iter().flat_map(BaseValues::parents).collect();
        let changed = rows.keys_of(&changes);
        let mut fields = rows.of.names().fields.iter();
        let leave_rests = fields.any(ShardsColumn::leaves_rests);
        if leave_rests && changes.is_empty() {
            return Ok(0);
        }
        let of = StatementRows {
            keys: if leave_rests { &changed } else { &rows.keys },
            ..rows.rows(RowKind::Parents)
        };
        let keys = &rows.keys.0;
        let add = AddShardsToBases { of, keys, values };
        self.link.execute(add).await
    }

    /// Writes rests to the first shard of each parent that has some; these shards are empty.
    async fn write_rests(&mut self, rests: Vec<BaseValues<'_>>) -> QueryResult<()> {
        let parents: BTreeSet<_> = rests.iter().flat_map(BaseValues::parents).collect();
        if parents.is_empty() {
            return Ok(());
        }
        let of = self.rows.rows(RowKind::Parents);
        let first = self.link.load::<i32, _>(SelectFirstShards { of }).await?;
        let shards = parents
            .iter()
            .filter_map(|parent| Some((*parent, first.get(*parent)?.to_string())));
        let write = WriteRests {
            of: StatementRows {
                keys: &self.rows.keys_of(&parents),
                ..self.rows.rows(RowKind::Shards)
            },
            keys: &self.rows.keys.0,
            shards: &shards.collect::<Vec<_>>(),
            values: &rests,
        };
        self.link.execute(write).await.map(drop)
    }

    /// Adds values to the bases of sums by one statement, and writes the bases of each other field by one more. Returns the number of
    /// parents.
    async fn write_values(&mut self, values: Vec<BaseValues<'_>>) -> QueryResult<usize> {
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
                names: self.rows.of.names(),
                keys: &self.rows.keys.0,
                values,
                written: self.rows.keys_of(&parents),
            };
            self.link.execute(write).await?;
            written.extend(parents);
        }
        Ok(written.len())
    }

    /// Writes columns of the bases, or of the shards before them. The caller then [checks](Self::check) what the parents hold.
    pub(crate) async fn write(
        &mut self,
        rows: RowKind,
        assignments: &impl QueryFragment<DB>,
    ) -> QueryResult<usize> {
        let of = self.rows.rows(rows);
        self.link.execute(Write { of, assignments }).await
    }

    /// Sets fields of the shards to zero, and returns the number of shards that were not zero.
    pub(crate) async fn empty(&mut self, fields: &Fields<'_>) -> QueryResult<usize> {
        let of = self.rows.rows(RowKind::Shards);
        self.link.execute(EmptyShards { of, fields }).await
    }

    /// Removes the empty shards numbered `first` and above, and returns their number.
    pub(crate) async fn remove_shards(&mut self, first: u16) -> QueryResult<usize> {
        if self.rows.is_empty() {
            return Ok(0);
        }
        let of = self.rows.rows(RowKind::Shards);
        let first = i32::from(first);
        self.link.execute(RemoveShards { of, first }).await
    }

    /// Removes the shards under keys that no parent has, in the open transaction, and returns their number. There is no parent to lock.
    ///
    /// The shards are locked before the parents are looked for. So it removes no increment that was committed for a parent that is being
    /// inserted meanwhile.
    ///
    /// # Errors
    /// [`Unfit::NoRow`] where row security may hide parents from this role.
    pub(crate) async fn remove_orphans(&mut self) -> QueryResult<usize> {
        if self.rows.is_empty() {
            return Ok(0);
        }
        self.refuse_policy(self.rows.of.names().parent, Unfit::NoRow)
            .await?;
        self.lock_shards(Strength::Exclusive).await?;
        let of = self.rows.rows(RowKind::Shards);
        self.link.execute(RemoveOrphans { of }).await
    }
}

/// How many times to try a parent that is visible and was not locked: it may have been inserted in between.
pub(crate) const TRIES_TO_LOCK: u8 = 3;

/// A zero for each field.
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

/// What a fold writes to parents, and what they hold then.
struct Moves<'f> {
    /// What is added to the bases of a sum, or written to the bases of another field, where that changes them.
    values: Vec<BaseValues<'f>>,
    /// What the bases of a field round away and a shard is to keep.
    rests: Vec<BaseValues<'f>>,
    /// The parents with new bases, before their shards are emptied.
    added: States,
    /// The parents after that.
    emptied: States,
    /// How much of each field is moved.
    sums: Vec<Amount>,
}

impl<'f> Moves<'f> {
    /// # Errors
    /// The number of a parent whose total no base can hold.
    fn of(
        dialect: Dialect,
        fields: &Fields<'f>,
        before: &States,
        keeps_rests: bool,
    ) -> Result<Self, usize> {
        let nothing = fields.iter().map(|field| BaseValues { field, of: vec![] });
        let zeros = fields.iter().map(|field| Amount::zero(field.column_type));
        let mut moves = Moves {
            values: nothing.clone().collect(),
            rests: nothing.collect(),
            added: vec![],
            emptied: vec![],
            sums: zeros.collect(),
        };
        for (parent, states) in before.iter().enumerate() {
            let (mut added, mut emptied) = (vec![], vec![]);
            for (i, (state, field)) in states.iter().zip(fields).enumerate() {
                let moved = Move::of(dialect, field, state, keeps_rests).ok_or(parent)?;
                let of_parent = |value| (parent, value);
                moves.values[i].of.extend(moved.value.map(of_parent));
                moves.rests[i].of.extend(moved.rest.map(of_parent));
                moves.sums[i] += &moved.amount;
                added.push(moved.added);
                emptied.push(moved.emptied);
            }
            moves.added.push(added);
            moves.emptied.push(emptied);
        }
        moves.values.retain(|values| !values.of.is_empty());
        moves.rests.retain(|rests| !rests.of.is_empty());
        Ok(moves)
    }
}

/// What a fold moves of one field of one parent. Values and rests are literals.
struct Move {
    value: Option<String>,
    rest: Option<String>,
    amount: Amount,
    added: FieldState,
    emptied: FieldState,
}

impl Move {
    /// `None` if no base can hold the total.
    fn of(
        dialect: Dialect,
        field: &ShardsColumn,
        state: &FieldState,
        keeps_rests: bool,
    ) -> Option<Self> {
        let zero = Amount::zero(field.column_type);
        match state {
            FieldState::Sum { base, shards } => {
                let (new, rest) = base.plus(shards, field.column_type);
                if !new.is_finite() {
                    return None;
                }
                let is_kept = keeps_rests && rest != zero;
                Some(Move {
                    value: shards.literal().filter(|_| *base != new),
                    rest: rest.literal().filter(|_| is_kept),
                    amount: shards.minus(&rest)?,
                    added: FieldState::Sum {
                        base: new.clone(),
                        shards: shards.clone(),
                    },
                    emptied: FieldState::Sum {
                        base: new,
                        shards: if is_kept { rest } else { zero },
                    },
                })
            }
            FieldState::Peak { base, total } => {
                let folded = FieldState::Peak {
                    base: total.clone(),
                    total: total.clone(),
                };
                let value = match total {
                    Some(FieldValue::Number(number)) => number.literal(),
                    Some(FieldValue::Text(text)) => Some(literal(dialect, text)),
                    None => None,
                };
                Some(Move {
                    value: value.filter(|_| base != total),
                    rest: None,
                    amount: zero,
                    added: folded.clone(),
                    emptied: folded,
                })
            }
        }
    }
}

/// An increment created a shard after the others were locked: on PostgreSQL, or elsewhere on a connection that has switched foreign keys off.
fn appeared() -> DieselError {
    let message = "a shard appeared while its row was locked";
    database_error(DatabaseErrorKind::SerializationFailure, message)
}
