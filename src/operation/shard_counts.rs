//! How many shards writers choose from, changed while they run.
//!
//! Any number is right, since readers add up whatever shards there are; it only decides how many writers meet. So the
//! numbers may lag: they are kept in a small table of the library's own (see [`MIGRATIONS`](crate::MIGRATIONS)) and each
//! process follows it at its own pace. What a process knows is by the names of tables: where it counts in several databases
//! with tables of the same names, the one that was read last holds for all.
//!
//! ```
//! # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
//! # use schema::videos;
//! # use diesel::prelude::*;
//! # #[derive(diesel_sharded::ShardedField)]
//! # struct Video { id: i64, #[sharded] views: i64 }
//! # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! # let file = std::env::temp_dir().join(format!("sharded_numbers_{}.db", std::process::id()));
//! # let url = file.display().to_string();
//! # let conn = &mut SqliteConnection::establish(&url)?;
//! # use diesel_migrations::MigrationHarness;
//! # conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?;
//! use std::time::{Duration, Instant};
//! use diesel_sharded::shard_counts::{ShardCount, follow};
//!
//! // Once, when the process starts: 10 s is how long a change takes to arrive here, at most.
//! let following = follow(Duration::from_secs(10), move || SqliteConnection::establish(&url))?;
//!
//! // Anywhere, at any time: from now on more writers find a shard of their own.
//! assert_eq!(ShardCount::of(videos::views).increase(512, conn)?, 512);
//! # drop(following);
//! # std::fs::remove_file(file)?;
//! # Ok(())
//! # }
//! ```

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::Error as DieselError;
use diesel::sql_types::{Binary, Integer};

use crate::backend::{BackendOf, ShardedBackend};
use crate::background::Background;
use crate::connection::{Io, Link, LoadIo, TransactionOptions, in_any_transaction, now};
use crate::engine::{RetryLoop, explain_missing, retry_loop};
use crate::error::Error;
use crate::model::{MAX_SHARDS, ShardedColumn, ShardedTable};
use crate::policy::RetryPolicy;
use crate::query_builder::push_bind;

/// The number of shards of one field, or of one named counter, as the database keeps it.
///
/// A change takes effect in this process at once, but for one inside a transaction; in others, when they [`refresh`], at the
/// interval at which they [`follow`], and for named counters after 10 s, outside transactions. No total changes. Where the database keeps no number, the derive's holds. An update of several fields at
/// once chooses from the largest of their numbers.
#[derive(Debug, Clone)]
#[must_use = "a number does nothing until it is read or changed"]
pub struct ShardCount {
    table: &'static str,
    counter: Vec<u8>,
    default: u16,
}

impl ShardCount {
    /// The largest number of shards.
    pub const MAX: u16 = MAX_SHARDS;

    /// Of a sharded field.
    pub fn of<C: ShardedColumn>(_column: C) -> Self {
        ShardCount {
            table: <C::Table as ShardedTable>::SHARDS_TABLE,
            counter: C::NAME.into(),
            default: <C::Table as ShardedTable>::SHARDS,
        }
    }

    /// Of a field that a tool has found in the database, where the derive's number is not known.
    pub(crate) fn described(table: &'static str, field: &[u8]) -> Self {
        ShardCount {
            table,
            counter: field.into(),
            default: 1, // `increase` begins with no less
        }
    }

    /// Of one counter among others in the same column. The zero keeps it apart from a field's: no column's name has one.
    pub(crate) fn of_counter<T: ShardedTable>(counter: &[u8]) -> Self {
        ShardCount {
            table: T::SHARDS_TABLE,
            counter: [b"\0", counter].concat(),
            default: T::SHARDS,
        }
    }

