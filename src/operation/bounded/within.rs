//! A count within bounds, on a row or on a named counter, as a part of something larger.

use std::future::Future;

use diesel::prelude::*;

use crate::backend::Dialect;
use crate::connection::{Io, Link, LoadIo, TransactionOptions};
use crate::engine::{locking, locking_options, retry_loop};
use crate::operation::idempotency::{Request, Requested, once};
use crate::policy::RetryPolicy;

/// A counter that stays within bounds.
pub(crate) trait Within<M: Io<Conn>, Conn> {
    fn retry_policy(&self) -> RetryPolicy;

    /// Adds `n`, and returns whether the bounds allow it.
    fn count(
        &self,
        n: i64,
        link: &mut Link<'_, M, Conn>,
    ) -> impl Future<Output = QueryResult<bool>>;

    fn total(&self, link: &mut Link<'_, M, Conn>)
    -> impl Future<Output = QueryResult<Option<i64>>>;
}

/// Adds `n` and reads the total, in one transaction; `None` if the bounds do not allow it.
pub(crate) async fn count_and_total<W, M, Conn>(
    within: &W,
    n: i64,
    link: &mut Link<'_, M, Conn>,
) -> QueryResult<Option<i64>>
where
    M: Io<Conn>,
    W: Within<M, Conn>,
{
    let repeated = locking(link, within.retry_policy())?;
    retry_loop!(link, repeated, {
        match within.count(n, link).await? {
            true => within.total(link).await,
            false => Ok(None),
        }
    })
}

/// Adds `n`, unless that was done with this idempotency key before. Returns whether the bounds allow it now, or allowed it then.
pub(crate) async fn count_once<W, M, Conn>(
    within: &W,
    n: i64,
    request: &Request,
    link: &mut Link<'_, M, Conn>,
) -> QueryResult<bool>
where
    M: LoadIo<Conn>,
    W: Within<M, Conn>,
{
    let count = &mut CountWithin { within, n };
    Ok(once(link, request, within.retry_policy(), count).await? > 0)
}

struct CountWithin<'a, W> {
    within: &'a W,
    n: i64,
}

impl<W, M, Conn> Requested<M, Conn> for CountWithin<'_, W>
where
    M: Io<Conn>,
    W: Within<M, Conn>,
{
    type Outcome = usize;

    fn transaction(&self, dialect: Dialect) -> TransactionOptions {
        locking_options(dialect)
    }

    async fn carry_out(
        &mut self,
        link: &mut Link<'_, M, Conn>,
        counted: Option<usize>,
    ) -> QueryResult<(usize, usize)> {
        let counted = match counted {
            Some(counted) => counted,
            None => self.within.count(self.n, link).await?.into(),
        };
        Ok((counted, counted))
    }
}
