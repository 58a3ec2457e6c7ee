//! Named counters with bounds.

use diesel::prelude::*;

use super::backend::CounterBackend;
use super::counter::Counter;
use super::table::counters;
use crate::connection::{Blocking, Io, Link, paired};
#[cfg(doc)]
use crate::error::Error;
use crate::operation::bounded::{Bounded, Within, count_and_total, count_once};
use crate::operation::idempotency::{Idempotent, Request};
use crate::operation::row_counter::RowCounter;
use crate::policy::RetryPolicy;

/// A named counter that stays within bounds; made by [`Counter::never_below`] and [`Counter::never_above`].
///
/// ```
/// # use diesel::prelude::*;
/// # use diesel_migrations::MigrationHarness;
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// # let conn = &mut SqliteConnection::establish(":memory:")?;
/// # conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?;
/// use diesel_sharded::Counter;
///
/// // At most two requests of this customer in this minute.
/// let requests = Counter::named("requests:42:12:30").never_above(2);
/// assert!(requests.add(1, conn)?);
/// assert!(requests.add(1, conn)?);
/// assert!(!requests.add(1, conn)?);
/// # Ok(())
/// # }
/// ```
///
/// It is [`Bounded`](crate::bounded::Bounded) on the library's own tables, with the same SQL, and the same rules for whoever else
/// counts on it: all processes use the same bounds, and nobody counts on it without them. A counter that does not exist has the
/// total 0, and is created by the first count that its bounds allow.
#[derive(Debug, Clone)]
#[must_use = "a counter does nothing by itself"]
pub struct BoundedCounter<Run = Blocking> {
    counter: Counter<Run>,
    bounded: Bounded<counters::value>,
}

impl<Run> Counter<Run> {
    /// The same counter, which never falls below `least`; see [`BoundedCounter`].
    pub fn never_below(self, least: i64) -> BoundedCounter<Run> {
        BoundedCounter::of(self).never_below(least)
    }

    /// The same counter, which never rises above `most`; see [`BoundedCounter`].
    pub fn never_above(self, most: i64) -> BoundedCounter<Run> {
        BoundedCounter::of(self).never_above(most)
    }
}

impl<Run> BoundedCounter<Run> {
    fn of(counter: Counter<Run>) -> Self {
        let row = RowCounter::<_, Blocking>::of(counters::value, counter.name.clone().into_bytes());
        BoundedCounter {
            counter,
            bounded: Bounded::of(row),
        }
    }

    /// Sets the lower bound.
    pub fn never_below(self, least: i64) -> Self {
        BoundedCounter {
            bounded: self.bounded.never_below(least),
            ..self
        }
    }

    /// Sets the upper bound.
    pub fn never_above(self, most: i64) -> Self {
        BoundedCounter {
            bounded: self.bounded.never_above(most),
            ..self
        }
    }

    /// Retries by `policy` instead of the [process-wide](RetryPolicy::global) one.
    pub fn retry(self, policy: RetryPolicy) -> Self {
        BoundedCounter {
            bounded: self.bounded.retry(policy),
            ..self
        }
    }

    /// The same counter, which counts only once for all additions with this key of 1 to 255 bytes. An addition that the bounds
    /// refuse changes nothing, and leaves the key free. See [`idempotency`](crate::idempotency).
    pub fn idempotency_key(&self, key: impl AsRef<[u8]>) -> Idempotent<Self>
    where
        Run: Clone,
    {
        Idempotent::new(self.clone(), key)
    }

    /// Its counter with the number of shards that is known of it, and its name.
    fn on_its_shards(&self) -> QueryResult<(Bounded<counters::value>, Vec<u8>)> {
        let name = self.counter.key()?;
        let shards = self.counter.shard_count().known();
        Ok((self.bounded.clone().with_shards(shards), name))
    }
}

paired! {
    impl<> BoundedCounter<Run>
    where
        DB: CounterBackend<Conn, Run>,
    {
        /// Adds `n`, which may be negative, and returns `Ok(true)` if the total stays within the bounds. Otherwise it returns
        /// `Ok(false)` and changes nothing. Adding 0 sends nothing.
        ///
        /// While there is room, this takes one statement:
        ///
        /// ```sql
        /// UPDATE "diesel_sharded_counter_shards" AS "diesel_sharded_counters"
        /// SET "value" = ("diesel_sharded_counters"."value" + $1)
        /// WHERE ("diesel_sharded_counters"."name" = $2) AND "diesel_sharded_counters"."shard" = $3
        ///   AND ("diesel_sharded_counters"."value" + $4) <= 0
        /// ```
        ///
        /// Close to a bound, and at the first count, it is a transaction: see [`Bounded::add`](crate::bounded::Bounded::add).
        ///
        /// Its effect on the total: `n`, or none.
        ///
        /// # Errors
        /// See [`Counter`](Counter#errors).
        pub fn add(&self, link: Link, n: i64) -> QueryResult<bool> {
            self.count(n, link).await
        }

        /// Adds `n`, which may be negative, and returns the new total; `None` if that would leave the bounds, and then nothing
        /// changes. The count and the read are one transaction, so the total contains `n`, and no count that another connection
        /// has not committed by then.
        ///
        /// # Errors
        /// See [`Counter`](Counter#errors).
        pub fn add_and_get(&self, link: Link, n: i64) -> QueryResult<Option<i64>> {
            count_and_total(self, n, link).await
        }

        /// The exact total; see [`Counter::get`].
        ///
        /// # Errors
        /// See [`Counter`](Counter#errors).
        pub fn get(&self, link: Link) -> QueryResult<i64> {
            self.counter.total(true, link).await
        }
    }

    impl<> Idempotent<BoundedCounter<Run>>
    where
        DB: CounterBackend<Conn, Run>,
    {
        /// Adds `n`, which may be negative, unless that was done with this key before. Returns whether the bounds allow it now, or
        /// allowed it then; if not, nothing changes, and the key is free.
        ///
        /// # Errors
        /// Those of [`Counter`](Counter#errors); [`InvalidIdempotencyKey`](Error::InvalidIdempotencyKey) for a key that is empty or
        /// too long, [`IdempotencyKeyReused`](Error::IdempotencyKeyReused) for a key that came with another counter or amount before.
        pub fn add(&self, link: Link, n: i64) -> QueryResult<bool> {
            let request = Request::to_add(&self.key, &self.of.counter.cached_as(), n)?;
            count_once(&self.of, n, &request, link).await
        }
    }
}

impl<Run, M, Conn, DB> Within<M, Conn> for BoundedCounter<Run>
where
    M: Io<Conn, Backend = DB>,
    DB: CounterBackend<Conn, M>,
{
    fn retry_policy(&self) -> RetryPolicy {
        self.bounded.retry_policy()
    }

    async fn count(&self, n: i64, link: &mut Link<'_, M, Conn>) -> QueryResult<bool> {
        let (bounded, name) = self.on_its_shards()?;
        DB::add_within(link.conn, bounded, name, n).await
    }

    async fn total(&self, link: &mut Link<'_, M, Conn>) -> QueryResult<Option<i64>> {
        self.counter.total(true, link).await.map(Some)
    }
}