    /// The number in the database.
    ///
    /// ```sql
    /// SELECT … FROM "diesel_sharded_shard_numbers" WHERE "shards_table" = $1 AND "counter" = $2
    /// ```
    ///
    /// # Errors
    /// The database's; [`MissingShardsTable`](Error::MissingShardsTable) if the library's migrations have not run.
    pub fn get<Conn>(&self, conn: &mut Conn) -> QueryResult<u16>
    where
        Conn: LoadConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        now(self.number(&mut Link::blocking(conn)))
    }

    pub(crate) async fn number<M, Conn>(&self, link: &mut Link<'_, M, Conn>) -> QueryResult<u16>
    where
        M: LoadIo<Conn>,
    {
        let reading = RetryLoop::read(link, RetryPolicy::default())?;
        retry_loop!(link, reading, self.read(false, link).await)
    }

    async fn read<M, Conn>(&self, locked: bool, link: &mut Link<'_, M, Conn>) -> QueryResult<u16>
    where
        M: LoadIo<Conn>,
    {
        let only = Only::Number(self, locked);
        let number = load(link, only).await?.into_iter().next();
        Ok(number.map_or(self.default, |(_, _, number)| within(number)))
    }

    /// Uses `number` in this process from now on.
    fn learn(&self, number: u16) {
        let mut known = known_for_writing();
        known.insert(self.table.as_bytes().into(), self.counter.clone(), number);
        known.changes += 1;
    }

    /// Raises the number to `n`, and never lowers it; gives the number that holds then. Racing calls leave the largest.
    ///
    /// ```sql
    /// INSERT INTO "diesel_sharded_shard_numbers" ("shards_table", "counter", "shards") VALUES ($1, $2, $3)
    /// ON CONFLICT ("shards_table", "counter") DO UPDATE SET "shards" =
    ///     CASE WHEN "diesel_sharded_shard_numbers"."shards" < $4 THEN $5 ELSE "diesel_sharded_shard_numbers"."shards" END
    /// -- MySQL, MariaDB: ON DUPLICATE KEY UPDATE `shards` = CASE …
    /// ```
    ///
    /// # Errors
    /// [`InvalidShardCount`](Error::InvalidShardCount) unless `n` is from 1 to 4096; else as [`get`](Self::get).
    pub fn increase<Conn>(&self, n: u16, conn: &mut Conn) -> QueryResult<u16>
    where
        Conn: LoadConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        now(self.write(n, true, &mut Link::blocking(conn)))
    }

    /// Sets the number to `n`, up or down. Shards beyond it are still read; [`fold`](crate::fold()) removes them.
    ///
    /// ```sql
    /// INSERT INTO "diesel_sharded_shard_numbers" ("shards_table", "counter", "shards") VALUES ($1, $2, $3)
    /// ON CONFLICT ("shards_table", "counter") DO UPDATE SET "shards" = $4
    /// -- MySQL, MariaDB: ON DUPLICATE KEY UPDATE `shards` = ?
    /// ```
    ///
    /// # Errors
    /// As [`increase`](Self::increase).
    pub fn resize<Conn>(&self, n: u16, conn: &mut Conn) -> QueryResult<()>
    where
        Conn: LoadConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        now(self.write(n, false, &mut Link::blocking(conn))).map(drop)
    }

    pub(crate) async fn write<M, Conn>(
        &self,
        n: u16,
        only_up: bool,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<u16>
    where
        M: LoadIo<Conn>,
    {
        if !(1..=Self::MAX).contains(&n) {
            return Err(Error::InvalidShardCount { number: n }.into());
        }
        let first = match only_up {
            true => n.max(self.default),
            false => n,
        };
        let inside = in_any_transaction(link).await?;
        let options = TransactionOptions::guarded();
        let repeated = RetryLoop::transaction(link, RetryPolicy::default(), options)?;
        let number = retry_loop!(link, repeated, {
            let upsert = UpsertNumber {
                of: self,
                first: i32::from(first),
                then: i32::from(n),
                only_up,
            };
            let upserted = link.execute(upsert).await;
            upserted.map_err(|error| explained(link, error))?;
            self.read(true, link).await
        })?;
        if !inside {
            self.learn(number); // what a caller's transaction changes is not committed yet
        }
        Ok(number)
    }

    /// Forgets the number, so that the default holds again.
    pub(crate) async fn forget<M, Conn>(&self, link: &mut Link<'_, M, Conn>) -> QueryResult<()>
    where
        M: Io<Conn>,
    {
        let deleted = link.execute(DeleteNumber(self)).await;
        deleted.map_err(|error| explained(link, error))?;
        if let Some(counters) = known_for_writing().numbers.get_mut(self.table.as_bytes()) {
            counters.remove(&self.counter);
        }
        Ok(())
    }

    /// The number that a writer of this process chooses from.
    pub(crate) fn known(&self) -> u16 {
        let known = known_for_reading();
        known
            .number(self.table, &self.counter)
            .unwrap_or(self.default)
    }
}

/// The number of shards that an update of `fields` chooses from in this process.
pub(crate) fn known<T: ShardedTable>(fields: impl Iterator<Item = &'static str>) -> u16 {
    let known = known_for_reading();
    if known.numbers.is_empty() {
        return T::SHARDS;
    }
    fields
        .map(|field| {
            known
                .number(T::SHARDS_TABLE, field.as_bytes())
                .unwrap_or(T::SHARDS)
        })
        .max()
        .unwrap_or(T::SHARDS)
}

/// What the library's table said when it was last read, by shards table and by counter. It holds what was changed, not what
/// there is: a number that nobody ever changed takes no room.
#[derive(Default)]
struct Known {
    numbers: HashMap<Vec<u8>, HashMap<Vec<u8>, u16>>,
    /// How often one of them was changed here: what was read before that is old.
    changes: u64,
    /// When all of them were read, or began to be.
    read: Option<Instant>,
}

static KNOWN: LazyLock<RwLock<Known>> = LazyLock::new(RwLock::default);

impl Known {
    fn number(&self, table: &str, counter: &[u8]) -> Option<u16> {
        self.numbers.get(table.as_bytes())?.get(counter).copied()
    }

    fn insert(&mut self, table: Vec<u8>, counter: Vec<u8>, number: u16) {
        self.numbers
            .entry(table)
            .or_default()
            .insert(counter, number);
    }
}

/// How old the numbers may be that named counters choose by.
const FRESH: Duration = Duration::from_secs(10);
/// How long a refresh that is under way is waited for when nobody follows any more.
const LAST_REFRESH: Duration = Duration::from_secs(1);

fn known_for_reading() -> RwLockReadGuard<'static, Known> {
    KNOWN.read().unwrap_or_else(PoisonError::into_inner)
}

