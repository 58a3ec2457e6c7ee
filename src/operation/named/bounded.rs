//! Named counters with bounds.

use std::marker::PhantomData;

use diesel::connection::LoadConnection;
use diesel::prelude::*;

use super::backend::CounterBackend;
use super::counter::Counter;
use super::table::counters;
use crate::connection::{Blocking, now};
use crate::operation::bounded::Bounded;
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
    counter: Counter,
    bounded: Bounded<counters::value>,
    run: PhantomData<fn() -> Run>,
}

impl Counter {
    /// The same counter, which never falls below `least`; see [`BoundedCounter`].
    pub fn never_below(self, least: i64) -> BoundedCounter {
        BoundedCounter::of(self).never_below(least)
    }

    /// The same counter, which never rises above `most`; see [`BoundedCounter`].
    pub fn never_above(self, most: i64) -> BoundedCounter {
        BoundedCounter::of(self).never_above(most)
    }
}

impl<Run> BoundedCounter<Run> {
    pub(super) fn of(counter: Counter) -> Self {
        let row = RowCounter::of(counters::value, counter.name.clone().into_bytes());
        BoundedCounter {
            counter,
            bounded: Bounded::of(row),
            run: PhantomData,
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

    /// Its counter with the number of shards that is known of it, and its name.
    pub(super) fn on_its_shards(&self) -> QueryResult<(Bounded<counters::value>, Vec<u8>)> {
        let name = self.counter.key()?;
        let shards = self.counter.shard_count().known();
        Ok((self.bounded.clone().with_shards(shards), name))
    }
}

impl BoundedCounter {
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
    pub fn add<Conn>(&self, n: i64, conn: &mut Conn) -> QueryResult<bool>
    where
        Conn: LoadConnection,
        Conn::Backend: CounterBackend<Conn>,
    {
        let (bounded, name) = self.on_its_shards()?;
        now(Conn::Backend::add_within(conn, bounded, name, n))
    }
}
