//! A counting update, or a counter, with an idempotency key.

use diesel::connection::LoadConnection;
use diesel::prelude::*;

use super::once::{AndWhether, Requested, once};
use super::request::Request;
use crate::backend::BackendOf;
use crate::connection::{Blocking, Io, Link, now};
use crate::error::Error;
use crate::operation::cached::CachedCounter;
use crate::policy::RetryPolicy;

/// A counting update, or a counter, with an idempotency key; see the [module](super).
///
/// Made by [`UpdateStatement::idempotency_key`](crate::operation::UpdateStatement::idempotency_key),
/// [`Counter::idempotency_key`](crate::Counter::idempotency_key) and
/// [`RowCounter::idempotency_key`](crate::RowCounter::idempotency_key). It takes the place of an update before `.execute(conn)`,
/// `.get_result(conn)` and `.get_results(conn)`, and of a counter in [`Coalescer::add`](crate::coalescer::Coalescer::add) and
/// [`Cached::add`](crate::cached::Cached::add).
#[derive(Debug, Clone)]
#[must_use = "nothing is counted until it is executed or added to"]
pub struct Idempotent<Of> {
    pub(crate) of: Of,
    pub(crate) key: Vec<u8>,
}

impl<Of> Idempotent<Of> {
    pub(crate) fn new(of: Of, key: impl AsRef<[u8]>) -> Self {
        Idempotent {
            of,
            key: key.as_ref().to_vec(),
        }
    }

    /// Adds `n`, which may be negative, unless that was done with this key before. Returns the number of rows counted, now or
    /// then.
    ///
    /// # Errors
    /// Those of the counter; [`InvalidIdempotencyKey`](Error::InvalidIdempotencyKey) for a key that is empty or too long,
    /// [`IdempotencyKeyReused`](Error::IdempotencyKeyReused) for a key that came with another counter or amount before.
    pub fn add<Conn>(&self, n: i64, conn: &mut Conn) -> QueryResult<usize>
    where
        Of: CachedCounter<Conn>,
        Conn: LoadConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        let (counted, _) = self.add_once(n, conn)?;
        Ok(counted)
    }

    /// Returns the number of rows counted, now or then, and whether it was now.
    fn add_once<Conn>(&self, n: i64, conn: &mut Conn) -> QueryResult<(usize, bool)>
    where
        Of: CachedCounter<Conn>,
        Conn: LoadConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        // Adding 0 is up to the counter, which may write nothing.
        if n != 0 {
            if let Some(added) = self.of.add_once(n, &self.key, conn)? {
                return Ok(added);
            }
        }
        let request = self.request::<Conn>(n)?;
        let mut add = Add { to: &self.of, n };
        now(once(
            &mut Link::blocking(conn),
            &request,
            RetryPolicy::default(),
            &mut AndWhether(&mut add),
        ))
    }

    /// Adds 1; see [`add`](Self::add).
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn increment<Conn>(&self, conn: &mut Conn) -> QueryResult<usize>
    where
        Of: CachedCounter<Conn>,
        Conn: LoadConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        self.add(1, conn)
    }

    /// Subtracts 1; see [`add`](Self::add).
    ///
    /// # Errors
    /// As [`add`](Self::add).
    pub fn decrement<Conn>(&self, conn: &mut Conn) -> QueryResult<usize>
    where
        Of: CachedCounter<Conn>,
        Conn: LoadConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        self.add(-1, conn)
    }

    /// The request to add `n`, the same on every way to the database.
    pub(crate) fn request<Conn>(&self, n: i64) -> Result<Request, Error>
    where
        Of: CachedCounter<Conn>,
    {
        Request::to_add(&self.key, &self.of.cache_key(), n)
    }
}

/// A repeat adds to no row, and nothing to the cached total: `add` returns 0 for it.
impl<Of, Conn> CachedCounter<Conn> for Idempotent<Of>
where
    Of: CachedCounter<Conn>,
    Conn: LoadConnection,
    Conn::Backend: BackendOf<Conn>,
{
    fn cache_key(&self) -> String {
        self.of.cache_key()
    }

    fn read(&self, conn: &mut Conn) -> QueryResult<i64> {
        self.of.read(conn)
    }

    fn add(&self, n: i64, conn: &mut Conn) -> QueryResult<usize> {
        let (counted, now) = self.add_once(n, conn)?;
        Ok(if now { counted } else { 0 })
    }
}

/// Adds to a counter.
struct Add<'a, Of> {
    to: &'a Of,
    n: i64,
}

impl<Of, Conn> Requested<Blocking, Conn> for Add<'_, Of>
where
    Blocking: Io<Conn>,
    Of: CachedCounter<Conn>,
{
    type Told = usize;

    async fn carry_out(
        &mut self,
        link: &mut Link<'_, Blocking, Conn>,
        counted: Option<usize>,
    ) -> QueryResult<(usize, usize)> {
        let counted = counted.map_or_else(|| self.to.add(self.n, link.conn), Ok)?;
        Ok((counted, counted))
    }
}
