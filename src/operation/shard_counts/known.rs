//! The numbers as this process knows them, and how it reads them again.

use std::collections::HashMap;
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel::result::Error as DieselError;

use super::number::Number;
use super::sql::{Only, load, within};
use crate::backend::BackendOf;
use crate::connection::{Link, LoadIo, in_any_transaction, now};
use crate::engine::{RetryLoop, retry_loop};
use crate::error::Error;
use crate::model::{ShardedTable, ShardsColumn};
use crate::per_process::{PerProcess, inherited};
use crate::policy::RetryPolicy;

/// The number of shards that an update of `fields` chooses from in this process.
pub(crate) fn known<'f, T: ShardedTable>(fields: impl Iterator<Item = &'f str>) -> u16 {
    let known = known_for_reading();
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

impl Number {
    /// The number that a writer of this process chooses from.
    pub(crate) fn known(&self) -> u16 {
        let known = known_for_reading();
        known
            .number(&self.table, &self.counter)
            .unwrap_or(self.default)
    }

    /// Uses `number` in this process from now on.
    pub(super) fn learn(&self, number: u16) {
        let mut known = known_for_writing();
        known.insert(self.table.as_bytes().into(), self.counter.clone(), number);
        known.changes += 1;
    }

    /// Uses the default in this process from now on.
    pub(super) fn unlearn(&self) {
        if let Some(counters) = known_for_writing().numbers.get_mut(self.table.as_bytes()) {
            counters.remove(&self.counter);
        }
    }
}

/// The numbers in the library's table when it was last read, by shards table and by counter. A number that nobody ever changed
/// takes no room.
#[derive(Clone, Default)]
struct Known {
    numbers: HashMap<Vec<u8>, HashMap<Vec<u8>, u16>>,
    /// How often one of them was changed here: what was read before that is old.
    changes: u64,
    /// When all of them were read, or began to be.
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

fn known_for_reading() -> RwLockReadGuard<'static, Known> {
    KNOWN.read()
}

fn known_for_writing() -> RwLockWriteGuard<'static, Known> {
    KNOWN.write()
}

/// How old the numbers may be that named counters choose by.
const FRESH: Duration = Duration::from_secs(10);

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
    let known = || known::<T>(T::FIELDS.iter().map(|field| &*field.name));
    if inside {
        return Ok(known());
    }
    match read_table(link, T::SHARDS_TABLE.as_str())
        .await
        .map_err(Error::from)
    {
        Ok(numbers) => Ok(largest(&numbers, T::FIELDS, Some(T::SHARDS)).unwrap_or(T::SHARDS)),
        Err(Error::MissingShardsTable { .. }) => Ok(known()),
        Err(error) => Err(error.into()),
    }
}

/// The numbers of a shards table that were set, by field or counter.
pub(in crate::operation) async fn read_table<M, Conn>(
    link: &mut Link<'_, M, Conn>,
    shards_table: &str,
) -> QueryResult<HashMap<Vec<u8>, u16>>
where
    M: LoadIo<Conn>,
{
    let reading = RetryLoop::read(link, RetryPolicy::default())?;
    let rows = retry_loop!(link, reading, load(link, Only::Table(shards_table)).await)?;
    let numbers = rows.into_iter();
    Ok(numbers
        .map(|(_, counter, number)| (counter, within(number)))
        .collect())
}

/// The largest number of any field or counter, where `default` is that of a field whose number was not set. `None` if it is
/// needed and not known.
pub(in crate::operation) fn largest(
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

/// Refreshes the numbers if they are old and no other thread is refreshing them. They are only advice: if they cannot be read,
/// the old ones stay in use. [`refresh`] reports the reason.
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
/// As [`ShardCount::get`](super::ShardCount::get); the numbers that were known stay in use. [`AlreadyInTransaction`](DieselError::AlreadyInTransaction)
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
