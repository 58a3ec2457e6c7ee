//! The shard number of one field or counter: in the database, and as this process knows it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::RwLock;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel::sql_types::{Binary, Integer};

use crate::backend::{BackendOf, Dialect, ShardedBackend};
use crate::connection::{
    Blocking, Fixed, Io, Link, LoadIo, TransactionOptions, in_any_transaction, paired, read,
};
use crate::engine::{RetryLoop, explain_missing, retry_loop};
use crate::error::Error;
use crate::model::{MAX_SHARDS, ShardedTable, ShardsColumn, TotalColumn};
use crate::per_process::{PerProcess, inherited};
use crate::policy::RetryPolicy;
use crate::query_builder::{Sql, bind, fragments, id, on, sql};

/// The number of shards of one field, or of one named counter, as the database keeps it.
///
/// A change takes effect in this process at once, except inside a transaction. Other processes see it when they
/// [`refresh`](super::refresh()), at the interval at which they [`follow`](super::follow()), and for named counters after 10 s
/// (outside transactions). No total changes. If the database holds no number, the derive's number applies. An update of several fields
/// uses the largest of their numbers.
#[derive(Debug, Clone)]
#[must_use = "a number does nothing until it is read or changed"]
pub struct ShardCount<Run = Blocking> {
    number: Number,
    run: PhantomData<fn() -> Run>,
}

impl<Run> ShardCount<Run> {
    /// The largest number of shards.
    pub const MAX: u16 = MAX_SHARDS;

    /// The number of a sharded field.
    pub fn of<C: TotalColumn>(_column: C) -> Self {
        Self::of_number(Number {
            table: Cow::Borrowed(<C::Table as ShardedTable>::SHARDS_TABLE.as_str()),
            counter: C::NAME.into(),
            default: <C::Table as ShardedTable>::SHARDS,
        })
    }

    pub(crate) fn of_number(number: Number) -> Self {
        ShardCount {
            number,
            run: PhantomData,
        }
    }
}

