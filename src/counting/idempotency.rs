//! Counting updates that are requested more than once, and counted once.
//!
//! A request may be repeated: by a queue that delivers at least once, by a client that got no answer, by a caller that received
//! [`OutcomeUnknown`](crate::Error::OutcomeUnknown). If all repeats share a key, only the first is counted, in any process,
//! before or after a restart. The others get the same answer as the first. A key is one for the whole database: where tenants choose their
//! keys, add the tenant's name:
//!
//! ```
//! # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
//! # use schema::videos::{self, dsl::{id, videos as all, views}};
//! # use diesel_migrations::MigrationHarness;
//! # #[derive(diesel_sharded::ShardedField)]
//! # #[diesel(table_name = videos)]
//! # struct Video { id: i64, #[sharded] views: i64 }
//! # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! # let conn = &mut SqliteConnection::establish(":memory:")?;
//! # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, views BIGINT NOT NULL)").execute(conn)?;
//! # diesel::insert_into(all).values((id.eq(7), views.eq(100))).execute(conn)?;
//! # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
//! use diesel::prelude::*;
//! use diesel_sharded::{Counter, update};
//!
//! conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?; // once
//! let request = "0b9d6d0e-6a3f"; // a header of the request, a message's id
//!
//! for _ in 0..3 {
//!     let counted = update(all.find(7))
//!         .set(views.eq(views + 1))
//!         .idempotency_key(format!("{request}/views"))
//!         .execute(conn)?;
//!     assert_eq!(counted, 1);
//!     Counter::named("views").idempotency_key(format!("{request}/site")).add(1, conn)?;
//! }
//! # use diesel_sharded::prelude::*;
//! # assert_eq!(all.find(7).select(views.total()).first::<i64>(conn)?, 101);
//! # assert_eq!(Counter::named("views").get(conn)?, 1);
//! # Ok(())
//! # }
//! ```
//!
//! # SQL
//!
//! The key and the increment are committed together, or not at all:
//!
//! ```sql
//! BEGIN;                                                                    -- MySQL: READ COMMITTED; SQLite: IMMEDIATE
//! INSERT INTO "diesel_sharded_idempotency_keys" ("key", "fingerprint", "claim", "counted", "created", "expires")
//! VALUES ($1, $2, $3, 1, now, never) ON CONFLICT ("key") DO NOTHING;        -- MySQL: ON DUPLICATE KEY UPDATE, which changes nothing
//! SELECT "key", "fingerprint", "claim", "counted" FROM … WHERE "key" IN ($1)   -- only if it was there; on MySQL always
//!     FOR KEY SHARE;                                                        -- MySQL: FOR UPDATE; SQLite: none
//! UPDATE "videos_shards" AS "videos" SET …;                                 -- only if it was not
//! COMMIT
//! ```
//!
//! Outside a transaction, an update by key and an addition to a counter do all of this in one statement: on PostgreSQL by `WITH` clauses,
//! on MariaDB by a compound statement, `BEGIN NOT ATOMIC … END`. If that finds the key, or no shard, the transaction above follows.
//!
//! ```sql
//! WITH "sharded_claimed" AS (INSERT INTO "diesel_sharded_idempotency_keys" … ON CONFLICT ("key") DO NOTHING RETURNING 1),
//! "sharded_counted" AS (UPDATE "videos_shards" AS "videos" SET … AND EXISTS (SELECT 1 FROM "sharded_claimed") RETURNING 1)
//! SELECT 1 FROM "sharded_claimed" WHERE …                                   -- fails if one of the two was done alone
//! ```
//!
//! A repeat that comes while the first request is still running waits for it, on the key's row. Inside a transaction all statements are
//! part of the caller's, in a savepoint. (Where Diesel does not know of the transaction, PostgreSQL may be sent the one statement. If that
//! fails, for example by an overflow, it aborts the caller's transaction, as any increment does.) The cost is that of a larger statement, or of
//! a transaction with three statements instead of one (see the benchmark `cost`), and a row of a few dozen bytes for each key until it is
//! [removed](remove_older_than).
//!
//! # Answers to repeats
//!
//! On PostgreSQL with a synchronous standby, a repeat is answered when the standby has the first increment too: because the repeat locks the
//! key, its commit waits for the standby.
//!
//! A repeat returns the number of rows that were counted the first time ([`Cached::add`](crate::cached::Cached::add) returns 0: nothing was
//! added to the cached total). To read the counted rows too, put `.execute(conn)` and a `select` into one
//! [`retry::transaction`](crate::retry::transaction()); a counter has `add_and_get`. An update that counted nothing, because it failed or
//! no row matched, leaves no key: a repeat runs as if it were the first.
//!
//! A key that comes again with another update (another amount, row, field or row to insert) would lose an increment. So it is an error:
//! [`IdempotencyKeyReused`](crate::Error::IdempotencyKeyReused). Updates are distinguished by a 64-bit hash of their content as Diesel
//! writes it. For batches and counters, the content shows keys by their `Debug`: a key type whose `Debug` hides its value makes different
//! rows look the same. If another version writes it differently, a repeat of a request from before the upgrade gets this error too, and counts
//! nothing.
//!
//! # Sets and deletes
//!
//! [`set_total`](crate::operation::SetTotal::idempotency_key), `reset`, and a named counter's `set`, `reset` and `delete` accept a key too.
//! The key is written in the transaction that sets. A repeat changes nothing, even after further increments: a job that sets a total and runs
//! again does not take them back.
//!
//! # When keys go
//!
//! These keys never expire by themselves, because the library cannot know for how long a request may come again. [`remove_older_than`]
//! removes them, for instance from a daily job. A safe age is longer than the sum of all times for which a request may be
//! repeated: the queue's retention, the client's retries, the time for which a job waits while the service is down. Only the database's
//! clock measures ages, so the clocks of processes do not matter. Leave a margin in case that clock is set, or another server takes over. A
//! repeat that comes later counts again.

