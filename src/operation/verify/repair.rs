//! Finding drifts, and repairing them.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use diesel::prelude::*;
use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};
use diesel::result::Error as DieselError;

use crate::backend::{Isolation, ShardedBackend, Strength};
use crate::connection::{Io, Link, LoadIo, TransactionOptions, in_transaction};
use crate::engine::{Held, KeyedTable, RetryLoop, explain, field, in_chunks, retry_loop};
use crate::operation::row_counter::{AddTo, IntegerField};
use crate::policy::RetryPolicy;
use crate::unfit::Unfit;

use super::builder::Verify;
use super::recount::{Drift, Recount, by_key, compare};
use super::refuse::{refuse_cut_recounts, refuse_padded_keys};

impl<R, C, Q, Run> Verify<R, C, Q, Run> {
    pub(crate) async fn find_drifts<'q, DB, T, W, M, Conn>(
        self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<Vec<Drift<T::Key>>>
    where
        R: IntoUpdateTarget<Table = T, WhereClause = W>,
        C: IntegerField<DB, Table = T>,
        Q: Clone,
        T: KeyedTable<DB, Key: Eq + Hash>,
        W: QueryFragment<DB> + QueryId,
        M: LoadIo<Conn, Backend = DB> + Recount<'q, Conn, Q, T::Key>,
        DB: ShardedBackend,
    {
        let filter = self.query.into_update_target().where_clause;
        let (column, query) = (self.column, self.expected);
        let repeated = in_a_snapshot(link, self.retry.unwrap_or_default(), false)?;
        let drifts = retry_loop!(link, repeated, {
            refuse_padded_keys::<T, _, _, _>(link).await?;
            refuse_cut_recounts::<DB, _, _>(link).await?;
            let expected = by_key(M::recount(link.conn, query.clone()).await?)?;
            compare(link, column, &filter, &expected).await
        });
        drifts.map_err(|error| explain::<T, DB>(&link.backend(), error))
    }

    pub(crate) async fn repair_drifts<'q, DB, T, W, M, Conn>(
        self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<Vec<Drift<T::Key>>>
    where
        R: IntoUpdateTarget<Table = T, WhereClause = W> + Clone,
        C: IntegerField<DB, Table = T>,
        Q: Clone,
        T: KeyedTable<DB, Key: Eq + Hash>,
        W: QueryFragment<DB> + QueryId,
        M: LoadIo<Conn, Backend = DB> + Recount<'q, Conn, Q, T::Key>,
        DB: ShardedBackend,
    {
        let (column, query) = (self.column, self.expected.clone());
        let field = field::<C>()?;
        let retry = self.retry.clone().unwrap_or_default();
        let suspects = self.find_drifts(link).await?;
        let suspects = suspects.into_iter().map(|drift| drift.key);
        let suspects = in_chunks::<T, DB>(suspects.collect());
        if suspects.is_empty() {
            return Ok(vec![]);
        }
        let repeated = in_a_snapshot(link, retry, true)?;
        let repaired = retry_loop!(link, repeated, {
            let mut held = vec![];
            for keys in &suspects {
                let strength = Strength::NoKeyUpdate;
                let locked = Held::<T, DB>::lock_parents(*T::TABLE, link, keys, strength).await?;
                locked.refuse_hidden_shards(link).await?;
                if let Some(key) = locked.not_locked(link, keys).await?.pop() {
                    return Err(locked.unfit(&key, Unfit::NotLocked));
                }
                held.push(locked);
            }
            let expected = by_key(M::recount(link.conn, query.clone()).await?)?;
            let mut repaired = vec![];
            for held in held.iter().filter(|held| !held.is_empty()) {
                let keys = held.keys();
                repaired.extend(compare(link, column, keys, &expected).await?);
            }
            let mut lacking = HashMap::new();
            for drift in &repaired {
                lacking.insert(&drift.key, drift.lacks()?);
            }
            for held in &held {
                let mut equal: BTreeMap<i64, Vec<T::Key>> = BTreeMap::new();
                for key in held.parents() {
                    if let Some(lacks) = lacking.get(key) {
                        equal.entry(*lacks).or_default().push(key.clone());
                    }
                }
                for (lacks, keys) in equal {
                    let held = Held::<T, DB>::locked(*T::TABLE, keys);
                    let add = AddTo::<C>::new(lacks);
                    held.add_to_bases(link, field, lacks, &add).await?;
                }
            }
            Ok(repaired)
        });
        repaired.map_err(|error| explain::<T, DB>(&link.backend(), error))
    }
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
