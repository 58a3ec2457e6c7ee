//! Counting updates that are requested more than once, and counted once.
//!
//! A request is repeated: by a queue that delivers at least once, by a client that got no answer, by a caller that was told
//! [`OutcomeUnknown`](Error::OutcomeUnknown). With a key that all repeats of it share, only the first is counted, whichever
//! process it reaches, before or after a restart; the others are told what the first was told:
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
//! # What it sends
//!
//! The key is committed together with the count, or neither is:
//!
//! ```sql
//! BEGIN;                                                                    -- MySQL: READ COMMITTED; SQLite: IMMEDIATE
//! INSERT INTO "diesel_sharded_idempotency_keys" ("key", "fingerprint", "claim", "counted", "created")
//! VALUES ($1, $2, $3, 1, now) ON CONFLICT ("key") DO NOTHING;               -- MySQL: ON DUPLICATE KEY UPDATE, which changes nothing
//! SELECT "key", "fingerprint", "claim", "counted" FROM … WHERE "key" IN ($1);  -- only if it was there; on MySQL always
//! UPDATE "videos_shards" AS "videos" SET …;                                 -- only if it was not
//! COMMIT
//! ```
//!
//! A repeat that comes while the first is still at work waits for it, on the key's row. Inside a transaction all of it is part
//! of the caller's, in a savepoint. The cost is that of a transaction with three statements instead of one statement (see the
//! benchmark `cost`), and a row of a few dozen bytes for each key until it is [removed](remove_older_than). Through a
//! [`Coalescer`](crate::coalescer::Coalescer), a batch inserts all its keys by one statement.
//!
//! # What a repeat is told
//!
//! The number of rows that were counted the first time ([`Cached::add`](crate::cached::Cached::add) tells 0: nothing was added to the cached
//! total). Rows that are wanted back (`get_result`) are read as they are by then.
//! What counted nothing, since there was no such row or it failed, leaves no key: its repeat is tried as if it were the first.
//!
//! A key that comes with another update than the first time, another amount or row or field, is a mistake that would
//! lose a count, and so an error: [`IdempotencyKeyReused`](Error::IdempotencyKeyReused). Updates are told apart by a 64-bit
//! hash of what they are about, as Diesel writes it: where another version of Diesel should write it otherwise, a repeat from before the
//! upgrade is told so too, and counts nothing.
//!
//! # When keys go
//!
//! Never by themselves: the library cannot know for how long a request may come again. [`remove_older_than`] removes them,
//! from a daily job for instance. It is safe with an age that is longer than everything that may repeat a request
//! keeps at it, added up: the queue's retention, the client's retries, the time that a job waits while the service is down.
//! Ages are measured by the database's clock alone, so that the clocks of processes do not matter; leave room for that one
//! being set, and for another server's taking over. A repeat that comes later counts again.

mod keys;
mod update;

use std::fmt::{self, Write};
use std::future::Future;
use std::hash::Hasher;
use std::time::Duration;

use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use diesel::result::Error as DieselError;
use fnv::FnvHasher;

use crate::backend::{BackendOf, ShardedBackend};
use crate::connection::{Blocking, Io, Link, LoadIo, TransactionOptions, now};
use crate::engine::{RetryLoop, explain_missing, retry_loop};
use crate::error::Error;
use crate::model::ShardedColumn;
use crate::operation::cached::CachedCounter;
use crate::operation::named::Counter;
use crate::operation::row_counter::RowCounter;
use crate::policy::RetryPolicy;

use self::keys::{DeleteKeys, FindKeys, FindOld, InsertKeys, NoteCounted, TABLE};
#[cfg(feature = "async")]
pub(crate) use self::update::Counted;

/// A counting update, or a counter, with an idempotency key; see the [module](self).
///
/// Made by [`UpdateStatement::idempotency_key`](crate::UpdateStatement::idempotency_key), [`Counter::idempotency_key`] and
/// [`RowCounter::idempotency_key`]. It takes an update's place before `.execute(conn)`, `.get_result(conn)` and
/// `.get_results(conn)`, and a counter's in [`Coalescer::add`](crate::coalescer::Coalescer::add) and
/// [`Cached::add`](crate::cached::Cached::add).
#[derive(Debug, Clone)]
#[must_use = "nothing is counted until it is executed or added to"]
pub struct Idempotent<Of> {
    pub(crate) of: Of,
    pub(crate) key: Vec<u8>,
}

impl Counter {
    /// This counter, which counts once for all additions that come with this key: 1 to 255 bytes. See
    /// [`idempotency`](crate::idempotency).
    pub fn idempotency_key(&self, key: impl AsRef<[u8]>) -> Idempotent<Self> {
        Idempotent::new(self.clone(), key)
    }
}

impl<C: ShardedColumn> RowCounter<C> {
    /// This counter, which counts once for all additions that come with this key: 1 to 255 bytes. See
    /// [`idempotency`](crate::idempotency).
    pub fn idempotency_key(&self, key: impl AsRef<[u8]>) -> Idempotent<Self> {
        Idempotent::new(self.clone(), key)
    }
}