fn known_for_writing() -> RwLockWriteGuard<'static, Known> {
    KNOWN.write().unwrap_or_else(PoisonError::into_inner)
}

/// The number below which a fold keeps shards: the largest in the database of any field or counter of `T`. `inside` a
/// transaction, where a read could do harm, and without the library's tables, the one that is known here.
pub(crate) async fn wished<T, M, Conn>(
    link: &mut Link<'_, M, Conn>,
    inside: bool,
) -> QueryResult<u16>
where
    T: ShardedTable,
    M: LoadIo<Conn>,
{
    let fields = || T::FIELDS.iter().map(|field| field.name);
    if inside {
        return Ok(known::<T>(fields()));
    }
    let reading = RetryLoop::read(link, RetryPolicy::default())?;
    let read = retry_loop!(link, reading, {
        load(link, Only::Table(T::SHARDS_TABLE)).await
    });
    let numbers = match read.map_err(Error::from) {
        Ok(numbers) => numbers,
        Err(Error::MissingShardsTable { .. }) => return Ok(known::<T>(fields())),
        Err(error) => return Err(error.into()),
    };
    let unchanged =
        fields().any(|field| numbers.iter().all(|(_, name, _)| name != field.as_bytes()));
    let changed = numbers.iter().map(|(_, _, number)| within(*number));
    Ok(changed
        .chain(unchanged.then_some(T::SHARDS))
        .max()
        .unwrap_or(T::SHARDS))
}