paired! {
    impl<> ShardCount<Run>
    where
        DB: BackendOf<Conn>,
    {
        /// The number in the database.
        ///
        /// ```sql
        /// SELECT … FROM "diesel_sharded_shard_numbers" WHERE "shards_table" = $1 AND "counter" = $2
        /// ```
        ///
        /// # Errors
        /// The database's; [`MissingShardsTable`](Error::MissingShardsTable) if the library's migrations have not run.
        pub fn get(&self, link: Link) -> QueryResult<u16> {
            self.number.get(link).await
        }

        /// Raises the number to `n`, never lowers it, and returns the resulting number. After racing calls the largest number stays.
        ///
        /// ```sql
        /// INSERT INTO "diesel_sharded_shard_numbers" ("shards_table", "counter", "shards") VALUES ($1, $2, $3)
        /// ON CONFLICT ("shards_table", "counter") DO UPDATE SET "shards" =
        ///     CASE WHEN "diesel_sharded_shard_numbers"."shards" < $4 THEN $5 ELSE "diesel_sharded_shard_numbers"."shards" END
        /// -- MySQL, MariaDB: ON DUPLICATE KEY UPDATE `shards` = CASE …
        /// ```
        ///
        /// # Errors
        /// [`InvalidShardCount`](Error::InvalidShardCount) unless `n` is from 1 to 4096, and those of [`get`](Self::get).
        pub fn increase(&self, link: Link, n: u16) -> QueryResult<u16> {
            self.number.write(n, true, link).await
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
        /// Those of [`increase`](Self::increase).
        pub fn resize(&self, link: Link, n: u16) -> QueryResult<()> {
            self.number.write(n, false, link).await.map(drop)
        }
    }
}

/// The field or counter that a number belongs to, and the default until a number is set.
#[derive(Debug, Clone)]
pub(crate) struct Number {
    table: Cow<'static, str>,
    counter: Vec<u8>,
    default: u16,
}

impl Number {
    /// For a field that a tool has found in the database. The tool does not know the derive's number.
    pub(crate) fn described(table: &str, field: &[u8]) -> Self {
        Number {
            table: Cow::Owned(table.to_owned()),
            counter: field.into(),
            default: 1, // the least that `increase` may begin with
        }
    }

    /// For one of several counters in the same column. The zero byte distinguishes it from a field: no column's name contains one.
    pub(crate) fn of_counter<T: ShardedTable>(counter: &[u8]) -> Self {
        Number {
            table: Cow::Borrowed(T::SHARDS_TABLE.as_str()),
            counter: [b"\0", counter].concat(),
            default: T::SHARDS,
        }
    }

    pub(crate) async fn get<M: LoadIo>(&self, link: &mut Link<'_, M>) -> QueryResult<u16> {
        let reading = RetryLoop::read(link, RetryPolicy::default())?;
        retry_loop!(link, reading, self.read(false, link).await)
    }

    async fn read<M: LoadIo>(&self, locked: bool, link: &mut Link<'_, M>) -> QueryResult<u16> {
        let only = Only::Number(self, locked);
        let number = load(link, only).await?.into_iter().next();
        Ok(number.map_or(self.default, |(_, _, number)| within(number)))
    }

    pub(crate) async fn write<M: LoadIo>(
        &self,
        n: u16,
        only_up: bool,
        link: &mut Link<'_, M>,
    ) -> QueryResult<u16> {
        if !(1..=MAX_SHARDS).contains(&n) {
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
            self.learn(number); // a change inside a caller's transaction is not committed yet
        }
        Ok(number)
    }

    /// Deletes the number, so that the default applies again.
    pub(crate) async fn forget<M: Io>(&self, link: &mut Link<'_, M>) -> QueryResult<()> {
        let deleted = link.execute(DeleteNumber(self)).await;
        deleted.map_err(|error| explained(link, error))?;
        self.unlearn();
        Ok(())
    }

    /// The number of shards that a writer of this process chooses from.
    pub(crate) fn known(&self) -> u16 {
        let known = KNOWN.read();
        known
            .number(&self.table, &self.counter)
            .unwrap_or(self.default)
    }

    /// Uses `number` in this process from now on.
    fn learn(&self, number: u16) {
        let mut known = KNOWN.write();
        known.insert(self.table.as_bytes().into(), self.counter.clone(), number);
        known.changes += 1;
    }

    /// Uses the default in this process from now on.
    fn unlearn(&self) {
        let mut known = KNOWN.write();
        let counters = known.numbers.get_mut(self.table.as_bytes());
        if counters.is_some_and(|counters| counters.remove(&self.counter).is_some()) {
            known.changes += 1;
        }
    }
}

/// The number of shards that an update of `fields` chooses from in this process.
pub(crate) fn known<'f, T: ShardedTable>(fields: impl Iterator<Item = &'f str>) -> u16 {
    let known = KNOWN.read();
    if known.numbers.is_empty() {
        return T::SHARDS;
    }
    fields
        .map(|field| {
            known
                .number(T::SHARDS_TABLE.as_str(), field.as_bytes())
                .unwrap_or(T::SHARDS)
        })
        .max()
        .unwrap_or(T::SHARDS)
}

/// The numbers in the library's table when it was last read, by shards table and counter. A number that was never set is not in it.
#[derive(Clone, Default)]
struct Known {
    numbers: HashMap<Vec<u8>, HashMap<Vec<u8>, u16>>,
    /// The number of changes by this process. A read that began before the last change is outdated.
    changes: u64,
    /// When the last read of all numbers began or ended.
    read: Option<Instant>,
}

static KNOWN: PerProcess<RwLock<Known>> =
    PerProcess::new(|parents| RwLock::new(inherited(parents).unwrap_or_default()));

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

/// The greatest age of the numbers that named counters use.
const FRESH: Duration = Duration::from_secs(10);

