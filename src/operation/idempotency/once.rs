//! Keys are claimed, and each request is carried out once.

use std::future::{Future, ready};

use diesel::prelude::*;
use diesel::result::Error as DieselError;

use super::keys::{DeleteKeys, FindKeys, InsertKeys, NoteCounted, explained};
use super::request::Request;
use crate::backend::Dialect;
use crate::connection::{Io, Link, LoadIo, TransactionOptions, in_transaction};
use crate::engine::{RetryLoop, retry_loop};
use crate::error::Error;
use crate::per_process::random;
use crate::policy::RetryPolicy;

/// The state of a request once its key is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// It is the first.
    First,
    /// It was counted before, on this number of rows.
    Repeated(usize),
    /// Something else was counted under its key.
    Reused,
}

/// Carries out a request that was not carried out before under the same key: by one statement where that is possible, else in one
/// transaction with the key; inside a caller's, in a savepoint.
pub(crate) async fn once<W, M, Conn>(
    link: &mut Link<'_, M, Conn>,
    request: &Request,
    retry: RetryPolicy,
    work: &mut W,
) -> QueryResult<W::Outcome>
where
    M: LoadIo<Conn>,
    W: Requested<M, Conn>,
{
    if let Some(told) = work.count_at_once(link, request).await? {
        return Ok(told);
    }
    work.set_alone(!in_transaction(link)?);
    let options = work.transaction(link.dialect());
    let repeated = RetryLoop::transaction(link, retry, options)?;
    retry_loop!(link, repeated, {
        match claim(link, &[request]).await?.first() {
            Some(Claimed::First) | None => {}
            Some(Claimed::Repeated(counted)) => {
                return Ok(work.carry_out(link, Some(*counted)).await?.1);
            }
            Some(Claimed::Reused) => return Err(Error::IdempotencyKeyReused.into()),
        }
        let (counted, told) = work.carry_out(link, None).await?;
        match counted {
            0 => release(link, vec![&request.key]).await?,
            1 => {} // as it was claimed
            _ => note(link, &request.key, counted).await?,
        }
        Ok(told)
    })
}

/// Work that is requested, and done once.
pub(crate) trait Requested<M: Io<Conn>, Conn> {
    /// The answer to the caller.
    type Outcome;

    /// The transaction of the key and the work.
    fn transaction(&self, dialect: Dialect) -> TransactionOptions {
        TransactionOptions::of_a_count(dialect)
    }

    /// Claims the key and counts, by one statement that commits by itself. `None` if there is no such statement, or if it did nothing,
    /// as where the key is known.
    fn count_at_once(
        &mut self,
        _: &mut Link<'_, M, Conn>,
        _: &Request,
    ) -> impl Future<Output = QueryResult<Option<Self::Outcome>>> {
        ready(Ok(None))
    }

    /// Takes note whether the transaction that follows is for this work alone, and not the caller's: it may then count where others begin.
    fn set_alone(&mut self, _: bool) {}

    /// Counts, unless `counted` says that this was done before. Returns the number of rows counted, and the answer to the caller.
    fn carry_out(
        &mut self,
        link: &mut Link<'_, M, Conn>,
        counted: Option<usize>,
    ) -> impl Future<Output = QueryResult<(usize, Self::Outcome)>>;
}

/// The same work, which also tells whether it was done now.
pub(crate) struct AndWhether<'a, W>(pub(crate) &'a mut W);

impl<W, M, Conn> Requested<M, Conn> for AndWhether<'_, W>
where
    W: Requested<M, Conn>,
    M: Io<Conn>,
{
    type Outcome = (W::Outcome, bool);

    async fn count_at_once(
        &mut self,
        link: &mut Link<'_, M, Conn>,
        request: &Request,
    ) -> QueryResult<Option<Self::Outcome>> {
        let told = self.0.count_at_once(link, request).await?;
        Ok(told.map(|told| (told, true)))
    }

    fn set_alone(&mut self, alone: bool) {
        self.0.set_alone(alone);
    }

    fn transaction(&self, dialect: Dialect) -> TransactionOptions {
        self.0.transaction(dialect)
    }

    async fn carry_out(
        &mut self,
        link: &mut Link<'_, M, Conn>,
        counted: Option<usize>,
    ) -> QueryResult<(usize, Self::Outcome)> {
        let (rows, told) = self.0.carry_out(link, counted).await?;
        Ok((rows, (told, counted.is_none())))
    }
}

/// Claims different keys for the open transaction. Returns what is known of each, in their order. Waits for other transactions
/// that claim the same ones.
pub(crate) async fn claim<M, Conn>(
    link: &mut Link<'_, M, Conn>,
    requests: &[&Request],
) -> QueryResult<Vec<Claimed>>
where
    M: LoadIo<Conn>,
{
    // In the order of the keys, so that two batches do not wait for each other.
    let mut keys: Vec<(&[u8], i64)> = requests
        .iter()
        .map(|request| (request.key.as_slice(), request.fingerprint))
        .collect();
    keys.sort_unstable();
    let insert = InsertKeys {
        claim: i64::from_ne_bytes(random()?),
        keys,
    };
    let (dialect, mut inserted) = (link.dialect(), 0);
    // A key that is there at first may have been removed for its age before it is read.
    for _ in 0..3 {
        let met = link.execute_prepared(&insert).await;
        inserted += met.map_err(|error| explained(link, error))?;
        if dialect.counts_inserted_alone() && inserted == requests.len() {
            return Ok(vec![Claimed::First; requests.len()]);
        }
        let keys = insert.keys.iter().map(|(key, _)| *key).collect();
        let rows = link.load(FindKeys(keys)).await?;
        let known = |request: &&Request| {
            let row = rows.iter().find(|(key, ..)| *key == request.key);
            row.map(|(_, fingerprint, claim, counted)| match () {
                // The claim tells which of them were inserted; where none was, the database's own word is enough.
                () if inserted > 0 && *claim == insert.claim => Claimed::First,
                () if *fingerprint == request.fingerprint => {
                    Claimed::Repeated(usize::try_from(*counted).unwrap_or(usize::MAX))
                }
                () => Claimed::Reused,
            })
        };
        if let Some(claimed) = requests.iter().map(known).collect() {
            return Ok(claimed);
        }
    }
    Err(DieselError::NotFound)
}

/// Releases keys that were claimed in the open transaction, for requests that counted nothing.
pub(crate) async fn release<M, Conn>(
    link: &mut Link<'_, M, Conn>,
    keys: Vec<&[u8]>,
) -> QueryResult<()>
where
    M: LoadIo<Conn>,
{
    let older_than = None;
    link.execute(DeleteKeys { keys, older_than })
        .await
        .map(drop)
}

async fn note<M, Conn>(link: &mut Link<'_, M, Conn>, key: &[u8], counted: usize) -> QueryResult<()>
where
    M: LoadIo<Conn>,
{
    let note = NoteCounted {
        key: [key],
        counted: i64::try_from(counted).unwrap_or(i64::MAX),
    };
    link.execute(note).await.map(drop)
}