/// Refreshes the numbers if they are old and nobody is at it. They are only advice: where they cannot be read, the old ones
/// stay in use, and whoever wants to know why calls [`refresh`].
pub(crate) async fn keep_fresh<M, Conn>(link: &mut Link<'_, M, Conn>) -> QueryResult<()>
where
    M: LoadIo<Conn>,
{
    let is_old = |known: &Known| known.read.is_none_or(|read| read.elapsed() >= FRESH);
    let old = is_old(&known_for_reading());
    if !old || in_any_transaction(link).await? {
        return Ok(());
    }
    {
        let mut known = known_for_writing();
        if !is_old(&known) {
            return Ok(());
        }
        known.read = Some(Instant::now());
    }
    let _ = read_all(link).await;
    Ok(())
}

/// Reads all numbers from the database; from then on this process uses them.
///
/// ```sql
/// SELECT "shards_table", "counter", "shards" FROM "diesel_sharded_shard_numbers"
/// ```
///
/// # Errors
/// As [`ShardCount::get`]; the numbers that were known stay in use. [`AlreadyInTransaction`](DieselError::AlreadyInTransaction)
/// inside a transaction.
pub fn refresh<Conn>(conn: &mut Conn) -> QueryResult<()>
where
    Conn: LoadConnection,
    Conn::Backend: BackendOf<Conn>,
{
    now(read_all(&mut Link::blocking(conn)))
}

pub(crate) async fn read_all<M, Conn>(link: &mut Link<'_, M, Conn>) -> QueryResult<()>
where
    M: LoadIo<Conn>,
{
    if in_any_transaction(link).await? {
        return Err(DieselError::AlreadyInTransaction); // what it sees may never be committed
    }
    loop {
        let changes = known_for_reading().changes;
        let reading = RetryLoop::read(link, RetryPolicy::default())?;
        let numbers = retry_loop!(link, reading, load(link, Only::All).await)?;
        let mut known = known_for_writing();
        if known.changes == changes {
            known.numbers.clear();
            for (table, counter, number) in numbers {
                known.insert(table, counter, within(number));
            }
            known.read = Some(Instant::now());
            return Ok(());
        }
    }
}

/// Refreshes the numbers now, and from then on at every interval, in a thread of its own, on a connection that `connect`
/// makes or takes from a pool each time.
///
/// A refresh that fails leaves the numbers as they were, and is tried again at the next interval; see
/// [`Following::last_error`].
///
/// # Errors
/// Those of the first refresh.
pub fn follow<Conn, E>(
    every: Duration,
    mut connect: impl FnMut() -> Result<Conn, E> + Send + 'static,
) -> Result<Following, Box<dyn StdError + Send + Sync>>
where
    Conn: LoadConnection,
    Conn::Backend: BackendOf<Conn>,
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    let mut once = move || -> Result<(), Box<dyn StdError + Send + Sync>> {
        let mut conn = connect().map_err(Into::into)?;
        Ok(refresh(&mut conn)?)
    };
    let every = every.max(Duration::from_millis(10));
    once()?;
    let (stop, stopped) = mpsc::channel::<()>();
    let last_error = Arc::new(Mutex::new(None));
    let tells = Arc::clone(&last_error);
    let thread = Background::spawn("diesel_sharded numbers", move || {
        while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
            let error = match panic::catch_unwind(AssertUnwindSafe(&mut once)) {
                Ok(refreshed) => refreshed.err().map(|error| error.to_string()),
                Err(_) => Some("it panicked".to_owned()),
            };
            *tells.lock().unwrap_or_else(PoisonError::into_inner) = error;
        }
    })?;
    Ok(Following {
        stop: Some(stop),
        thread,
        last_error,
    })
}

/// Follows the numbers in the database until it is dropped; made by [`follow`]. A refresh that is under way then is waited for, a second at
/// most.
#[must_use = "dropping it stops following"]
pub struct Following {
    stop: Option<Sender<()>>,
    thread: Background,
    last_error: Arc<Mutex<Option<String>>>,
}

impl Following {
    /// Why the last refresh failed, if it did.
    pub fn last_error(&self) -> Option<String> {
        self.last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.stop = None; // the thread sees it within its sleep
        self.thread.ends_within(LAST_REFRESH);
    }
}

impl fmt::Debug for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Following")
            .field("last_error", &self.last_error())
            .finish_non_exhaustive()
    }
}

/// A number as somebody else may have written it, brought into range.
fn within(number: i32) -> u16 {
    number.clamp(1, i32::from(ShardCount::MAX)) as u16
}

const TABLE: &str = "diesel_sharded_shard_numbers";

/// The shards table, the counter, and its number.
type NumberRow = (Vec<u8>, Vec<u8>, i32);

async fn load<M, Conn>(link: &mut Link<'_, M, Conn>, only: Only<'_>) -> QueryResult<Vec<NumberRow>>
where
    M: LoadIo<Conn>,
{
    let select = SelectNumbers { only };
    let rows = link.load(select).await;
    rows.map_err(|error| explained(link, error))
}

