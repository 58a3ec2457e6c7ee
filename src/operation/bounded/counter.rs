//! Counters with bounds.

use std::fmt;
use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::result::Error as DieselError;

use crate::backend::{BackendOf, ShardedBackend};
use crate::connection::{Blocking, Io, Link, LoadIo, in_any_transaction, paired};
use crate::engine::{
    KeyedTable, LockedParents, RetryLoop, States, Sums, explain, field, locking, retry_loop,
};
use crate::error::Error;
use crate::model::{Amount, ShardedColumn, ShardedTable};
use crate::operation::idempotency::{Idempotent, Request};
use crate::operation::row_counter::{AddTo, IntegerField, RowCounter};
use crate::policy::RetryPolicy;
use crate::query_builder::{CreateShards, KeysAre, Names, PickKeys};
use crate::shard_counts;
use crate::unfit::FieldState;

use super::bounds::Bounds;
use super::statements::{AddWithin, Base, ToShares};
use super::within::{Within, count_and_total, count_once};

/// One sharded field of one row that stays within bounds; made by [`RowCounter::never_below`] and
/// [`RowCounter::never_above`].
///
/// ```
/// # mod schema { diesel::table! { events (id) { id -> BigInt, seats -> Integer, } } }
/// # use schema::events::{self, dsl::{events as all, id, seats}};
/// # use diesel::prelude::*;
/// # #[derive(diesel_sharded::ShardedField)]
/// # struct Event { id: i64, #[sharded] seats: i32 }
/// # fn main() -> QueryResult<()> {
/// # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
/// # diesel::sql_query("CREATE TABLE events (id INTEGER PRIMARY KEY, seats INTEGER NOT NULL)").execute(conn)?;
/// # diesel::insert_into(all).values((id.eq(7), seats.eq(2))).execute(conn)?;
/// # diesel_sharded::ShardsTable::of(events::table).create(conn)?;
/// use diesel_sharded::RowCounter;
///
/// let free_seats = RowCounter::of(seats, 7).never_below(0).never_above(100);
/// assert_eq!(free_seats.add(-2, conn)?, true);
/// assert_eq!(free_seats.add(-1, conn)?, false); // sold out
/// assert_eq!(free_seats.add(1, conn)?, true); // given back
/// # Ok(())
/// # }
/// ```
///
/// Every process must use the same bounds for the same counter, and must not count on it in any other way. A plain counting
/// update, also through [`Cached`](crate::cached::Cached), ignores the bounds and may break them, and so may a
/// [repair](crate::operation::Verify::repair). [`fold`](crate::fold()), [`set_total`](crate::set_total()) and
/// [`reset`](crate::reset()) are safe. Before you bound a row that was counted on plainly, fold it once after the last plain
/// count. Before you change a bound, fold the row after the last count by the old bound. If the limit differs from row to row, or
/// changes, count what is left, never below 0, and add to it.
///
/// The base is no estimate here: it may have any value between the bounds.
#[must_use = "a counter does nothing by itself"]
pub struct Bounded<C: ShardedColumn, Run = Blocking> {
    counter: RowCounter<C, Run>,
    bounds: Bounds,
    retry: Option<RetryPolicy>,
    /// How many shards there are, if it is not the field's number.
    shards: Option<u16>,
}

impl<C: ShardedColumn, Run> RowCounter<C, Run> {
    /// The same counter, which never falls below `least`; see [`Bounded`].
    pub fn never_below(self, least: i64) -> Bounded<C, Run> {
        Bounded::of(self).never_below(least)
    }

    /// The same counter, which never rises above `most`; see [`Bounded`].
    pub fn never_above(self, most: i64) -> Bounded<C, Run> {
        Bounded::of(self).never_above(most)
    }
}

impl<C: ShardedColumn, Run> Bounded<C, Run> {
    pub(crate) fn of(counter: RowCounter<C, Run>) -> Self {
        Bounded {
            counter,
            bounds: Bounds::default(),
            retry: None,
            shards: None,
        }
    }

    /// Hands the room out to this number of shards, and not to the field's.
    pub(crate) fn with_shards(mut self, number: u16) -> Self {
        self.shards = Some(number);
        self
    }

    /// Whether `n` may be added to `total`.
    pub(crate) fn allows(&self, total: i64, n: i64) -> bool {
        self.bounds.allow(i128::from(total), n)
    }

