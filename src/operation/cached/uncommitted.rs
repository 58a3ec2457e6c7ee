//! Counts that reach the cache when their transaction is committed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::error::Error as StdError;

use diesel::Connection;
use diesel::result::{Error as DieselError, QueryResult};

use super::counter::CachedCounter;
use super::front::Cached;
use super::read_and_count::may_be_committed;
use super::steps::depth;
use super::total_cache::TotalCache;
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
            uncommitted = Uncommitted::at_depth(depth(conn)?);
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
                Change::By(n) => self.increment(&key, n),
                Change::Unknown => self.remove(&key),
            }
        }
    }
}

/// The counts of a transaction that is not committed yet; see [`Cached::transaction`].
#[derive(Debug, Default)]
pub struct Uncommitted {
    /// How deep the transactions are nested where the closure begins.
    depth: u32,
    /// By the counters' keys, without the prefix.
    changes: BTreeMap<String, Change>,
}

/// How a transaction changes one total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Change {
    By(i64),
    /// Some of it may be rolled back alone, or it is out of range.
    Unknown,
}

impl Uncommitted {
    fn at_depth(depth: u32) -> Self {
        Uncommitted {
            depth,
            changes: BTreeMap::new(),
        }
    }

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
        let change = match depth(conn)? == self.depth {
            true => Change::By(n),
            false => Change::Unknown,
        };
        let rows = counter.add(n, conn)?;
        if rows > 0 {
            self.remember(counter.cache_key(), change);
        }
        Ok(rows)
    }

    fn remember(&mut self, key: String, change: Change) {
        match self.changes.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(change);
            }
            Entry::Occupied(mut entry) => {
                let sum = entry.get().and(change);
                entry.insert(sum);
            }
        }
    }
}

impl Change {
    fn and(self, other: Change) -> Change {
        match (self, other) {
            (Change::By(n), Change::By(m)) => n.checked_add(m).map_or(Change::Unknown, Change::By),
            _ => Change::Unknown,
        }
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
        uncommitted.remember("a".into(), Change::By(5));
        uncommitted.remember("b".into(), Change::By(i64::MAX));
        uncommitted.remember("a".into(), Change::By(-7));
        uncommitted.remember("b".into(), Change::By(1));
        uncommitted.remember("c".into(), Change::By(1));
        uncommitted.remember("c".into(), Change::Unknown);
        uncommitted.remember("c".into(), Change::By(1));
        let changes: Vec<_> = uncommitted.changes.into_iter().collect();
        let expected = [
            ("a".to_owned(), Change::By(-2)),
            ("b".to_owned(), Change::Unknown),
            ("c".to_owned(), Change::Unknown),
        ];
        assert_eq!(changes, expected);
    }
}