/// The number of shards that a fold keeps: the largest in the database of any field or counter of `T`. `inside` a transaction, where a
/// read could do harm, and without the library's tables, it is the number known to this process.
pub(crate) async fn wished<T, M>(link: &mut Link<'_, M>, inside: bool) -> QueryResult<u16>
where
    T: ShardedTable,
    M: LoadIo,
{
    let known = || known::<T>(T::FIELDS.iter().map(|field| &*field.name));
    if inside {
        return Ok(known());
    }
    if let Some(asks) = link.dialect().asks_for_shard_numbers() {
        let asking = RetryLoop::read(link, RetryPolicy::default())?;
        // An error here can be ignored: if it is not only about this question, the next statement reports it too.
        if let Ok(0) = retry_loop!(link, asking, link.execute_query(Fixed(asks)).await) {
            return Ok(known());
        }
    }
    let numbers = read_table(link, T::SHARDS_TABLE.as_str()).await;
    match numbers.map_err(Error::from) {
        Ok(numbers) => Ok(largest(&numbers, T::FIELDS, Some(T::SHARDS)).unwrap_or(T::SHARDS)),
        Err(Error::MissingShardsTable { .. }) => Ok(known()),
        Err(error) => Err(error.into()),
    }
}

/// The numbers that were set for a shards table, by field or counter.
pub(crate) async fn read_table<M: LoadIo>(
    link: &mut Link<'_, M>,
    shards_table: &str,
) -> QueryResult<HashMap<Vec<u8>, u16>> {
    let reading = RetryLoop::read(link, RetryPolicy::default())?;
    let rows = retry_loop!(link, reading, load(link, Only::Table(shards_table)).await)?;
    let numbers = rows.into_iter();
    Ok(numbers
        .map(|(_, counter, number)| (counter, within(number)))
        .collect())
}

/// The largest number of any field or counter. `default` is the number of a field that was not set; the result is `None` if the default is
/// needed but not known.
pub(crate) fn largest(
    numbers: &HashMap<Vec<u8>, u16>,
    fields: &[ShardsColumn],
    default: Option<u16>,
) -> Option<u16> {
    let largest = numbers.values().copied().max();
    let mut fields = fields.iter();
    match fields.all(|field| numbers.contains_key(field.name.as_bytes())) {
        true => largest,
        false => default.max(default.and(largest)),
    }
}

/// Refreshes the numbers if they are old and no other thread is refreshing them. They are only advice: if they cannot be read, the old
/// ones stay in use. [`refresh`] would report the reason.
pub(crate) async fn keep_fresh<M: LoadIo>(link: &mut Link<'_, M>) -> QueryResult<()> {
    let is_old = |known: &Known| known.read.is_none_or(|read| read.elapsed() >= FRESH);
    let old = is_old(&KNOWN.read());
    if !old || in_any_transaction(link).await? {
        return Ok(());
    }
    {
        let mut known = KNOWN.write();
        if !is_old(&known) {
            return Ok(());
        }
        known.read = Some(Instant::now());
    }
    let _ = read_all(link).await;
    Ok(())
}

pub(crate) async fn read_all<M: LoadIo>(link: &mut Link<'_, M>) -> QueryResult<()> {
    if in_any_transaction(link).await? {
        return Err(DieselError::AlreadyInTransaction); // the numbers that it sees may never be committed
    }
    loop {
        let changes = KNOWN.read().changes;
        let reading = RetryLoop::read(link, RetryPolicy::default())?;
        let numbers = retry_loop!(link, reading, load(link, Only::All).await)?;
        let mut known = KNOWN.write();
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

/// Brings a number into range, because another program may have written it.
fn within(number: i32) -> u16 {
    number.clamp(1, i32::from(MAX_SHARDS)) as u16
}

pub(crate) const TABLE: &str = "diesel_sharded_shard_numbers";

/// The shards table, the counter, and its number.
type NumberRow = (Vec<u8>, Vec<u8>, i32);

async fn load<M: LoadIo>(link: &mut Link<'_, M>, only: Only<'_>) -> QueryResult<Vec<NumberRow>> {
    let rows = read!(link, link.load(only));
    rows.map_err(|error| explained(link, error))
}

/// The error, or `MissingShardsTable` if the library's migrations have not run.
fn explained<M: Io>(link: &Link<'_, M>, error: DieselError) -> DieselError {
    explain_missing(link.dialect(), TABLE, error)
}

/// The numbers that a query reads.
enum Only<'a> {
    All,
    Table(&'a str),
    /// A single number. If the flag is set, the query reads its latest value, even if the caller's transaction has an older snapshot.
    Number(&'a Number, bool),
}

fragments! {
    [] Only<'_>: Query<(Binary, Binary, Integer)>, no query id [];
    |self, mut out| {
        out.unsafe_to_cache_prepared();
        sql!(out.reborrow(); "SELECT ", columns(), " FROM ", id(TABLE))?;
        match *self {
            Only::All => {}
            Only::Table(table) => is_of_table(table).push(out.reborrow())?,
            Only::Number(number, _) => is(number).push(out.reborrow())?,
        }
        let as_it_is = matches!(*self, Only::Number(_, true));
        sql!(out; on(Dialect::all_rows), if as_it_is { on(Dialect::reads_what_is_locked) })
    };
}

/// Deletes a number.
struct DeleteNumber<'a>(&'a Number);

fragments! {
    [] DeleteNumber<'_>, no query id [];
    |self, out| sql!(out; "DELETE FROM ", id(TABLE), is(self.0));
}

/// ` WHERE shards_table = $1 AND counter = $2`
fn is<'b, DB: ShardedBackend>(number: &'b Number) -> impl Sql<'b, DB> {
    sql! { is_of_table(&number.table), " AND ", id("counter"), " = ", bind(Binary, &number.counter[..]) }
}

/// ` WHERE shards_table = $1`
fn is_of_table<'b, DB: ShardedBackend>(table: &'b str) -> impl Sql<'b, DB> {
    sql! { " WHERE ", id("shards_table"), " = ", bind(Binary, table.as_bytes()) }
}