impl<Of> Idempotent<Of> {
    pub(crate) fn new(of: Of, key: impl AsRef<[u8]>) -> Self {
        Idempotent {
            of,
            key: key.as_ref().to_vec(),
        }
    }

    /// Adds `n`, which may be negative, unless that was done with this key before; gives the number of rows counted, now or
    /// then.
    ///
    /// # Errors
    /// Those of the counter; [`InvalidIdempotencyKey`](Error::InvalidIdempotencyKey) for a key that is empty or too long,
    /// [`IdempotencyKeyReused`](Error::IdempotencyKeyReused) for one that came with another counter or amount before.
    pub fn add<Conn>(&self, n: i64, conn: &mut Conn) -> QueryResult<usize>
    where
        Of: CachedCounter<Conn>,
        Conn: LoadConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        let (counted, _) = self.add_once(n, conn)?;
        Ok(counted)
    }

    /// Gives the number of rows counted, now or then, and whether it was now.
    fn add_once<Conn>(&self, n: i64, conn: &mut Conn) -> QueryResult<(usize, bool)>
    where
        Of: CachedCounter<Conn>,
        Conn: LoadConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        let request = self.request::<Conn>(n)?;
        let mut add = Add { to: &self.of, n };
        now(once(
            &mut Link::blocking(conn),
            &request,
            RetryPolicy::default(),
            &mut add,
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

    /// What adding `n` is known by, whichever way it takes to the database.
    pub(crate) fn request<Conn>(&self, n: i64) -> Result<Request, Error>
    where
        Of: CachedCounter<Conn>,
    {
        Request::to_add(&self.key, &self.of.cache_key(), n)
    }
}

/// A repeat adds to no row, and nothing to the cached total: `add` gives 0 for it.
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

/// A key, and what it came with.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub(crate) key: Vec<u8>,
    pub(crate) fingerprint: i64,
}

/// The longest key, in bytes.
const LONGEST: usize = 255;

impl Request {
    /// To add `n` to the counter that is cached as `counter`.
    pub(crate) fn to_add(key: &[u8], counter: &str, n: i64) -> Result<Self, Error> {
        Request::new(key, |text| write!(text, "{counter} by {n}"))
    }

    /// `describe` writes what is asked for, in the same words in every process.
    pub(crate) fn new(
        key: &[u8],
        describe: impl FnOnce(&mut Fingerprint) -> fmt::Result,
    ) -> Result<Self, Error> {
        let bytes = key.len();
        if !(1..=LONGEST).contains(&bytes) {
            return Err(Error::InvalidIdempotencyKey { bytes });
        }
        let mut fingerprint = Fingerprint(FnvHasher::default());
        let described = describe(&mut fingerprint);
        described.map_err(|error| Error::Diesel(DieselError::QueryBuilderError(error.into())))?;
        Ok(Request {
            key: key.to_vec(),
            fingerprint: i64::from_ne_bytes(fingerprint.0.finish().to_ne_bytes()),
        })
    }
}

/// Hashes what is written, alike in every process. (The standard library's hashes may change with it.)
pub(crate) struct Fingerprint(FnvHasher);

impl Write for Fingerprint {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl Fingerprint {
    pub(crate) fn write_fragment<DB>(&mut self, fragment: &impl QueryFragment<DB>) -> fmt::Result
    where
        DB: ShardedBackend,
    {
        write!(self, "{}", diesel::debug_query::<DB, _>(fragment))
    }
}

/// What is known of a request once its key is claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// It is the first.
    First,
    /// It was counted before, on so many rows.
    RetryLoop(usize),
    /// Something else was counted under its key.
    Reused,
}

