//! Named counters with an idempotency key.

use std::fmt::Write;

use diesel::prelude::*;

use super::backend::CounterBackend;
use super::counter::Counter;
use crate::backend::Dialect;
use crate::connection::{Io, Link, LoadIo, TransactionOptions, paired};
use crate::engine::locking_options;
use crate::error::Error;
use crate::operation::idempotency::{AndWhether, Idempotent, Request, Requested, once};
use crate::policy::RetryPolicy;

paired! {
    impl<> Idempotent<Counter<Run>>
    where
        DB: CounterBackend<Conn, Run>,
    {
        /// Adds `n`, which may be negative, unless that was done with this key before. Returns the number of counters counted, now
        /// or then: 1.
        ///
        /// # Errors
        /// As [`set`](Self::set).
        pub fn add(&self, link: Link, n: i64) -> QueryResult<usize> {
            Ok(self.of.count_once(n, &self.key, link).await?.0)
        }

        /// Adds 1; see [`add`](Self::add).
        ///
        /// # Errors
        /// As [`set`](Self::set).
        pub fn increment(&self, link: Link) -> QueryResult<usize> {
            Ok(self.of.count_once(1, &self.key, link).await?.0)
        }

        /// Subtracts 1; see [`add`](Self::add).
        ///
        /// # Errors
        /// As [`set`](Self::set).
        pub fn decrement(&self, link: Link) -> QueryResult<usize> {
            Ok(self.of.count_once(-1, &self.key, link).await?.0)
        }

        /// Sets the total, unless that was done with this key before; see [`Counter::set`]. A repeat changes nothing, also where the
        /// counter was added to, set or deleted in the meantime.
        ///
        /// ```
        /// # use diesel::prelude::*;
        /// # use diesel_migrations::MigrationHarness;
        /// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        /// # let conn = &mut SqliteConnection::establish(":memory:")?;
        /// # conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?;
        /// use diesel_sharded::Counter;
        ///
        /// let visits = Counter::named("visits");
        /// visits.idempotency_key("import of May").set(700, conn)?;
        /// visits.increment(conn)?;
        /// visits.idempotency_key("import of May").set(700, conn)?; // a job that runs again
        /// assert_eq!(visits.get(conn)?, 701);
        /// # Ok(())
        /// # }
        /// ```
        ///
        /// # Errors
        /// Those of the counter; [`InvalidIdempotencyKey`](Error::InvalidIdempotencyKey) for a key that is empty or too long,
        /// [`IdempotencyKeyReused`](Error::IdempotencyKeyReused) for a key that came with another request before.
        pub fn set(&self, link: Link, total: i64) -> QueryResult<()> {
            let set = self.of.change_once(Change::Set(total), &self.key, link);
            set.await.map(drop)
        }

        /// Sets the total to 0, unless that was done with this key before; see [`set`](Self::set).
        ///
        /// # Errors
        /// As [`set`](Self::set).
        pub fn reset(&self, link: Link) -> QueryResult<()> {
            let set = self.of.change_once(Change::Set(0), &self.key, link);
            set.await.map(drop)
        }

        /// Removes the counter, unless that was done with this key before; see [`Counter::delete`]. Returns whether it existed, now or
        /// then. Where there was no counter, nothing was done, and the key is free.
        ///
        /// # Errors
        /// As [`set`](Self::set).
        pub fn delete(&self, link: Link) -> QueryResult<bool> {
            let delete = self.of.change_once(Change::Delete, &self.key, link);
            Ok(delete.await?.0 > 0)
        }
    }
}

impl<Run> Counter<Run> {
    /// Adds `n`, unless that was done with this idempotency key before. Returns the number of counters counted, now or then, and
    /// whether it was now.
    pub(super) async fn count_once<DB, M, Conn>(
        &self,
        n: i64,
        key: &[u8],
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<(usize, bool)>
    where
        M: LoadIo<Conn, Backend = DB>,
        DB: CounterBackend<Conn, M>,
    {
        if n == 0 {
            return self.change_once(Change::AddNothing, key, link).await;
        }
        let request = Request::to_add(key, &self.cached_as(), n)?;
        DB::add_once(link.conn, self.key()?, n, request).await
    }

    /// Changes the counter, unless that was done with this idempotency key before. Returns the number of counters changed, now or
    /// then, and whether it was now.
    async fn change_once<DB, M, Conn>(
        &self,
        change: Change,
        key: &[u8],
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<(usize, bool)>
    where
        M: LoadIo<Conn, Backend = DB>,
        DB: CounterBackend<Conn, M>,
    {
        let request = change.request(self, key)?;
        let mut change = ChangeOnce { of: self, change };
        let change = &mut AndWhether(&mut change);
        once(link, &request, RetryPolicy::default(), change).await
    }
}

/// A change of a counter, as an idempotency key stands for it.
#[derive(Debug, Clone, Copy)]
enum Change {
    AddNothing,
    Set(i64),
    Delete,
}

impl Change {
    fn request<Run>(self, of: &Counter<Run>, key: &[u8]) -> Result<Request, Error> {
        let of = of.cached_as();
        match self {
            Change::AddNothing => Request::to_add(key, &of, 0),
            Change::Set(total) => Request::new(key, |text| write!(text, "set {of} to {total}")),
            Change::Delete => Request::new(key, |text| write!(text, "delete {of}")),
        }
    }
}

struct ChangeOnce<'a, Run> {
    of: &'a Counter<Run>,
    change: Change,
}

impl<Run, M, Conn, DB> Requested<M, Conn> for ChangeOnce<'_, Run>
where
    M: Io<Conn, Backend = DB>,
    DB: CounterBackend<Conn, M>,
{
    type Outcome = usize;

    fn transaction(&self, dialect: Dialect) -> TransactionOptions {
        match self.change {
            Change::AddNothing => TransactionOptions::of_a_count(dialect),
            Change::Set(_) | Change::Delete => locking_options(dialect),
        }
    }

    async fn carry_out(
        &mut self,
        link: &mut Link<'_, M, Conn>,
        counted: Option<usize>,
    ) -> QueryResult<(usize, usize)> {
        let name = self.of.key()?;
        let changed = match (counted, self.change) {
            (Some(counted), _) => counted,
            (None, Change::AddNothing) => DB::add(link.conn, name, 0).await.map(|()| 1)?,
            (None, Change::Set(total)) => DB::set(link.conn, name, total).await.map(|()| 1)?,
            (None, Change::Delete) => DB::delete(link.conn, name).await?.into(),
        };
        Ok((changed, changed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another release must recognize the requests that this one has carried out.
    #[test]
    fn fingerprints_stay_what_they_are() {
        let of = crate::Counter::named("a");
        let fingerprints = [Change::Set(1), Change::Set(0), Change::Delete]
            .map(|change| change.request(&of, b"key").unwrap().fingerprint);
        assert_eq!(
            fingerprints,
            [
                -983055718542928811,
                -983056818054557022,
                8651706006474150584
            ]
        );
    }
}