fn explained<M, Conn>(link: &Link<'_, M, Conn>, error: DieselError) -> DieselError
where
    M: Io<Conn>,
{
    explain_missing(&link.backend(), TABLE, error)
}

/// Which numbers are read.
enum Only<'a> {
    All,
    Table(&'static str),
    /// One, as it is now and not as a caller's transaction saw it, if it was just written.
    Number(&'a ShardCount, bool),
}

/// See [`refresh`] and [`ShardCount::get`].
struct SelectNumbers<'a> {
    only: Only<'a>,
}

impl<DB: ShardedBackend> QueryFragment<DB> for SelectNumbers<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared();
        out.push_sql("SELECT ");
        push_columns(out.reborrow())?;
        out.push_sql(" FROM ");
        out.push_identifier(TABLE)?;
        match &self.only {
            Only::All => {}
            Only::Table(table) => push_is_of_table(table, out.reborrow())?,
            Only::Number(number, _) => push_is(number, out.reborrow())?,
        }
        let dialect = out.backend().dialect();
        out.push_sql(dialect.all_rows());
        if let Only::Number(_, true) = self.only {
            out.push_sql(dialect.reads_what_is_locked());
        }
        Ok(())
    }
}

/// Forgets a number.
struct DeleteNumber<'a>(&'a ShardCount);

impl<DB: ShardedBackend> QueryFragment<DB> for DeleteNumber<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("DELETE FROM ");
        out.push_identifier(TABLE)?;
        push_is(self.0, out)
    }
}

/// ` WHERE shards_table = $1 AND counter = $2`
fn push_is<'b, DB: ShardedBackend>(
    ShardCount { table, counter, .. }: &'b ShardCount,
    mut out: AstPass<'_, 'b, DB>,
) -> QueryResult<()> {
    push_is_of_table(table, out.reborrow())?;
    out.push_sql(" AND ");
    out.push_identifier("counter")?;
    out.push_sql(" = ");
    push_bind::<Binary, [u8], DB>(counter, out)
}

/// ` WHERE shards_table = $1`
fn push_is_of_table<'b, DB: ShardedBackend>(
    table: &'b str,
    mut out: AstPass<'_, 'b, DB>,
) -> QueryResult<()> {
    out.push_sql(" WHERE ");
    out.push_identifier("shards_table")?;
    out.push_sql(" = ");
    push_bind::<Binary, [u8], DB>(table.as_bytes(), out)
}

impl Query for SelectNumbers<'_> {
    type SqlType = (Binary, Binary, Integer);
}

/// See [`ShardCount::increase`] and [`ShardCount::resize`].
struct UpsertNumber<'a> {
    of: &'a ShardCount,
    first: i32,
    then: i32,
    only_up: bool,
}

impl<DB: ShardedBackend> QueryFragment<DB> for UpsertNumber<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared();
        out.push_sql("INSERT INTO ");
        out.push_identifier(TABLE)?;
        out.push_sql(" (");
        push_columns(out.reborrow())?;
        out.push_sql(") VALUES (");
        push_bind::<Binary, [u8], DB>(self.of.table.as_bytes(), out.reborrow())?;
        out.push_sql(", ");
        push_bind::<Binary, [u8], DB>(&self.of.counter, out.reborrow())?;
        out.push_sql(", ");
        push_bind::<Integer, i32, DB>(&self.first, out.reborrow())?;
        out.push_sql(")");
        if out.backend().dialect().names_conflict_target() {
            out.push_sql(" ON CONFLICT (");
            out.push_identifier("shards_table")?;
            out.push_sql(", ");
            out.push_identifier("counter")?;
            out.push_sql(") DO UPDATE SET ");
        } else {
            out.push_sql(" ON DUPLICATE KEY UPDATE ");
        }
        out.push_identifier("shards")?;
        out.push_sql(" = ");
        if self.only_up {
            out.push_sql("CASE WHEN ");
            push_number(out.reborrow())?;
            out.push_sql(" < ");
            push_bind::<Integer, i32, DB>(&self.then, out.reborrow())?;
            out.push_sql(" THEN ");
            push_bind::<Integer, i32, DB>(&self.then, out.reborrow())?;
            out.push_sql(" ELSE ");
            push_number(out.reborrow())?;
            out.push_sql(" END");
            Ok(())
        } else {
            push_bind::<Integer, i32, DB>(&self.then, out)
        }
    }
}

fn push_columns<DB: ShardedBackend>(mut out: AstPass<'_, '_, DB>) -> QueryResult<()> {
    for (i, column) in ["shards_table", "counter", "shards"]
        .into_iter()
        .enumerate()
    {
        if i > 0 {
            out.push_sql(", ");
        }
        out.push_identifier(column)?;
    }
    Ok(())
}