/// Carries out what was not carried out before under the same key, in one transaction with the key; inside a caller's, in a
/// savepoint. `f` is told how many rows were counted before, if it is a repeat, and gives how many are by now.
pub(crate) async fn once<W, M, Conn>(
    link: &mut Link<'_, M, Conn>,
    request: &Request,
    retry: RetryPolicy,
    work: &mut W,
) -> QueryResult<W::Told>
where
    M: LoadIo<Conn>,
    W: Requested<M, Conn>,
{
    let options = TransactionOptions {
        isolation: link.dialect().own_isolation(),
        ..Default::default()
    };
    let repeated = RetryLoop::transaction(link, retry, options)?;
    retry_loop!(link, repeated, {
        match claim(link, &[request]).await?.first() {
            Some(Claimed::First) | None => {}
            Some(Claimed::RetryLoop(counted)) => {
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

/// What is requested, and done once.
pub(crate) trait Requested<M: Io<Conn>, Conn> {
    /// What the caller is told.
    type Told;

    /// Counts, unless `counted` tells that this was done before. The number of rows counted, and what the caller is told.
    fn carry_out(
        &mut self,
        link: &mut Link<'_, M, Conn>,
        counted: Option<usize>,
    ) -> impl Future<Output = QueryResult<(usize, Self::Told)>>;
}

/// Adds to a counter. Whether it was now is told too.
struct Add<'a, Of> {
    to: &'a Of,
    n: i64,
}

impl<Of, Conn> Requested<Blocking, Conn> for Add<'_, Of>
where
    Blocking: Io<Conn>,
    Of: CachedCounter<Conn>,
{
    type Told = (usize, bool);

    async fn carry_out(
        &mut self,
        link: &mut Link<'_, Blocking, Conn>,
        counted: Option<usize>,
    ) -> QueryResult<(usize, (usize, bool))> {
        let now = counted.is_none();
        let counted = counted.map_or_else(|| self.to.add(self.n, link.conn), Ok)?;
        Ok((counted, (counted, now)))
    }
}

/// Claims keys, which differ, for the open transaction: what they are known of, in their order. Waits for other transactions
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
        claim: rand::random(),
        keys,
    };
    let dialect = link.dialect();
    // A key that is there at first may have been removed for its age before it is read.
    for _ in 0..3 {
        let inserted = link.execute_kept(&insert).await;
        let inserted = inserted.map_err(|error| explained(link, error))?;
        if dialect.counts_inserted_alone() && inserted == requests.len() {
            return Ok(vec![Claimed::First; requests.len()]);
        }
        let keys = insert.keys.iter().map(|(key, _)| *key).collect();
        let rows = link.load(FindKeys(keys)).await?;
        let known = |request: &&Request| {
            let row = rows.iter().find(|(key, ..)| *key == request.key);
            row.map(|(_, fingerprint, claim, counted)| match () {
                () if *claim == insert.claim => Claimed::First,
                () if *fingerprint == request.fingerprint => {
                    Claimed::RetryLoop(usize::try_from(*counted).unwrap_or(usize::MAX))
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

/// Lets go of keys that were claimed in the open transaction, for what counted nothing.
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

/// Removes the keys that are older than `age`, by the database's clock, in whole seconds; gives their number. Their requests
/// count again if they should still come: see [when keys go](self#when-keys-go).
///
/// Goes in steps of 1,000 keys, each a transaction of its own, so that counts do not wait for it; several processes may do it at
/// once. Inside a transaction it is part of the caller's.
///
/// ```sql
/// SELECT … FROM "diesel_sharded_idempotency_keys" WHERE "created" < now - $1 ORDER BY "created" LIMIT 1000;
/// DELETE FROM "diesel_sharded_idempotency_keys" WHERE "key" IN ($1, …) AND "created" < now - $1001
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
pub fn remove_older_than<Conn>(age: Duration, conn: &mut Conn) -> QueryResult<usize>
where
    Conn: LoadConnection,
    Conn::Backend: BackendOf<Conn>,
{
    now(remove(age, &mut Link::blocking(conn)))
}

pub(crate) async fn remove<M, Conn>(
    age: Duration,
    link: &mut Link<'_, M, Conn>,
) -> QueryResult<usize>
where
    M: LoadIo<Conn>,
{
    const STEP: i64 = 1_000;
    // Beyond that the difference from now would leave the range of an `i64`.
    let seconds = i64::try_from(age.as_secs())
        .unwrap_or(i64::MAX)
        .min(i64::MAX / 2);
    let mut removed = 0;
    loop {
        let old = FindOld {
            seconds,
            limit: STEP,
        };
        let old = link.load(old).await;
        let old = old.map_err(|error| explained(link, error))?;
        if old.is_empty() {
            return Ok(removed);
        }
        // Of several rows: a deadlock may end it where it commits by itself, or end a transaction that Diesel does not know.
        let options = TransactionOptions {
            isolation: link.dialect().own_isolation(),
            ..Default::default()
        };
        let deleting = RetryLoop::transaction(link, RetryPolicy::default(), options)?;
        let step = retry_loop!(link, deleting, {
            let delete = DeleteKeys {
                keys: old.iter().map(|(key, ..)| key.as_slice()).collect(),
                older_than: Some(seconds),
            };
            link.execute(delete).await
        })?;
        if step == 0 {
            return Ok(removed); // or others are removing them
        }
        removed += step;
    }
}

fn explained<M, Conn>(link: &Link<'_, M, Conn>, error: DieselError) -> DieselError
where
    M: Io<Conn>,
{
    explain_missing(&link.backend(), TABLE, error)
}

/// Idempotency keys, on connections of `diesel_async`; see [`idempotency`].
#[cfg(feature = "async")]
pub mod asynchronous {
    use std::time::Duration;

    use diesel::result::QueryResult;
    use diesel_async::AsyncConnection;

    use crate::backend::BackendOf;
    use crate::connection::{BoxFuture, Link};
    use crate::idempotency;

    /// Removes old keys; see [`remove_older_than`](idempotency::remove_older_than).
    ///
    /// # Errors
    /// As there.
    pub fn remove_older_than<Conn>(
        age: Duration,
        conn: &mut Conn,
    ) -> BoxFuture<'_, QueryResult<usize>>
    where
        Conn: AsyncConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        Box::pin(async move { idempotency::remove(age, &mut Link::awaited(conn)).await })
    }
}