mod keys;
mod update;

use std::fmt::{self, Write};
use std::future::{Future, ready};
use std::hash::Hasher;
use std::time::Duration;

use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use fnv::FnvHasher;

use crate::backend::{BackendOf, Dialect, Hashed};
use crate::connection::{
    Blocking, Io, Link, LoadIo, Over, TransactionOptions, in_transaction, now, paired,
};
use crate::counting::row_counter::{CachedAs, OneCounter};
use crate::engine::{RetryLoop, retry_loop};
use crate::error::Error;
use crate::per_process::random;
use crate::policy::RetryPolicy;
use crate::reading::cached::CachedCounter;

use self::keys::{DeleteKeys, FindKey, FindRemovable, InsertKey, NoteCounted, SeeKey, explained};

pub(crate) use self::keys::Removable;
pub(crate) use self::update::UpdateOnce;

/// A counting update, or a counter, with an idempotency key; see the [module](self).
///
/// Made by [`UpdateStatement::idempotency_key`](crate::operation::UpdateStatement::idempotency_key),
/// [`CountMany::idempotency_key`](crate::operation::CountMany::idempotency_key),
/// [`Counter::idempotency_key`](crate::Counter::idempotency_key) and
/// [`RowCounter::idempotency_key`](crate::RowCounter::idempotency_key). It replaces an update before `.execute(conn)`, and a counter in
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
}

/// A repeat adds to no row, and nothing to the cached total: `add` returns 0 for it.
impl<Of, Conn> CachedCounter<Conn> for Idempotent<Of>
where
    Of: OneCounter<Over<Blocking, Conn>> + CachedCounter<Conn> + CachedAs,
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
        let link = &mut Link::blocking(conn);
        let (counted, now) = now(self.of.count_once(n, &self.key, link))?;
        Ok(if now { counted } else { 0 })
    }
}

/// A key, and the fingerprint of the request that it came with.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub(crate) key: Vec<u8>,
    pub(crate) fingerprint: i64,
    pub(crate) expires: Expiry,
}

/// The second after which a key may be removed.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    /// 1 if the seconds begin now, by the database's clock; 0 if they began in 1970. One statement serves both.
    from_now: i64,
    seconds: i64,
}

impl Expiry {
    /// A key that is removed when it is old enough.
    pub(crate) const NEVER: Self = Expiry {
        from_now: 0,
        seconds: i64::MAX,
    };

    pub(crate) fn after(seconds: i64) -> Self {
        Expiry {
            from_now: 1,
            seconds,
        }
    }
}

/// The longest key, in bytes.
const LONGEST: usize = 255;

impl Request {
    /// The request to add `n` to the counter that is cached as `counter`.
    pub(crate) fn to_add(key: &[u8], counter: &str, n: i64) -> Result<Self, Error> {
        Request::new(key, |text| write!(text, "{counter} by {n}"))
    }

