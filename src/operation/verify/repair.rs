//! Finding drifts, and repairing them.

use std::collections::HashMap;
use std::hash::Hash;

use diesel::prelude::*;
use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};
use diesel::result::Error as DieselError;

use crate::backend::{Isolation, ShardedBackend, Strength};
use crate::connection::{Io, Link, LoadIo, TransactionOptions, in_transaction};
use crate::engine::{KeyedTable, LockedParents, RetryLoop, explain, in_chunks, retry_loop};
use crate::model::Amount;
use crate::policy::RetryPolicy;
use crate::unfit::Unfit;

use super::builder::Verify;
use super::drift::{Compared, Drift, beyond};
use super::fields::VerifiedFields;
use super::recount::{Recount, by_key, by_parent, compare};
use super::refuse::{refuse_cut_recounts, refuse_padded_keys};
use super::totals::AddAmounts;

impl<R, C, Q, Run> Verify<R, C, Q, Run> {
    pub(crate) async fn find_drifts<'q, F, DB, T, W, M, Conn>(
        self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<Vec<Drift<T::Key, C::Total>>>
    where
        R: IntoUpdateTarget<Table = T, WhereClause = W>,
        C: VerifiedFields<F, Table = T>,
        Q: Clone,
        T: KeyedTable<DB, Key: Eq + Hash>,
        W: QueryFragment<DB> + QueryId,
        M: LoadIo<Conn, Backend = DB> + Recount<'q, Conn, Q, T::Key>,
        DB: ShardedBackend,
    {
        let differ = self.find::<F, DB, T, W, M, Conn>(link).await?;
        differ.into_iter().map(Compared::drift::<C, F>).collect()
    }

    /// The rows whose totals are not as expected.
    async fn find<'q, F, DB, T, W, M, Conn>(
        self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<Vec<Compared<T::Key>>>
    where
        R: IntoUpdateTarget<Table = T, WhereClause = W>,
        C: VerifiedFields<F, Table = T>,
        Q: Clone,
        T: KeyedTable<DB, Key: Eq + Hash>,
        W: QueryFragment<DB> + QueryId,
        M: LoadIo<Conn, Backend = DB> + Recount<'q, Conn, Q, T::Key>,
        DB: ShardedBackend,
    {
        let filter = self.query.into_update_target().where_clause;
        let (fields, query) = (C::fields()?, self.expected);
        let repeated = in_a_snapshot(link, self.retry.unwrap_or_default(), false)?;
        let differ = retry_loop!(link, repeated, {
            refuse_padded_keys::<T, _, _, _>(link).await?;
            refuse_cut_recounts::<DB, _, _>(link).await?;
            let expected = by_key(M::recount(link.conn, query.clone()).await?, &fields)?;
            let expected = by_parent::<T, _, _, _, _>(link, &filter, expected).await?;
            compare::<T, _, _, _, _>(link, &fields, &filter, &expected).await
        });
        differ.map_err(|error| explain::<T, DB>(&link.backend(), error))
    }

    pub(crate) async fn repair_drifts<'q, F, DB, T, W, M, Conn>(
        self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<Vec<Drift<T::Key, C::Total>>>
    where
        R: IntoUpdateTarget<Table = T, WhereClause = W> + Clone,
        C: VerifiedFields<F, Table = T>,
        Q: Clone,
        T: KeyedTable<DB, Key: Eq + Hash>,
        W: QueryFragment<DB> + QueryId,
        M: LoadIo<Conn, Backend = DB> + Recount<'q, Conn, Q, T::Key>,
        DB: ShardedBackend,
    {
        let (fields, query) = (C::fields()?, self.expected.clone());
        let filter = self.query.clone().into_update_target().where_clause;
        let retry = self.retry.clone().unwrap_or_default();
        let suspects = self.find::<F, DB, T, W, M, Conn>(link).await?;
        let suspects = suspects.into_iter().map(|drift| drift.key);
        let suspects = in_chunks::<T, DB>(suspects.collect());
        if suspects.is_empty() {
            return Ok(vec![]);
        }
        let repeated = in_a_snapshot(link, retry, true)?;
        let repaired = retry_loop!(link, repeated, {
            let mut all_locked = vec![];
            for keys in &suspects {
                let strength = Strength::NoKeyUpdate;
                let locked =
                    LockedParents::<T, DB>::lock_parents(*T::TABLE, link, keys, strength).await?;
                locked.refuse_hidden_shards(link).await?;
                if let Some(key) = locked.not_locked(link, keys).await?.pop() {
                    return Err(locked.unfit(&key, Unfit::NotLocked));
                }
                all_locked.push(locked);
            }
            let expected = by_key(M::recount(link.conn, query.clone()).await?, &fields)?;
            let expected = by_parent::<T, _, _, _, _>(link, &filter, expected).await?;
            let mut repaired = vec![];
            for locked in all_locked.iter().filter(|locked| !locked.is_empty()) {
                let keys = locked.keys();
                let differ = compare::<T, _, _, _, _>(link, &fields, keys, &expected).await?;
                for (amounts, keys) in by_lacks(locked.parents(), &differ)? {
                    let add = AddAmounts::<T>::new(&fields, &amounts).ok_or_else(beyond)?;
                    let of_each = vec![&*amounts; keys.len()];
                    let lacking = LockedParents::<T, DB>::locked(*T::TABLE, keys);
                    lacking.add_to_bases(link, &fields, &of_each, &add).await?;
                }
                repaired.extend(differ);
            }
            Ok(repaired)
        });
        let repaired = repaired.map_err(|error| explain::<T, DB>(&link.backend(), error))?;
        repaired.into_iter().map(Compared::drift::<C, F>).collect()
    }
}

/// The amounts that totals lack, each with the parents that lack them, in the order of `parents`.
fn by_lacks<K: Clone + Eq + Hash>(
    parents: &[K],
    differ: &[Compared<K>],
) -> QueryResult<Vec<(Vec<Amount>, Vec<K>)>> {
    let mut lacking = HashMap::new();
    for compared in differ {
        lacking.insert(&compared.key, compared.lacks()?);
    }
    let mut equal: Vec<(Vec<Amount>, Vec<K>)> = vec![];
    for key in parents {
        let Some(lacks) = lacking.remove(key) else {
            continue;
        };
        match equal.iter_mut().find(|(amounts, _)| *amounts == lacks) {
            Some((_, keys)) => keys.push(key.clone()),
            None => equal.push((lacks, vec![key.clone()])),
        }
    }
    Ok(equal)
}

/// A transaction that reads from one snapshot.
///
/// # Errors
/// Inside another transaction, whose snapshot may be older.
fn in_a_snapshot<M, Conn>(
    link: &mut Link<'_, M, Conn>,
    retry: RetryPolicy,
    writes: bool,
) -> QueryResult<RetryLoop>
where
    M: Io<Conn>,
{
    if in_transaction(link)? {
        return Err(DieselError::AlreadyInTransaction);
    }
    let options = TransactionOptions {
        isolation: Some(Isolation::RepeatableRead),
        immediate: writes,
        guarded: writes,
        outermost: true,
        own: false,
    };
    RetryLoop::transaction(link, retry, options)
}
