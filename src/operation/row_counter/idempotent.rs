//! One sharded field of one row with an idempotency key.

use std::fmt;

use diesel::prelude::*;

use super::add::ready_to_add;
use super::counter::RowCounter;
use super::field::{IntegerField, Key};
use crate::backend::BackendOf;
use crate::connection::{Link, LoadIo, paired};
#[cfg(doc)]
use crate::error::Error;
use crate::model::ShardedColumn;
use crate::operation::idempotency::{AndWhether, Idempotent, Request, Requested, count_once, once};
use crate::policy::RetryPolicy;

paired! {
    impl<C: ShardedColumn> Idempotent<RowCounter<C, Run>>
    where
        C: IntegerField<DB>,
        Key<C>: fmt::Debug,
        DB: BackendOf<Conn>,
    {
        /// Adds `n`, which may be negative, unless that was done with this key before. Returns the number of rows counted, now or
        /// then.
        ///
        /// # Errors
        /// Those of the counter; [`InvalidIdempotencyKey`](Error::InvalidIdempotencyKey) for a key that is empty or too long,
        /// [`IdempotencyKeyReused`](Error::IdempotencyKeyReused) for a key that came with another counter or amount before.
        pub fn add(&self, link: Link, n: i64) -> QueryResult<usize> {
            Ok(self.of.count_once(n, &self.key, link).await?.0)
        }

        /// Adds 1; see [`add`](Self::add).
        ///
        /// # Errors
        /// As [`add`](Self::add).
        pub fn increment(&self, link: Link) -> QueryResult<usize> {
            Ok(self.of.count_once(1, &self.key, link).await?.0)
        }

        /// Subtracts 1; see [`add`](Self::add).
        ///
        /// # Errors
        /// As [`add`](Self::add).
        pub fn decrement(&self, link: Link) -> QueryResult<usize> {
            Ok(self.of.count_once(-1, &self.key, link).await?.0)
        }
    }
}

impl<C: ShardedColumn, Run> RowCounter<C, Run> {
    /// Adds `n`, unless that was done with this idempotency key before. Returns the number of rows counted, now or then, and whether it was now.
    pub(crate) async fn count_once<DB, M, Conn>(
        &self,
        n: i64,
        key: &[u8],
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<(usize, bool)>
    where
        C: IntegerField<DB>,
        Key<C>: fmt::Debug,
        M: LoadIo<Conn, Backend = DB>,
        DB: BackendOf<Conn>,
    {
        let request = &Request::to_add(key, &self.cached_as(), n)?;
        if n == 0 {
            let nothing = &mut AndWhether(&mut AddNothing(self));
            return once(link, request, RetryPolicy::default(), nothing).await;
        }
        let add = ready_to_add::<C, DB>(self.key.clone(), n);
        count_once(link, add, request).await
    }
}

/// Writes the key alone, if there is such a row.
struct AddNothing<'a, C: ShardedColumn, Run>(&'a RowCounter<C, Run>);

impl<C, Run, M, Conn, DB> Requested<M, Conn> for AddNothing<'_, C, Run>
where
    C: IntegerField<DB>,
    M: LoadIo<Conn, Backend = DB>,
    DB: BackendOf<Conn>,
{
    type Outcome = usize;

    async fn carry_out(
        &mut self,
        link: &mut Link<'_, M, Conn>,
        counted: Option<usize>,
    ) -> QueryResult<(usize, usize)> {
        let counted = match counted {
            Some(counted) => counted,
            None => usize::from(self.0.is_there(link).await?),
        };
        Ok((counted, counted))
    }
}
