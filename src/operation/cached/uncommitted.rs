//! Counts that reach the cache when their transaction is committed.

use std::collections::BTreeMap;
use std::error::Error as StdError;

use diesel::Connection;
use diesel::result::{Error as DieselError, QueryResult};

use super::{Cached, CachedCounter, TotalCache, depth, may_be_committed};
use crate::backend::BackendOf;
use crate::operation::retry::Transaction;
use crate::policy::RetryPolicy;

impl<C: TotalCache> Cached<C> {
    /// Runs `f` as [`retry::transaction`](crate::retry::transaction) does, and adds what was counted through [`Uncommitted::add`]
    /// to the cached totals after the commit. Counts of an attempt that was rolled back are dropped.
    ///
    /// Inside a transaction that is open already, `f` runs in a savepoint and the cache stays as it is, because it is unknown
    /// whether and when the outer transaction commits. The cached totals then lack these counts until they expire.
    ///
    /// # Errors
    /// Those of [`retry::transaction`](crate::retry::transaction). The cache then stays as it is, unless the counts may have been
    /// committed nevertheless. That is so after [`OutcomeUnknown`](crate::Error::OutcomeUnknown), and after
    /// [`TransactionAborted`](crate::Error::TransactionAborted), where MySQL may have committed a part. Then the totals of all
    /// counters in question are removed from the cache.
    pub fn transaction<Conn, T, E, F>(
        &self,
        conn: &mut Conn,
        policy: RetryPolicy,
        mut f: F,
    ) -> Result<T, E>
    where
        Conn: Connection,
        Conn::Backend: BackendOf<Conn>,
        F: FnMut(&mut Conn, &mut Uncommitted) -> Result<T, E>,
        E: From<DieselError> + StdError + 'static,
    {
        let outermost = depth(conn)? == 0;
        let mut uncommitted = Uncommitted::default();
        let result = Transaction::new().retry(policy).run(conn, |conn| {
            uncommitted = Uncommitted {
                depth: depth(conn)?,
                ..Uncommitted::default()
            };
            f(conn, &mut uncommitted).map_err(TransactionError::Closure)
        });
        match result {
            Ok(value) => {
                if outermost {
                    self.apply(uncommitted);
                }
                Ok(value)
            }
            Err(TransactionError::Closure(error)) => Err(error),
            Err(TransactionError::Database(error)) => {
                if outermost && may_be_committed(&error) {
                    uncommitted
                        .changes
                        .into_keys()
                        .for_each(|key| self.remove(&key));
                }
                Err(error.into())
            }
        }
    }

    fn apply(&self, uncommitted: Uncommitted) {
        for (key, change) in uncommitted.changes {
            match change {
                Some(n) => self.increment(&key, n),
                None => self.remove(&key),
            }
        }
    }
}

/// The counts of a transaction that is not committed yet; see [`Cached::transaction`].
#[derive(Debug, Default)]
pub struct Uncommitted {
    /// How deep the transactions are nested where the closure begins.
    depth: u32,
    /// By the counters' keys, without the prefix; `None` if some of it may be rolled back alone, or it is out of range.
    changes: BTreeMap<String, Option<i64>>,
}

impl Uncommitted {
    /// Counts, and remembers the count for the cache until the transaction is committed. A count in a savepoint (a
    /// `conn.transaction(..)` inside the closure) may be rolled back without the rest, so the cached total of its counter is
    /// removed.
    ///
    /// # Errors
    /// Those of [`CachedCounter::add`].
    pub fn add<Conn, K>(&mut self, counter: &K, n: i64, conn: &mut Conn) -> QueryResult<usize>
    where
        Conn: Connection,
        K: CachedCounter<Conn> + ?Sized,
    {
        let in_savepoint = depth(conn)? != self.depth;
        let rows = counter.add(n, conn)?;
        if rows > 0 {
            self.remember(counter.cache_key(), (!in_savepoint).then_some(n));
        }
        Ok(rows)
    }

    fn remember(&mut self, key: String, change: Option<i64>) {
        let sum = self.changes.entry(key).or_insert(Some(0));
        *sum = sum.zip(change).and_then(|(n, m)| n.checked_add(m));
    }
}

/// Keeps the transaction's own errors apart from those of the closure, which may come from another transaction. No caller sees it; a
/// conflict is found by its sources.
#[derive(Debug, thiserror::Error)]
enum TransactionError<E: StdError + 'static> {
    #[error("the closure failed")]
    Closure(#[source] E),
    #[error("the transaction failed")]
    Database(#[from] DieselError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_one_counter_are_added_up() {
        let mut uncommitted = Uncommitted::default();
        uncommitted.remember("a".into(), Some(5));
        uncommitted.remember("b".into(), Some(i64::MAX));
        uncommitted.remember("a".into(), Some(-7));
        uncommitted.remember("b".into(), Some(1));
        uncommitted.remember("c".into(), Some(1));
        uncommitted.remember("c".into(), None);
        uncommitted.remember("c".into(), Some(1));
        let changes: Vec<_> = uncommitted.changes.into_iter().collect();
        let expected = [
            ("a".to_owned(), Some(-2)),
            ("b".to_owned(), None),
            ("c".to_owned(), None),
        ];
        assert_eq!(changes, expected);
    }
}
