//! Named counters with an idempotency key.

use std::fmt::Write;

use diesel::connection::LoadConnection;
use diesel::prelude::*;

use super::backend::CounterBackend;
use super::counter::Counter;
use crate::backend::Dialect;
use crate::connection::{Io, Link, LoadIo, TransactionOptions, now};
use crate::engine::holding_options;
#[cfg(doc)]
use crate::error::Error;
use crate::operation::idempotency::{Idempotent, Request, Requested, once};
use crate::policy::RetryPolicy;

impl Idempotent<Counter> {
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
    pub fn set<Conn>(&self, total: i64, conn: &mut Conn) -> QueryResult<()>
    where
        Conn: LoadConnection,
        Conn::Backend: CounterBackend<Conn>,
    {
        let link = &mut Link::blocking(conn);
        now(change_once(self, Change::Set(total), link)).map(drop)
    }

    /// Sets the total to 0, unless that was done with this key before; see [`set`](Self::set).
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn reset<Conn>(&self, conn: &mut Conn) -> QueryResult<()>
    where
        Conn: LoadConnection,
        Conn::Backend: CounterBackend<Conn>,
    {
        self.set(0, conn)
    }

    /// Removes the counter, unless that was done with this key before; see [`Counter::delete`]. Returns whether it existed, now or
    /// then. Where there was no counter, nothing was done, and the key is free.
    ///
    /// # Errors
    /// As [`set`](Self::set).
    pub fn delete<Conn>(&self, conn: &mut Conn) -> QueryResult<bool>
    where
        Conn: LoadConnection,
        Conn::Backend: CounterBackend<Conn>,
    {
        let link = &mut Link::blocking(conn);
        Ok(now(change_once(self, Change::Delete, link))? > 0)
    }
}

/// A change of a counter, as an idempotency key stands for it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change {
    #[cfg(feature = "async")]
    AddNothing,
    Set(i64),
    Delete,
}

/// Changes the counter, unless that was done with its key before. The number of counters changed, now or then.
pub(super) async fn change_once<DB, M, Conn>(
    counter: &Idempotent<Counter>,
    change: Change,
    link: &mut Link<'_, M, Conn>,
) -> QueryResult<usize>
where
    M: LoadIo<Conn, Backend = DB>,
    DB: CounterBackend<Conn, M>,
{
    let request = request(counter, change)?;
    let mut change = ChangeOnce {
        of: &counter.of,
        change,
    };
    once(link, &request, RetryPolicy::default(), &mut change).await
}

fn request(counter: &Idempotent<Counter>, change: Change) -> QueryResult<Request> {
    let (key, of) = (&counter.key, counter.of.cached_as());
    Ok(match change {
        #[cfg(feature = "async")]
        Change::AddNothing => Request::to_add(key, &of, 0),
        Change::Set(total) => Request::new(key, |text| write!(text, "set {of} to {total}")),
        Change::Delete => Request::new(key, |text| write!(text, "delete {of}")),
    }?)
}

struct ChangeOnce<'a> {
    of: &'a Counter,
    change: Change,
}

impl<M, Conn, DB> Requested<M, Conn> for ChangeOnce<'_>
where
    M: Io<Conn, Backend = DB>,
    DB: CounterBackend<Conn, M>,
{
    type Told = usize;

    fn transaction(&self, dialect: Dialect) -> TransactionOptions {
        match self.change {
            #[cfg(feature = "async")]
            Change::AddNothing => TransactionOptions::of_a_count(dialect),
            Change::Set(_) | Change::Delete => holding_options(dialect),
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
            #[cfg(feature = "async")]
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
        let of = Counter::named("a").idempotency_key("key");
        let fingerprints = [Change::Set(1), Change::Set(0), Change::Delete]
            .map(|change| request(&of, change).unwrap().fingerprint);
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