    /// `describe` writes the content of the request, in the same words in every process.
    pub(crate) fn new(
        key: &[u8],
        describe: impl FnOnce(&mut Hashed<FnvHasher>) -> fmt::Result,
    ) -> Result<Self, Error> {
        let bytes = key.len();
        if !(1..=LONGEST).contains(&bytes) {
            return Err(Error::InvalidIdempotencyKey { bytes });
        }
        // This hash is the same in every process. The standard library's may change between its releases.
        let mut fingerprint = Hashed(FnvHasher::default());
        let described = describe(&mut fingerprint);
        described.map_err(|error| Error::Diesel(DieselError::QueryBuilderError(error.into())))?;
        Ok(Request {
            key: key.to_vec(),
            fingerprint: i64::from_ne_bytes(fingerprint.0.finish().to_ne_bytes()),
            expires: Expiry::NEVER,
        })
    }

    /// The number of rows that the row of its key holds. Fails if the row is another request's.
    fn counted(&self, fingerprint: i64, counted: i64) -> QueryResult<usize> {
        match fingerprint == self.fingerprint {
            true => Ok(usize::try_from(counted).unwrap_or(usize::MAX)),
            false => Err(Error::IdempotencyKeyReused.into()),
        }
    }
}

/// Carries out a request that was not carried out before under the same key: by one statement where that is possible, else in one
/// transaction with the key, or in a savepoint of the caller's transaction. Returns the number of rows counted, now or then, and whether it
/// was now.
pub(crate) async fn once<W, M>(
    link: &mut Link<'_, M>,
    request: &Request,
    retry: RetryPolicy,
    work: &mut W,
) -> QueryResult<(usize, bool)>
where
    M: LoadIo,
    W: Requested<M>,
{
    let retry = retry.begun();
    if let Some(counted) = work.count_at_once(link, request, &retry).await? {
        return Ok((counted, true));
    }
    link.owns_transaction = !in_transaction(link)?;
    let options = work.transaction(link.dialect());
    let repeated = RetryLoop::transaction(link, retry, options)?;
    retry_loop!(link, repeated, {
        if let Some(counted) = claim(link, request).await? {
            return Ok((counted, false));
        }
        let counted = work.carry_out(link).await?;
        match counted {
            0 => release(link, &request.key).await?,
            1 => {} // as it was claimed
            _ => {
                let note = NoteCounted {
                    key: [&request.key],
                    counted: i64::try_from(counted).unwrap_or(i64::MAX),
                };
                link.execute(note).await?;
            }
        }
        Ok((counted, true))
    })
}

/// Work that is requested, and done once.
pub(crate) trait Requested<M: Io> {
    /// The transaction of the key and the work.
    fn transaction(&self, dialect: Dialect) -> TransactionOptions {
        TransactionOptions::of_a_count(dialect)
    }

    /// Claims the key and counts, by one statement that commits by itself. `None` if there is no such statement, or if it did nothing,
    /// such as when the key is known.
    fn count_at_once(
        &mut self,
        _: &mut Link<'_, M>,
        _: &Request,
        _: &RetryPolicy,
    ) -> impl Future<Output = QueryResult<Option<usize>>> {
        ready(Ok(None))
    }