    /// Sets the lower bound.
    pub fn never_below(mut self, least: i64) -> Self {
        self.bounds.least = Some(least);
        self
    }

    /// Sets the upper bound.
    pub fn never_above(mut self, most: i64) -> Self {
        self.bounds.most = Some(most);
        self
    }

    /// Retries by `policy` instead of the [process-wide](RetryPolicy::global) one.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }

    /// The same counter, which counts only once for all additions with this key of 1 to 255 bytes. An addition that the bounds
    /// refuse changes nothing, and leaves the key free. See [`idempotency`](crate::idempotency).
    pub fn idempotency_key(&self, key: impl AsRef<[u8]>) -> Idempotent<Self> {
        Idempotent::new(self.clone(), key)
    }

    pub(crate) fn retry_policy(&self) -> RetryPolicy {
        self.retry.clone().unwrap_or_default()
    }
}

paired! {
    impl<C: ShardedColumn> Bounded<C, Run>
    where
        C: IntegerField<DB>,
        DB: BackendOf<Conn>,
    {
        /// Adds `n`, which may be negative, and returns `Ok(true)` if the total stays within the bounds. Otherwise it returns
        /// `Ok(false)` and changes nothing. A total that is already out of bounds may still move towards them.
        ///
        /// While there is room, this takes one statement, or two if the first shard has too little:
        ///
        /// ```sql
        /// UPDATE "events_shards" AS "events" SET "seats" = ("events"."seats" + $1)
        /// WHERE ("events"."id" = $2) AND "events"."shard" = $3 AND ("events"."seats" + $4) >= 0
        /// ```
        ///
        /// Otherwise the total is read. If it allows the count, one transaction locks the row and all its shards, so other counts on
        /// the row wait, even on other fields. It adds up, and hands the room out:
        ///
        /// ```sql
        /// BEGIN;                                                 -- READ COMMITTED; SQLite: BEGIN IMMEDIATE, and no locks
        /// SELECT 1 FROM "events" WHERE … FOR UPDATE;
        /// SELECT 1 FROM "events_shards" AS "events" WHERE … ORDER BY "events"."id", "events"."shard" FOR UPDATE;
        /// …;                                                     -- base and shards are read, missing shards inserted
        /// UPDATE "events_shards" AS "events" SET "seats" = CASE WHEN "events"."shard" >= $1 THEN 0
        ///     WHEN "events"."shard" % 2 = 0 THEN $2 ELSE $3 END WHERE …;
        /// UPDATE "events" SET "seats" = $1 WHERE …;
        /// COMMIT
        /// ```
        ///
        /// Its effect on the total: `n`, or none. Adding 0 only looks whether there is such a row.
        ///
        /// Inside a transaction the count is part of the caller's. Once it has locked the row, others that need this lock wait until
        /// that transaction ends. Two such transactions may deadlock close to the bound, and on MySQL at the first counts on a row.
        /// Above `READ COMMITTED` they may meet a serialization failure. Retry them, as
        /// [`retry::transaction`](crate::retry::transaction) does.
        ///
        /// # Errors
        /// As [`update`](crate::update())'s; [`NotFound`](DieselError::NotFound) if there is no such row, and [`Error::Unfit`] if the
        /// row does not accept its share of the total because of row security or a trigger.
        pub fn add(&self, link: Link, n: i64) -> QueryResult<bool> {
            self.count(n, link).await
        }

        /// Adds `n`, which may be negative, and returns the new total; `None` if that would leave the bounds, and then nothing
        /// changes. The count and the read are one transaction, so the total contains `n`, and no count that another connection
        /// has not committed by then.
        ///
        /// # Errors
        /// As [`add`](Self::add).
        pub fn add_and_get(&self, link: Link, n: i64) -> QueryResult<Option<i64>> {
            count_and_total(self, n, link).await
        }

        /// The exact total; `None` if there is no such row. See [`RowCounter::get`].
        ///
        /// # Errors
        /// As [`update`](crate::update())'s.
        pub fn get(&self, link: Link) -> QueryResult<Option<i64>> {
            self.counter.total(link).await
        }
    }

    impl<C: ShardedColumn> Idempotent<Bounded<C, Run>>
    where
        C: IntegerField<DB>,
        <C::Table as ShardedTable>::Key: fmt::Debug,
        DB: BackendOf<Conn>,
    {
        /// Adds `n`, which may be negative, unless that was done with this key before. Returns whether the bounds allow it now, or
        /// allowed it then; if not, nothing changes, and the key is free.
        ///
        /// # Errors
        /// Those of [`Bounded::add`]; [`InvalidIdempotencyKey`](Error::InvalidIdempotencyKey) for a key that is empty or too long,
        /// [`IdempotencyKeyReused`](Error::IdempotencyKeyReused) for a key that came with another counter or amount before.
        pub fn add(&self, link: Link, n: i64) -> QueryResult<bool> {
            let request = Request::to_add(&self.key, &self.of.counter.cached_as(), n)?;
            count_once(&self.of, n, &request, link).await
        }
    }
}

