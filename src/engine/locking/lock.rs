//! Acquiring the locks, of parents first and then of their shards.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use diesel::result::Error as DieselError;

use crate::backend::{Dialect, ShardedBackend, Strength};
use crate::connection::{Io, Link, LoadIo, TransactionOptions};
use crate::engine::keyed::Parents;
use crate::engine::retry_loop::RetryLoop;
use crate::model::Amount;
use crate::policy::RetryPolicy;
use crate::query_builder::{Fields, FindPolicy, KeysAre, LockParents, NotLocked, Sums};
use crate::unfit::Unfit;

use super::locked::{LockError, LockedKeys};
use super::states::States;
use super::write::Moved;

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
    /// How many of the shards that were locked are not empty, where rows can be locked.
    filled: Option<usize>,
}

/// Which shards are held, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shards {
    /// The one of this number, or all.
    pub(crate) only: Option<i32>,
    /// A lock that cannot be acquired at once is a [`LockTimeout`](crate::Conflict::LockTimeout).
    pub(crate) at_once: bool,
}

impl Shards {
    /// All, once every lock was acquired.
    pub(crate) const ALL: Self = Shards {
        only: None,
        at_once: false,
    };
}

/// A transaction of its own that may hold parents and is tried again after a conflict, or a savepoint of the caller's.
pub(crate) fn locking<M, Conn>(
    link: &mut Link<'_, M, Conn>,
    retry: RetryPolicy,
) -> QueryResult<RetryLoop>
where
    M: Io<Conn>,
{
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
            filled: None,
        }
    }

    /// Locks the parents that `keys` names and that are there, and then their shards, in the transaction that is open.
    pub(crate) async fn lock<M, Conn>(
        of: P,
        link: &mut Link<'_, M, Conn>,
        keys: &KeysAre<P::KeyIs>,
        shards: Shards,
    ) -> QueryResult<Self>
    where
        M: LoadIo<Conn, Backend = DB>,
    {
        let strength = match shards.at_once {
            true => Strength::ExclusiveAtOnce,
            false => Strength::Exclusive,
        };
        let mut locked = Self::lock_parents(of, link, keys, strength).await?;
        locked.shard = shards.only;
        locked.filled = locked.rows().lock_shards(link, strength).await?;
        Ok(locked)
    }

    /// Locks the parents that `keys` names and that are there, without their shards. On SQLite, where other writers already
    /// wait, it only finds them.
    pub(crate) async fn lock_parents<M, Conn>(
        of: P,
        link: &mut Link<'_, M, Conn>,
        keys: &KeysAre<P::KeyIs>,
        strength: Strength,
    ) -> QueryResult<Self>
    where
        M: LoadIo<Conn, Backend = DB>,
    {
        let clause = link.dialect().locks_rows(strength);
        let lock = LockParents {
            names: of.names(),
            keys,
            clause: clause.unwrap_or_default(),
            key_sql: PhantomData,
        };
        let locked = P::load(link, lock).await?;
        Ok(Self::locked(of, locked))
    }

    /// Locks the parents that `keys` names and that are there, and then their shards; all that can be seen have to be lockable.
    ///
    /// # Errors
    /// [`Unfit::NotLocked`] for a parent that can be seen and not be locked.
    pub(crate) async fn lock_all<M, Conn>(
        of: P,
        link: &mut Link<'_, M, Conn>,
        keys: &KeysAre<P::KeyIs>,
    ) -> QueryResult<Self>
    where
        M: LoadIo<Conn, Backend = DB>,
    {
        let mut tries = 0;
        loop {
            let locked = Self::lock(of, link, keys, Shards::ALL).await?;
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
    pub(crate) async fn not_locked<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        keys: &KeysAre<P::KeyIs>,
    ) -> QueryResult<Vec<P::Key>>
    where
        M: LoadIo<Conn, Backend = DB>,
    {
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

    /// Refuses parents whose totals may be other than this role sees.
    ///
    /// # Errors
    /// [`Unfit::HiddenShards`].
    pub(crate) async fn refuse_hidden_shards<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<()>
    where
        M: LoadIo<Conn, Backend = DB>,
    {
        let hides_rows = link.dialect().hides_rows_from_locks();
        let (true, Some(key)) = (hides_rows, self.locked.first()) else {
            return Ok(());
        };
        let find = FindPolicy(self.of.names().shards_table);
        let active = link.load::<i32, _>(find).await?;
        match active.is_empty() {
            true => Ok(()),
            false => Err(self.unfit(key, Unfit::HiddenShards)),
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
    pub(crate) async fn shards<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<Vec<i32>>
    where
        M: LoadIo<Conn, Backend = DB>,
    {
        self.rows().shards(link).await
    }

    /// The error of a parent that is unfit.
    pub(crate) fn unfit(&self, key: &P::Key, reason: Unfit) -> DieselError {
        self.of.unfit(key, reason).into()
    }

    /// The error for this failure.
    fn error(&self, error: LockError) -> DieselError {
        match error {
            LockError::Unfit(parent, reason) => match self.locked.get(parent) {
                Some(key) => self.unfit(key, reason),
                None => DieselError::NotFound, // it is one of those that are held
            },
            LockError::Database(error) => error,
        }
    }

    fn rows(&self) -> LockedKeys<'_, P::KeyIs, DB> {
        LockedKeys {
            names: self.of.names(),
            keys: &self.keys,
            parents: self.locked.len(),
            shard: self.shard,
            filled: self.filled,
        }
    }

    /// See [`LockedKeys::states`].
    ///
    /// # Errors
    /// [`Error::Unfit`](crate::Error::Unfit).
    pub(crate) async fn states<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        fields: &Fields<'_>,
        sums: Sums,
    ) -> QueryResult<States>
    where
        M: LoadIo<Conn, Backend = DB>,
    {
        let states = self.rows().states(link, fields, sums).await;
        states.map_err(|error| self.error(error))
    }

    /// See [`LockedKeys::fold`].
    ///
    /// # Errors
    /// [`Error::Unfit`](crate::Error::Unfit).
    pub(crate) async fn fold<M, Conn>(&self, link: &mut Link<'_, M, Conn>) -> QueryResult<Moved>
    where
        M: LoadIo<Conn, Backend = DB>,
    {
        let moved = self.rows().fold(link).await;
        moved.map_err(|error| self.error(error))
    }

    /// See [`LockedKeys::write_bases`].
    ///
    /// # Errors
    /// [`Error::Unfit`](crate::Error::Unfit).
    pub(crate) async fn write_bases<A, M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        assignments: &A,
        fields: &Fields<'_>,
        empties: bool,
        before: &States,
        expected: &States,
    ) -> QueryResult<()>
    where
        M: LoadIo<Conn, Backend = DB>,
        A: QueryFragment<DB>,
    {
        let rows = self.rows();
        let written = rows
            .write_bases(link, assignments, fields, empties, before, expected)
            .await;
        written.map_err(|error| self.error(error))
    }

    /// Adds these amounts to the bases of `fields`, of each parent in their order, by an `assignment` that does so.
    ///
    /// # Errors
    /// [`Error::Unfit`](crate::Error::Unfit).
    pub(crate) async fn add_to_bases<A, M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        fields: &Fields<'_>,
        amounts: &[&[Amount]],
        assignment: &A,
    ) -> QueryResult<()>
    where
        M: LoadIo<Conn, Backend = DB>,
        A: QueryFragment<DB>,
    {
        let before = self.states(link, fields, Sums::Read).await?;
        let mut expected = before.clone();
        for (parent, amounts) in expected.iter_mut().zip(amounts) {
            for (state, amount) in parent.iter_mut().zip(*amounts) {
                state.base += amount;
            }
        }
        self.write_bases(link, assignment, fields, false, &before, &expected)
            .await
    }

    /// See [`LockedKeys::write_shards`].
    pub(crate) async fn write_shards<A, M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        assignments: &A,
    ) -> QueryResult<usize>
    where
        M: LoadIo<Conn, Backend = DB>,
        A: QueryFragment<DB>,
    {
        self.rows().write_shards(link, assignments).await
    }

    /// The parents among these of which at least `shards` are filled, and the others.
    pub(crate) async fn hot_and_cold<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        shards: u16,
    ) -> QueryResult<[Self; 2]>
    where
        M: LoadIo<Conn, Backend = DB>,
    {
        let are_hot = match self.is_empty() {
            true => vec![],
            false => self.rows().are_hot(link, shards).await?,
        };
        let (mut hot, mut cold) = (vec![], vec![]);
        for (key, is_hot) in self.locked.iter().zip(are_hot) {
            let parents = if is_hot { &mut hot } else { &mut cold };
            parents.push(key.clone());
        }
        Ok([hot, cold].map(|parents| Self::locked(self.of, parents)))
    }

    /// See [`LockedKeys::remove_shards`].
    pub(crate) async fn remove_shards<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        first: u16,
    ) -> QueryResult<usize>
    where
        M: LoadIo<Conn, Backend = DB>,
    {
        self.rows().remove_shards(link, first).await
    }
}

/// A parent that can be seen and not be locked may have been inserted in between: so often it is tried again.
pub(crate) const TRIES_TO_LOCK: u8 = 3;

/// The numbers of the shards that parents have.
pub(crate) async fn shards_of<P, DB, M, Conn>(
    of: P,
    link: &mut Link<'_, M, Conn>,
    keys: &KeysAre<P::KeyIs>,
) -> QueryResult<Vec<i32>>
where
    P: Parents<DB>,
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    let parents = LockedKeys {
        names: of.names(),
        keys,
        parents: keys.0.len(),
        shard: None,
        filled: None,
    };
    parents.shards(link).await
}