    /// Does the work, and returns the number of rows counted.
    fn carry_out(&mut self, link: &mut Link<'_, M>) -> impl Future<Output = QueryResult<usize>>;
}

/// How often a key is claimed that the insert meets, and that is removed before it is read. Then something hides it, such as row security.
const MOST_CLAIMS: u8 = 32;

/// Claims a key for the open transaction, or returns the number of rows if it was counted before. Waits for another transaction that claims
/// the same key.
pub(crate) async fn claim<M: LoadIo>(
    link: &mut Link<'_, M>,
    request: &Request,
) -> QueryResult<Option<usize>> {
    let insert = InsertKey {
        request,
        claim: i64::from_ne_bytes(random()?),
    };
    let (dialect, mut inserted) = (link.dialect(), false);
    for _ in 0..MOST_CLAIMS {
        let met = link.execute_prepared(&insert).await;
        inserted |= met.map_err(|error| explained(link, error))? > 0;
        if dialect.counts_only_inserted() && inserted {
            return Ok(None);
        }
        let rows = link.load(FindKey([&request.key])).await?;
        if let Some((_, fingerprint, claim, counted)) = rows.first() {
            return match () {
                // The claim tells whether this insert wrote the row. If the database says that it did not, that is enough.
                () if inserted && *claim == insert.claim => Ok(None),
                () => request.counted(*fingerprint, *counted).map(Some),
            };
        }
    }
    Err(DieselError::NotFound)
}

/// Whether the request is known to have been carried out: by a plain read, which locks nothing. `false` says nothing, because a proxy may
/// send the read to a replica, which lags. So [`once`] follows, on the primary.
pub(crate) async fn is_known<M: LoadIo>(
    link: &mut Link<'_, M>,
    request: &Request,
    retry: RetryPolicy,
) -> QueryResult<bool> {
    if in_transaction(link)? && link.dialect().reads_bind_writes() {
        return Ok(false);
    }
    let reading = RetryLoop::read(link, retry)?;
    let rows = retry_loop!(link, reading, {
        link.load_prepared(SeeKey(request.key.clone())).await
    });
    let rows: Vec<(Vec<u8>, i64, i64, i64)> = rows.map_err(|error| explained(link, error))?;
    let counted = rows
        .first()
        .map(|(_, fingerprint, _, counted)| request.counted(*fingerprint, *counted));
    Ok(counted.transpose()?.is_some())
}

/// Releases a key, for a request that counted nothing or is not repeated.
pub(crate) async fn release<M: LoadIo>(link: &mut Link<'_, M>, key: &[u8]) -> QueryResult<()> {
    let delete = DeleteKeys {
        keys: vec![key],
        only: None,
    };
    let released = link.execute(delete).await;
    released.map(drop).map_err(|error| explained(link, error))
}

pub use self::blocking::remove_older_than;

paired! {
    /// Removes the keys that are older than `age`, by the database's clock, in whole seconds, and returns their number. If their
    /// requests come again, they count again: see [when keys go](crate::idempotency#when-keys-go).
    ///
    /// Each 1,000 keys are removed in a separate transaction, so increments do not wait. Several processes may remove keys at once. Inside a
    /// transaction the removal is part of the caller's. Rows of [unique counts](crate::unique), which have an expiry of their own, stay.
    ///
    /// ```sql
    /// SELECT … FROM "diesel_sharded_idempotency_keys" WHERE "expires" = never AND "created" < now - $1
    ///     ORDER BY "expires", "created" LIMIT 1000;
    /// DELETE FROM "diesel_sharded_idempotency_keys" WHERE "key" IN ($1, …) AND "expires" = never AND "created" < now - $1001
    /// ```
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # use diesel_migrations::MigrationHarness;
    /// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// # let conn = &mut SqliteConnection::establish(":memory:")?;
    /// # conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?;
    /// use std::time::Duration;
    /// use diesel_sharded::idempotency;
    ///
    /// // Queues keep a message for four days at most.
    /// idempotency::remove_older_than(Duration::from_secs(7 * 24 * 3600), conn)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The database's; [`MissingShardsTable`](Error::MissingShardsTable) if the library's migrations have not run.
    pub fn remove_older_than(link: Link, age: Duration) -> QueryResult<usize>
    where
        DB: BackendOf<Conn>,
    {
        // Beyond that the difference from now would leave the range of an `i64`.
        let seconds = i64::try_from(age.as_secs())
            .unwrap_or(i64::MAX)
            .min(i64::MAX / 2);
        remove(Removable::OlderThan(seconds), usize::MAX, link).await
    }
}

/// Removes keys, 1,000 in a transaction, in at most this many transactions.
pub(crate) async fn remove<M: LoadIo>(
    which: Removable,
    transactions: usize,
    link: &mut Link<'_, M>,
) -> QueryResult<usize> {
    let mut removed = 0;
    for _ in 0..transactions {
        let reading = RetryLoop::read(link, RetryPolicy::default())?;
        let old = retry_loop!(link, reading, {
            let limit = 1_000;
            link.load(FindRemovable { which, limit }).await
        });
        let old = old.map_err(|error| explained(link, error))?;
        if old.is_empty() {
            break;
        }
        // The statement deletes several rows, so a deadlock may end it, or with it a transaction that Diesel does not know of.
        let options = TransactionOptions::of_a_count(link.dialect());
        let deleting = RetryLoop::transaction(link, RetryPolicy::default(), options)?;
        let step = retry_loop!(link, deleting, {
            let delete = DeleteKeys {
                keys: old.iter().map(|(key, ..)| key.as_slice()).collect(),
                only: Some(which),
            };
            link.execute(delete).await
        })?;
        if step == 0 {
            break; // others are removing them
        }
        removed += step;
    }
    Ok(removed)
}