/// `numbers.shards`
fn push_number<DB: ShardedBackend>(mut out: AstPass<'_, '_, DB>) -> QueryResult<()> {
    out.push_identifier(TABLE)?;
    out.push_sql(".");
    out.push_identifier("shards")
}

impl QueryId for DeleteNumber<'_> {
    type QueryId = DeleteNumber<'static>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl QueryId for SelectNumbers<'_> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl QueryId for UpsertNumber<'_> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

/// How many shards writers choose from, on connections of `diesel_async`; see [`shard_counts`].
#[cfg(feature = "async")]
pub mod asynchronous {
    use diesel::result::QueryResult;
    use diesel_async::AsyncConnection;

    use crate::backend::BackendOf;
    use crate::connection::{BoxFuture, Link};
    use crate::model::ShardedColumn;
    use crate::shard_counts;

    /// See [`ShardCount`](shard_counts::ShardCount).
    #[derive(Debug, Clone)]
    #[must_use = "a number does nothing until it is read or changed"]
    pub struct ShardCount(shard_counts::ShardCount);

    impl ShardCount {
        /// The number of a field.
        pub fn of<C: ShardedColumn>(column: C) -> Self {
            ShardCount(shard_counts::ShardCount::of(column))
        }

        /// See [`ShardCount::get`](shard_counts::ShardCount::get).
        ///
        /// # Errors
        /// As there.
        pub fn get<'c, Conn>(&'c self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<u16>>
        where
            Conn: AsyncConnection,
            Conn::Backend: BackendOf<Conn>,
        {
            Box::pin(async move { self.0.number(&mut Link::awaited(conn)).await })
        }

        /// See [`ShardCount::increase`](shard_counts::ShardCount::increase).
        ///
        /// # Errors
        /// As there.
        pub fn increase<'c, Conn>(
            &'c self,
            n: u16,
            conn: &'c mut Conn,
        ) -> BoxFuture<'c, QueryResult<u16>>
        where
            Conn: AsyncConnection,
            Conn::Backend: BackendOf<Conn>,
        {
            Box::pin(async move { self.0.write(n, true, &mut Link::awaited(conn)).await })
        }

        /// See [`ShardCount::resize`](shard_counts::ShardCount::resize).
        ///
        /// # Errors
        /// As there.
        pub fn resize<'c, Conn>(
            &'c self,
            n: u16,
            conn: &'c mut Conn,
        ) -> BoxFuture<'c, QueryResult<()>>
        where
            Conn: AsyncConnection,
            Conn::Backend: BackendOf<Conn>,
        {
            Box::pin(async move {
                self.0
                    .write(n, false, &mut Link::awaited(conn))
                    .await
                    .map(drop)
            })
        }
    }

    /// Reads all numbers; see [`refresh`](shard_counts::refresh).
    ///
    /// # Errors
    /// As there.
    pub fn refresh<Conn>(conn: &mut Conn) -> BoxFuture<'_, QueryResult<()>>
    where
        Conn: AsyncConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        Box::pin(async move { shard_counts::read_all(&mut Link::awaited(conn)).await })
    }
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::{sql, videos};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;

    #[test]
    fn a_number_is_raised_by_an_upsert() {
        let raise = UpsertNumber {
            of: &ShardCount::of(videos::views),
            first: 64,
            then: 64,
            only_up: true,
        };
        assert_eq!(
            sql!(Pg, raise),
            r#"INSERT INTO "diesel_sharded_shard_numbers" ("shards_table", "counter", "shards") VALUES ($1, $2, $3) ON CONFLICT ("shards_table", "counter") DO UPDATE SET "shards" = CASE WHEN "diesel_sharded_shard_numbers"."shards" < $4 THEN $5 ELSE "diesel_sharded_shard_numbers"."shards" END"#
        );
        let set = UpsertNumber {
            only_up: false,
            ..raise
        };
        assert_eq!(
            sql!(Mysql, set),
            "INSERT INTO `diesel_sharded_shard_numbers` (`shards_table`, `counter`, `shards`) VALUES (?, ?, ?) ON DUPLICATE KEY UPDATE `shards` = ?"
        );
    }
}
