//! Folding one batch, with no wait for a lock, or a short one.

use diesel::prelude::*;
use diesel::result::Error as DieselError;

use crate::backend::{Dialect, ShardedBackend};
use crate::conflict::{Conflict, Failure};
use crate::connection::{Link, LoadIo};
use crate::engine::{
    LockedParents, Moved, Parents, RetryLoop, Shards, TRIES_TO_LOCK, explain_of, locking,
    retry_loop, shards_of,
};
use crate::error::Error;
use crate::observe;
use crate::policy::RetryPolicy;
use crate::query_builder::KeysAre;
use crate::unfit::Unfit;

use super::folded::Folded;

/// The settings of every batch of a fold.
pub(in crate::operation) struct Folding<P> {
    pub(in crate::operation) of: P,
    /// Empty shards numbered from here on are removed, or none.
    pub(in crate::operation) keep: Option<u16>,
    /// All shards are removed of a parent of which fewer than this were filled.
    pub(in crate::operation) cold_below: Option<u16>,
    pub(in crate::operation) retry: RetryPolicy,
    pub(in crate::operation) dialect: Dialect,
    /// In a caller's transaction, which cannot try again later.
    pub(in crate::operation) inside: bool,
}

const AT_ONCE: Shards = Shards {
    only: None,
    at_once: true,
};

/// Why a fold of several parents, or of one, failed.
enum Trouble {
    /// Another transaction holds a lock, or a conflict came up.
    Blocked(DieselError),
    /// A base does not accept the values of its shards.
    Unfit(Unfit),
    Other(DieselError),
}

impl<P> Folding<P> {
    /// Folds parents together if all their locks can be acquired at once; else one by one, and busy ones shard by shard.
    ///
    /// A parent alone may wait for its locks where the wait can be bounded: its writers wait that long at most, and those of other
    /// parents do not.
    pub(super) async fn fold<T, DB, M, Conn>(
        &self,
        keys: Vec<P::Key>,
        folded: &mut Folded<T, P::Key>,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<()>
    where
        P: Parents<DB>,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let mut left = vec![(keys, 0)];
        while let Some((keys, tries)) = left.pop() {
            let named = self.of.are(&keys);
            match self.fold_together(&named, link).await {
                Ok((moved, removed, not_locked)) => {
                    folded.add(&moved, removed);
                    for key in not_locked {
                        match tries + 1 {
                            TRIES_TO_LOCK => folded.unfit.push((key, Unfit::NotLocked)),
                            tries => left.push((vec![key], tries)),
                        }
                    }
                }
                Err(error) => match (self.trouble(error), keys.len()) {
                    (Trouble::Other(error), _) => return Err(error),
                    (_, 2..) => {
                        left.extend(keys.into_iter().rev().map(|key| (vec![key], tries)));
                    }
                    (Trouble::Unfit(reason), _) => {
                        let unfit = keys.into_iter().map(|key| (key, reason.clone()));
                        folded.unfit.extend(unfit);
                    }
                    (Trouble::Blocked(_), _) => {
                        self.fold_shard_by_shard(keys, folded, link).await?;
                    }
                },
            }
        }
        Ok(())
    }

    async fn fold_together<DB, M, Conn>(
        &self,
        named: &KeysAre<P::KeyIs>,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<(Moved, usize, Vec<P::Key>)>
    where
        P: Parents<DB>,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let waits = named.0.len() == 1 && self.bound().is_some();
        // On SQLite there are no locks but that on the database.
        let (shards, retry) = match (self.dialect.has_row_locks(), waits) {
            (true, false) => (AT_ONCE, RetryPolicy::never()),
            (true, true) => (Shards::ALL, RetryPolicy::never()),
            (false, _) => (Shards::ALL, self.retry.clone()),
        };
        self.fold_locked(named, shards, retry, link).await
    }