/// See [`ShardCount::increase`](ShardCount::increase) and [`ShardCount::resize`](ShardCount::resize).
struct UpsertNumber<'a> {
    of: &'a Number,
    first: i32,
    then: i32,
    only_up: bool,
}

fragments! {
    [] UpsertNumber<'_>, no query id [];
    |self, mut out| {
        out.unsafe_to_cache_prepared();
        let by_target = out.backend().dialect().names_conflict_target();
        let Number { table, counter, .. } = self.of;
        sql!(out;
            "INSERT INTO ", id(TABLE), " (", columns(), ") VALUES (",
            bind(Binary, table.as_bytes()), ", ", bind(Binary, &counter[..]), ", ", bind(Integer, &self.first), ")",
            if by_target { " ON CONFLICT (", id("shards_table"), ", ", id("counter"), ") DO UPDATE SET " } else {
                " ON DUPLICATE KEY UPDATE "
            },
            id("shards"), " = ",
            if self.only_up {
                "CASE WHEN ", number(), " < ", bind(Integer, &self.then), " THEN ", bind(Integer, &self.then), " ELSE ", number(), " END"
            } else { bind(Integer, &self.then) })
    };
}

fn columns<'b, DB: ShardedBackend>() -> impl Sql<'b, DB> {
    sql! { for column in (["shards_table", "counter", "shards"], ", ") { id(column) } }
}

/// `numbers.shards`
fn number<'b, DB: ShardedBackend>() -> impl Sql<'b, DB> {
    sql! { id(TABLE), ".", id("shards") }
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::assert_sql;
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;

    #[test]
    fn a_number_is_raised_by_an_upsert() {
        let raise = UpsertNumber {
            of: &Number {
                table: "videos_shards".into(),
                counter: b"views".to_vec(),
                default: 128,
            },
            first: 64,
            then: 64,
            only_up: true,
        };
        assert_sql!(raise;
            Pg => r#"INSERT INTO "diesel_sharded_shard_numbers" ("shards_table", "counter", "shards") VALUES ($1, $2, $3) ON CONFLICT ("shards_table", "counter") DO UPDATE SET "shards" = CASE WHEN "diesel_sharded_shard_numbers"."shards" < $4 THEN $5 ELSE "diesel_sharded_shard_numbers"."shards" END"#,
        );
        let set = UpsertNumber {
            only_up: false,
            ..raise
        };
        assert_sql!(set;
            Mysql => "INSERT INTO `diesel_sharded_shard_numbers` (`shards_table`, `counter`, `shards`) VALUES (?, ?, ?) ON DUPLICATE KEY UPDATE `shards` = ?",
        );
    }
}
