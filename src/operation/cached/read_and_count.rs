//! Reading and counting through a cache.

use diesel::Connection;
use diesel::result::{DatabaseErrorKind, Error as DieselError, QueryResult};

use super::counter::CachedCounter;
use super::flights::Role;
use super::front::{Cached, Question};
use super::steps::Steps;
use super::total_cache::TotalCache;
use crate::connection::{Blocking, now};
use crate::error::Error;
use crate::observe::{self, CacheRead};

impl<C: TotalCache> Cached<C> {
    /// The total of `counter`: from the cache, or else from the database and then kept in the cache.
    ///
    /// Inside a transaction the total is read from the database, which alone knows what the transaction may see. It is not
    /// cached, because it may include counts that are never committed.
    ///
    /// # Errors
    /// Those of [`CachedCounter::read`].
    pub fn get<Conn, K>(&self, counter: &K, conn: &mut Conn) -> QueryResult<i64>
    where
        Conn: Connection,
        K: CachedCounter<Conn> + ?Sized,
    {
        now(self.total::<Blocking, _, _>(counter, conn))
    }

    pub(crate) async fn total<M, Conn, K>(&self, counter: &K, conn: &mut Conn) -> QueryResult<i64>
    where
        M: Steps<C, Conn, K>,
        K: ?Sized,
    {
        // Nor may whoever holds locks wait for another connection's read.
        if M::depth(conn)? > 0 {
            observe::cache_read(CacheRead::Bypassed);
            return M::read(counter, conn).await;
        }
        let key = self.key(&M::cache_key(counter));
        let answer = M::ask(self, &key, Question::Get).await;
        if let Some(Some(total)) = answer {
            observe::cache_read(CacheRead::Hit);
            return Ok(total);
        }
        let lead = match M::join(self, &key).await {
            Role::Share(total) => {
                observe::cache_read(CacheRead::Shared);
                return Ok(total);
            }
            Role::Alone => None,
            Role::Lead(lead) => Some(lead),
        };
        if let (Some(lead), Some(_)) = (&lead, answer) {
            // Another read may have come to its end since the cache was asked.
            if let Some(Some(total)) = M::ask(self, &key, Question::Get).await {
                observe::cache_read(CacheRead::Hit);
                lead.share(total);
                return Ok(total);
            }
        }
        observe::cache_read(CacheRead::Miss);
        let total = M::read(counter, conn).await?;
        // Before it is kept: nobody has to wait for that.
        if let Some(lead) = &lead {
            lead.share(total);
        }
        M::ask(self, &key, Question::AddIfAbsent(total, self.ttl)).await;
        Ok(total)
    }

    /// Counts `n` on `counter`, which may be negative, and adds it to the cached total, if there is one.
    ///
    /// Inside a transaction it counts but does not touch the cache, because it cannot know when the transaction commits. The
    /// cached total then lacks the count until it expires. [`transaction`](Self::transaction) avoids this.
    ///
    /// # Errors
    /// Those of [`CachedCounter::add`]. The cache then stays as it is. But if the connection was lost and the count may have been
    /// committed, the cached total is removed.
    pub fn add<Conn, K>(&self, counter: &K, n: i64, conn: &mut Conn) -> QueryResult<usize>
    where
        Conn: Connection,
        K: CachedCounter<Conn> + ?Sized,
    {
        now(self.count::<Blocking, _, _>(counter, n, conn))
    }

    pub(crate) async fn count<M, Conn, K>(
        &self,
        counter: &K,
        n: i64,
        conn: &mut Conn,
    ) -> QueryResult<usize>
    where
        M: Steps<C, Conn, K>,
        K: ?Sized,
    {
        if M::depth(conn)? > 0 {
            return M::add(counter, n, conn).await;
        }
        let counted = M::add(counter, n, conn).await;
        let key = self.key(&M::cache_key(counter));
        match &counted {
            Ok(0) => {}
            Ok(_) => {
                M::ask(self, &key, Question::IncrementIfPresent(n)).await;
            }
            Err(error) if may_be_committed(error) => {
                M::ask(self, &key, Question::Remove).await;
            }
            Err(_) => {}
        }
        counted
    }

    /// Removes the cached total, after a change that bypassed the cache and was committed: a total that was set, a repair. A
    /// reader who read before the change may still add the old total after this.
    pub fn forget<Conn, K>(&self, counter: &K, _conn: &mut Conn)
    where
        K: CachedCounter<Conn> + ?Sized,
    {
        self.remove(&counter.cache_key());
    }
}

/// Whether a count that ended in `error` may have been committed. A counter of an application's own may report a lost
/// connection as Diesel does.
pub(super) fn may_be_committed(error: &DieselError) -> bool {
    match error {
        DieselError::DatabaseError(DatabaseErrorKind::ClosedConnection, _) => true,
        DieselError::QueryBuilderError(error) => matches!(
            error.downcast_ref(),
            Some(Error::OutcomeUnknown { .. } | Error::TransactionAborted)
        ),
        _ => false,
    }
}