    /// Bounds the waits of a transaction: for rows, and for a table that others may not write meanwhile, which no `NOWAIT` is about.
    /// Counts wait for the shards that are locked by then. Inside a caller's transaction the bound would outlive the fold.
    fn bound(&self) -> Option<&'static str> {
        let bound = self.dialect.bounds_waits_for_locks();
        bound.filter(|_| !self.inside)
    }

    /// Each shard in a transaction of its own, which holds no lock while it waits for its turn to try again. A shard that does
    /// not fit is retried as long as others change the base.
    async fn fold_shard_by_shard<T, DB, M, Conn>(
        &self,
        keys: Vec<P::Key>,
        folded: &mut Folded<T, P::Key>,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<()>
    where
        P: Parents<DB>,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let named = self.of.are(&keys);
        let reading = RetryLoop::read(link, self.retry.clone())?;
        let shards = retry_loop!(link, reading, shards_of(self.of, link, &named).await);
        let explained = |error| explain_of(self.of.names(), &link.backend(), error);
        let mut left = shards.map_err(explained)?;
        let (mut busy, mut tried, mut parents) = (false, usize::MAX, 0);
        let mut reason = None;
        while left.len() < tried {
            tried = left.len();
            let mut unfit = vec![];
            for shard in left {
                let shards = Shards {
                    only: Some(shard),
                    at_once: !self.inside,
                };
                let retry = self.retry.clone();
                match self.fold_locked(&named, shards, retry, link).await {
                    Ok((moved, removed, _)) => {
                        parents = moved.parents.max(parents);
                        folded.add(
                            &Moved {
                                parents: 0,
                                ..moved
                            },
                            removed,
                        );
                    }
                    Err(error) => match self.trouble(error) {
                        Trouble::Unfit(unfits) => {
                            unfit.push(shard);
                            reason = Some(unfits);
                        }
                        Trouble::Blocked(_) if !self.inside => busy = true,
                        Trouble::Blocked(error) | Trouble::Other(error) => return Err(error),
                    },
                }
            }
            left = unfit;
        }
        folded.parents += parents as u64;
        if let (false, Some(reason)) = (left.is_empty(), reason) {
            let unfit = keys.into_iter().map(|key| (key, reason.clone()));
            folded.unfit.extend(unfit);
        } else if busy {
            folded.busy.extend(keys);
        }
        Ok(())
    }

    /// Folds the parents whose locks can be acquired. The others that can be seen come back.
    async fn fold_locked<DB, M, Conn>(
        &self,
        keys: &KeysAre<P::KeyIs>,
        shards: Shards,
        retry: RetryPolicy,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<(Moved, usize, Vec<P::Key>)>
    where
        P: Parents<DB>,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let locking = locking(link, retry)?;
        let folded = retry_loop!(link, locking, {
            if let Some(bound) = self.bound() {
                link.batch_execute(bound).await?;
            }
            let locked = LockedParents::lock(self.of, link, keys, shards).await?;
            let not_locked = locked.not_locked(link, keys).await?;
            // By one shard alone nobody can tell, and a parent that is folded so is busy.
            let by_contention = match self.cold_below.filter(|_| shards.only.is_none()) {
                Some(shards) => Some(locked.hot_and_cold(link, shards).await?),
                None => None,
            };
            let moved = locked.fold(link).await?;
            let mut removed = 0;
            let kept = by_contention.as_ref().map_or(&locked, |[hot, _]| hot);
            if let Some(first) = self.keep {
                removed += kept.remove_shards(link, first).await?;
            }
            if let Some([_, cold]) = &by_contention {
                removed += cold.remove_shards(link, 0).await?;
            }
            Ok((moved, removed, not_locked))
        });
        let explained = |error| explain_of(self.of.names(), &link.backend(), error);
        let (moved, removed, not_locked) = folded.map_err(explained)?;
        let table = self.of.names().shards_table.as_str();
        observe::folded(self.dialect, table, moved.parents, moved.shards, removed);
        Ok((moved, removed, not_locked))
    }

    fn trouble(&self, error: DieselError) -> Trouble {
        if !self.dialect.has_row_locks() {
            return match Error::from(error) {
                Error::Overflow { source } => Trouble::Unfit(self.dialect.refused(&source)),
                Error::Unfit { reason, .. } => Trouble::Unfit(reason),
                error => Trouble::Other(error.into()),
            };
        }
        // Inside a caller's transaction: the lock was not had, and the savepoint took back what was.
        if self.dialect.classify(&error) == Failure::Conflict(Conflict::LockTimeout) {
            return Trouble::Blocked(error);
        }
        match Error::from(error) {
            error @ Error::ConflictPersisted { .. } => Trouble::Blocked(error.into()),
            Error::Overflow { source } => Trouble::Unfit(self.dialect.refused(&source)),
            Error::Unfit { reason, .. } => Trouble::Unfit(reason),
            error => Trouble::Other(error.into()),
        }
    }
}