impl<C, Run, M, Conn, DB> Within<M, Conn> for Bounded<C, Run>
where
    C: IntegerField<DB>,
    M: LoadIo<Conn, Backend = DB>,
    DB: BackendOf<Conn>,
{
    fn retry_policy(&self) -> RetryPolicy {
        Bounded::retry_policy(self)
    }

    async fn count(&self, n: i64, link: &mut Link<'_, M, Conn>) -> QueryResult<bool> {
        Bounded::count(self, n, link).await
    }

    async fn total(&self, link: &mut Link<'_, M, Conn>) -> QueryResult<Option<i64>> {
        self.counter.total(link).await
    }
}

impl<C: ShardedColumn, Run> Bounded<C, Run> {
    pub(crate) async fn count<DB, M, Conn>(
        &self,
        n: i64,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<bool>
    where
        C: IntegerField<DB>,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        if n == 0 {
            return match self.counter.is_there(link).await? {
                true => Ok(true),
                false => Err(DieselError::NotFound),
            };
        }
        let added = self.try_add::<_, _, _>(n, link).await;
        added.map_err(|error| explain::<C::Table, DB>(&link.backend(), error))
    }

    async fn try_add<DB, M, Conn>(&self, n: i64, link: &mut Link<'_, M, Conn>) -> QueryResult<bool>
    where
        C: IntegerField<DB>,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let retry = self.retry_policy();
        let slots = self.slots();
        for _ in 0..2 {
            let added = self
                .add_to_a_shard::<_, _, _>(n, slots, retry.clone(), link)
                .await;
            match added.map_err(Error::from) {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                // The shard is full; with what the base holds it may still be a total. In a caller's transaction it is told
                // as Diesel does, since that may be over.
                Err(Error::Overflow { .. }) => break,
                Err(error) => return Err(error.into()),
            }
        }
        // A caller's transaction may see an older total than the one that counts.
        if !in_any_transaction(link).await? {
            let reading = RetryLoop::read(link, retry.clone())?;
            let total = retry_loop!(link, reading, self.counter.total(link).await)?;
            let total = total.ok_or(DieselError::NotFound)?;
            if !self.bounds.allow(i128::from(total), n) {
                return Ok(false);
            }
        }
        // The parent's key as it is stored: the shards may compare it in another way than the parent does.
        let by_key = self.counter.key_is::<DB>();
        let reading = RetryLoop::read(link, retry.clone())?;
        let stored = retry_loop!(link, reading, {
            let pick = PickKeys::<C::Table, _> {
                filter: &by_key,
                table: PhantomData,
            };
            C::Table::load_keys(link, pick).await
        })?;
        let stored = stored.into_iter().next();
        let key = stored.unwrap_or_else(|| self.counter.key.clone());
        let keys = KeysAre(vec![C::Table::key_is(key)]);
        let locking = locking(link, retry)?;
        let added = retry_loop!(link, locking, {
            let locked =
                LockedParents::<C::Table, DB>::lock_all(*C::Table::TABLE, link, &keys).await?;
            match self
                .add_to_locked::<_, _, _>(n, slots, &locked, link)
                .await?
            {
                true => Ok(()),
                false => Err(DieselError::RollbackTransaction), // lets go of what was locked, where the database can
            }
        });
        match added {
            Ok(()) => Ok(true),
            Err(DieselError::RollbackTransaction) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// How many shards there are for each direction.
    fn slots(&self) -> u16 {
        let of_field = || shard_counts::known::<C::Table>([C::NAME].into_iter());
        let shards = self.shards.unwrap_or_else(of_field);
        (shards / 2).clamp(1, MOST_SLOTS)
    }

    /// Adds `n` to a shard at random, if that has room for it by itself. All were handed the same, and none is to be used up
    /// before the others. A count that gives room is added only where there is some left: that was handed out when the total was
    /// within its bounds, and it still is. Out of them, it pays a debt.
    async fn add_to_a_shard<DB, M, Conn>(
        &self,
        n: i64,
        slots: u16,
        retry: RetryPolicy,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<bool>
    where
        C: IntegerField<DB>,
        M: Io<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let upwards = self.bounds.uses_room_above(n);
        let statement = RetryLoop::statement(link, retry.clone())?;
        let counted = retry_loop!(link, statement, {
            let slot = (retry.random() % u64::from(slots)) as i32; // another one at each attempt
            let add = AddWithin::<C, _> {
                add: AddTo::new(n),
                key: self.counter.key_is::<DB>(),
                shard: 2 * slot + i32::from(upwards),
                upwards,
                gives: self.bounds.leave_free(n),
            };
            link.execute_prepared(add).await
        })?;
        Ok(counted > 0)
    }

    /// Decides on the exact total, and hands the room out anew.
    async fn add_to_locked<DB, M, Conn>(
        &self,
        n: i64,
        slots: u16,
        locked: &LockedParents<C::Table, DB>,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<bool>
    where
        C: IntegerField<DB>,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        if locked.is_empty() {
            return Err(DieselError::NotFound);
        }
        let field = field::<C>()?;
        let before = locked.states(link, &[field], Sums::Read).await?;
        let state = only_state(&before)?;
        let total = integer(&state.base)? + integer(&state.shards)?;
        if !self.bounds.allow(total, n) {
            return Ok(false);
        }
        let total = total + i128::from(n);
        let (smallest, largest) = field.column_type.integers();
        if total < smallest.into() || total > largest.into() {
            return Err(out_of_range(total).into());
        }
        let (down, up) = self.bounds.shares(total, slots, field.column_type);
        let there = locked.shards(link).await?;
        for shard in 0..2 * i32::from(slots) {
            let share = if shard % 2 == 0 { down } else { up };
            if share != 0 && !there.contains(&shard) {
                let create = CreateShards {
                    names: Names::of::<C::Table>(),
                    filter: locked.keys(),
                    shard,
                };
                link.execute(create).await?;
            }
        }
        let to_shares = ToShares::<C> {
            beyond: 2 * i32::from(slots),
            down,
            up,
            column: PhantomData,
        };
        locked.write_shards(link, &to_shares).await?;
        // Whatever the shards hold now, the base holds the rest of the total.
        let mut expected = locked.states(link, &[field], Sums::Read).await?;
        let shards = integer(&only_state(&expected)?.shards)?;
        let base = narrow(total - shards)?;
        for state in expected.iter_mut().flatten() {
            state.base = Amount::Integer(base.into());
        }
        let base = Base::<C>(base, PhantomData);
        locked
            .write_bases(link, &base, &[field], false, &before, &expected)
            .await?;
        Ok(true)
    }
}

impl<C: ShardedColumn, Run> Clone for Bounded<C, Run> {
    fn clone(&self) -> Self {
        Bounded {
            counter: self.counter.clone(),
            bounds: self.bounds,
            retry: self.retry.clone(),
            shards: self.shards,
        }
    }
}

impl<C, Run> fmt::Debug for Bounded<C, Run>
where
    C: ShardedColumn<Table: ShardedTable<Key: fmt::Debug>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} within {:?}", self.counter, self.bounds)
    }
}

/// The greatest number of shards to which room is handed out, for each direction. Each holds a part whether it is used or not,
/// and all of them are locked close to a bound.
const MOST_SLOTS: u16 = 16;

/// The state of the one field of the one parent.
fn only_state(states: &States) -> QueryResult<&FieldState> {
    states.iter().flatten().next().ok_or(DieselError::NotFound)
}

fn integer(amount: &Amount) -> QueryResult<i128> {
    match amount {
        Amount::Integer(n) => Ok(*n),
        other => {
            let message = format!("`{other}` is no integer");
            Err(DieselError::DeserializationError(message.into()))
        }
    }
}

fn narrow(n: i128) -> QueryResult<i64> {
    i64::try_from(n).map_err(|_| out_of_range(n).into())
}

fn out_of_range(n: i128) -> Error {
    let message = format!("{n} is out of the column's range");
    Error::Overflow {
        source: DieselError::SerializationError(message.into()),
    }
}
