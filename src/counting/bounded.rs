//! Counters with bounds: seats that cannot be sold twice, stock that never falls below zero.
//!
//! A bound is a property of the total, and a shard knows only itself. So the room up to each bound is handed out: a shard
//! with an even number holds a part of what may still be taken, one with an odd number a part of what may still be added,
//! as a negative number, and the base holds the rest. Then
//!
//! - taking `n` from an even shard that holds `n` or more cannot bring the total below its lower bound,
//! - adding `n` to an odd shard that holds `-n` or less cannot bring it above its upper bound,
//!
//! whatever happens on the other shards: the bound holds by arithmetic and not by a lock, as in O'Neil's
//! [escrow method](https://doi.org/10.1145/7239.7265). If a shard does not have enough, the total is read, and most increments that
//! must be refused are refused then. Only an increment that seems possible locks the row, decides on the exact total, and hands the
//! room out anew. That is rare while there is room, but close to the bound every increment does it.
//!
//! The total stays base + sum of shards, and a fold is safe at any time: it moves the room back into the base, and the next increment
//! hands it out again.

use std::collections::BTreeMap;
use std::fmt;

use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use diesel::result::Error as DieselError;
use diesel::sql_types::{BigInt, Integer};

use crate::backend::{BackendOf, Dialect, ShardedBackend, Strength};
use crate::conflict::{Conflict, ErrorClass};
use crate::connection::{
    Blocking, Ending, Link, LoadIo, in_any_transaction, in_transaction, paired,
};
use crate::counting::counter::{BoundedCounter, Counter, CounterBackend, MOST_CREATED};
use crate::counting::idempotency::{Idempotent, Request, claim, release};
use crate::counting::row_counter::{
    AddTo, CachedAs, IntegerField, Key, OneCounter, RowCounter, TableOf,
};
use crate::engine::{
    KeyedTable, LockedRows, ReadInto, RetryLoop, States, Sums, field, locking, retry_loop,
};
use crate::error::Error;
use crate::model::{Amount, ColumnType, SHARD, ShardedColumn, ShardedTable};
use crate::policy::RetryPolicy;
use crate::query_builder::{
    Clauses, CountByKey, CreateShards, KeyIs, KeysAre, LockShard, Names, OnPrimary, RowKind,
    SelectKeys, Sql, bind, fragments, id, on, sql, statements,
};
use crate::unfit::FieldState;

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
/// increment. Before you change a bound, fold the row after the last increment by the old bound. If the limit differs from row to row, or
/// changes, count what is left, never below 0, and add to it.
///
/// The base is no estimate here: it may have any value between the bounds. On MariaDB before 11.6 an increment beside a fold may be refused,
/// because the total misses a shard that the fold has just removed.
pub type Bounded<C, Run = Blocking> = Within<RowCounter<C, Run>>;

/// A counter that stays within bounds: a row's ([`Bounded`]), or a named one
/// ([`BoundedCounter`]).
#[derive(Clone)]
#[must_use = "a counter does nothing by itself"]
pub struct Within<K> {
    counter: K,
    bounds: Bounds,
    retry: Option<RetryPolicy>,
}

impl<C: ShardedColumn, Run> RowCounter<C, Run> {
    /// The same counter, which never falls below `least`; see [`Bounded`].
    pub fn never_below(self, least: i64) -> Bounded<C, Run> {
        Within::of(self).never_below(least)
    }

    /// The same counter, which never rises above `most`; see [`Bounded`].
    pub fn never_above(self, most: i64) -> Bounded<C, Run> {
        Within::of(self).never_above(most)
    }
}

impl<Run> Counter<Run> {
    /// The same counter, which never falls below `least`; see [`BoundedCounter`].
    pub fn never_below(self, least: i64) -> BoundedCounter<Run> {
        Within::of(self).never_below(least)
    }

    /// The same counter, which never rises above `most`; see [`BoundedCounter`].
    pub fn never_above(self, most: i64) -> BoundedCounter<Run> {
        Within::of(self).never_above(most)
    }
}

impl<K> Within<K> {
    fn of(counter: K) -> Self {
        Within {
            counter,
            bounds: Bounds::default(),
            retry: None,
        }
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
    pub fn idempotency_key(&self, key: impl AsRef<[u8]>) -> Idempotent<Self>
    where
        K: Clone,
    {
        Idempotent::new(self.clone(), key)
    }

    /// The policy of an increment that begins now.
    fn retry_policy(&self) -> RetryPolicy {
        self.retry.clone().unwrap_or_default().begun()
    }
}

paired! {
    impl<C: ShardedColumn> Within<RowCounter<C, Run>>
    where
        C: IntegerField<DB>,
        DB: BackendOf<Conn>;
    impl<> Within<Counter<Run>>
    where
        DB: CounterBackend<Conn>,
    {
        /// Adds `n`, which may be negative, and returns `Ok(true)` if the total stays within the bounds. Otherwise it returns
        /// `Ok(false)` and changes nothing. A total that is already out of bounds may still move towards them.
        ///
        /// While there is room, this takes one statement, or two if the first shard has too little:
        ///
        /// ```sql
        /// UPDATE "events_shards" AS "events" SET "seats" = ("events"."seats" + $1)
        /// WHERE ("events"."id" = $2) AND "events"."shard" = $3 AND "events"."seats" >= $4
        /// ```
        ///
        /// Otherwise the primary's total is read. If it allows the increment, one transaction locks the row and all its shards, so other
        /// increments on the row wait, even on other fields (on PostgreSQL, except those that create a shard). It adds up the total, and hands
        /// the room out:
        ///
        /// ```sql
        /// BEGIN;                                                 -- READ COMMITTED; SQLite: BEGIN IMMEDIATE, and no locks
        /// SELECT 1 FROM "events" WHERE … FOR UPDATE;             -- PostgreSQL: FOR NO KEY UPDATE
        /// …;                                                     -- missing shards are inserted
        /// SELECT 1 FROM "events_shards" AS "events" WHERE … ORDER BY "events"."id", "events"."shard" FOR UPDATE;
        /// …;                                                     -- base and shards are read
        /// UPDATE "events_shards" AS "events" SET "seats" = CASE WHEN "events"."shard" >= $1 THEN 0
        ///     WHEN "events"."shard" % 2 = 0 THEN $2 ELSE $3 END WHERE …;
        /// UPDATE "events" SET "seats" = $1 WHERE …;
        /// COMMIT
        /// ```
        ///
        /// Its effect on the total: `n`, or none. Adding 0 only checks that the row exists, and for a named counter sends nothing.
        ///
        /// Inside a transaction the increment is part of the caller's. Once it has locked the row, others that need this lock wait until that
        /// transaction ends. On PostgreSQL it takes from the base and from shards that nobody else holds. It waits only if these have too
        /// little room, and does not hold the row's lock then. Such transactions may still deadlock: on PostgreSQL if they take several
        /// times or more than a shard has left, beside [`set_total`](crate::set_total()), or if `BEGIN` was sent as text; on MySQL close to
        /// the bound, at the first increments on a row, and if one of them has counted on the row before. Above `READ COMMITTED` they may meet
        /// a serialization failure. Retry them, as [`retry::transaction`](crate::retry::transaction) does.
        ///
        /// # Errors
        /// As [`update`](crate::update())'s, or a named counter's [own](Counter#errors); [`NotFound`](DieselError::NotFound) if there is
        /// no such row, and [`Error::Unfit`] if the row does not accept its share of the total because of row security or a trigger.
        pub fn add(&self, link: Link, n: i64) -> QueryResult<bool> {
            Ok(self.count(n, false, link).await? == n)
        }

        /// Adds as much of `n`, which may be negative, as the bounds allow, and returns how much that is: `add_up_to(-5)` takes the last
        /// three of a stock that never falls below 0, and returns -3. The next call returns 0. The SQL is that of [`add`](Self::add).
        ///
        /// # Errors
        /// As [`add`](Self::add).
        pub fn add_up_to(&self, link: Link, n: i64) -> QueryResult<i64> {
            self.count(n, true, link).await
        }

        /// Adds `n`, which may be negative, and returns the new total; `None` if that would leave the bounds, and then nothing
        /// changes. The increment and the read are one transaction, so the total contains `n`, and no increment that another connection
        /// has not committed by then.
        ///
        /// # Errors
        /// As [`add`](Self::add).
        pub fn add_and_get(&self, link: Link, n: i64) -> QueryResult<Option<i64>> {
            Ok(self.count_in_transaction(n, None, true, link).await?.1)
        }
    }

    impl<C: ShardedColumn> Within<RowCounter<C, Run>>
    where
        C: IntegerField<DB>,
        DB: BackendOf<Conn>,
    {
        /// The exact total; `None` if there is no such row. See [`RowCounter::get`].
        ///
        /// # Errors
        /// As [`update`](crate::update())'s.
        pub fn get(&self, link: Link) -> QueryResult<Option<i64>> {
            self.counter.total(link).await
        }
    }

    impl<> Within<Counter<Run>>
    where
        DB: CounterBackend<Conn>,
    {
        /// The exact total; see [`Counter::get`].
        ///
        /// # Errors
        /// See [`Counter`](Counter#errors).
        pub fn get(&self, link: Link) -> QueryResult<i64> {
            Ok(self.counter.total(link).await?.unwrap_or(0))
        }
    }

    impl<C: ShardedColumn> Idempotent<Within<RowCounter<C, Run>>>
    where
        C: IntegerField<DB>,
        Key<C>: fmt::Debug,
        DB: BackendOf<Conn>;
    impl<> Idempotent<Within<Counter<Run>>>
    where
        DB: CounterBackend<Conn>,
    {
        /// Adds `n`, which may be negative, unless that was done with this key before. Returns whether the bounds allow it now, or
        /// allowed it then; if not, nothing changes, and the key is free.
        ///
        /// # Errors
        /// Those of the counter's `add`; [`InvalidIdempotencyKey`](Error::InvalidIdempotencyKey) for a key that is empty or too long,
        /// [`IdempotencyKeyReused`](Error::IdempotencyKeyReused) for a key that came with another counter or amount before.
        pub fn add(&self, link: Link, n: i64) -> QueryResult<bool> {
            Ok(self.of.count_once(n, &self.key, false, link).await?.0)
        }

        /// Adds `n` in the same way, and returns the new total; `None` if the bounds do not allow it. A repeat adds nothing, and returns
        /// the current total, or `None` if the row is gone.
        ///
        /// # Errors
        /// As [`add`](Self::add).
        pub fn add_and_get(&self, link: Link, n: i64) -> QueryResult<Option<i64>> {
            Ok(self.of.count_once(n, &self.key, true, link).await?.1)
        }
    }
}

impl<K> Within<K> {
    /// Adds `n`, or if `partly` as much of it as the bounds allow. Returns the amount added: 0 if the bounds refuse it.
    async fn count<M>(&self, n: i64, partly: bool, link: &mut Link<'_, M>) -> QueryResult<i64>
    where
        K: OneCounter<M>,
        M: LoadIo,
    {
        if n != 0 {
            self.counter.begin(link).await?;
        }
        let retry = self.retry_policy();
        let mut addition = Addition::new(self, n, partly, &retry, link);
        let added = match addition.add_to_a_shard().await {
            Ok(false) => addition.add_with_lock().await,
            added => added.map(|_| n),
        };
        added.map_err(|error| self.counter.explained(link, error))
    }

    /// Adds `n` in one transaction with the idempotency key of the `request`, and with the read of the total if it `reads` it. Returns
    /// whether the bounds allow it, or allowed it when the same request came before; and that total.
    async fn count_in_transaction<M>(
        &self,
        n: i64,
        request: Option<&Request>,
        reads: bool,
        link: &mut Link<'_, M>,
    ) -> QueryResult<(bool, Option<i64>)>
    where
        K: OneCounter<M>,
        M: LoadIo,
    {
        self.counter.begin(link).await?;
        let (retry, mut locks_first) = (self.retry_policy(), false);
        loop {
            let repeated = locking(link, retry.clone())?;
            let counted = retry_loop!(link, repeated, ending => {
                let claimed = match request {
                    Some(request) => claim(link, request).await?,
                    None => None,
                };
                if let Some(counted) = claimed {
                    let total = match reads {
                        true => self.counter.total_on_primary(link).await?,
                        false => None,
                    };
                    return Ok(Ending::Commit(Some((counted > 0, total))));
                }
                let mut addition = Addition::new(self, n, false, &retry, link);
                let is_full = locks_first || !addition.add_to_a_shard().await?;
                // This transaction may still lock a shard that had too little after a wait. Rows are locked before their shards, so it
                // rolls back and begins with the row.
                if is_full && !locks_first && !addition.leaves_out_held_shards()? {
                    return Ok(Ending::RollBack(None));
                }
                let added = !is_full || addition.add_with_lock().await? == n;
                if let (false, Some(request)) = (added, request) {
                    release(link, &request.key).await?;
                }
                let total = match added && reads {
                    true => self.counter.total(link).await?,
                    false => None,
                };
                Ok(Ending::Commit(Some((added, total))))
            });
            match counted.map_err(|error| self.counter.explained(link, error))? {
                Some(counted) => return Ok(counted),
                None => locks_first = true,
            }
        }
    }

    /// Adds `n`, unless that was done with this idempotency key before.
    async fn count_once<M>(
        &self,
        n: i64,
        key: &[u8],
        reads: bool,
        link: &mut Link<'_, M>,
    ) -> QueryResult<(bool, Option<i64>)>
    where
        K: OneCounter<M> + CachedAs,
        M: LoadIo,
    {
        let request = Request::to_add(key, &self.counter.cached_as(), n)?;
        self.count_in_transaction(n, Some(&request), reads, link)
            .await
    }
}

impl<K: fmt::Debug> fmt::Debug for Within<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} within {:?}", self.counter, self.bounds)
    }
}

/// An addition in progress.
struct Addition<'a, 'l, K, M: LoadIo> {
    counter: &'a K,
    bounds: Bounds,
    n: i64,
    /// Whether a part of `n` may be added.
    partly: bool,
    /// The number of shards among which room is handed out, for each direction.
    shards: u16,
    /// Whether to create missing shards.
    creates: bool,
    retry: &'a RetryPolicy,
    link: &'a mut Link<'l, M>,
}

/// The outcome of a try that holds the row's lock.
#[derive(Debug, Clone, Copy)]
enum Tried {
    Added(i64),
    /// The bounds do not allow it.
    Refused,
    NoRow,
    /// Another transaction holds this shard, which the addition needs.
    Busy(i32),
}

/// The greatest number of shards to which room is handed out, for each direction. Each holds a part whether it is used or not,
/// and all of them are locked close to a bound.
const MOST_SHARDS: u16 = 16;

/// How many times an addition waits for a busy shard without the row's lock. After that it waits with the lock, and a deadlock decides.
const MOST_WAITS: u8 = 100;

/// The key of the row, as it is stored.
type StoredKey<C, DB> = KeysAre<<TableOf<C> as KeyedTable<DB>>::KeyIs>;

/// The row that is locked.
type Row<C, DB> = LockedRows<TableOf<C>, DB>;

impl<'a, 'l, K, M> Addition<'a, 'l, K, M>
where
    K: OneCounter<M>,
    M: LoadIo,
{
    fn new(
        within: &'a Within<K>,
        n: i64,
        partly: bool,
        retry: &'a RetryPolicy,
        link: &'a mut Link<'l, M>,
    ) -> Self {
        Addition {
            counter: &within.counter,
            bounds: within.bounds,
            n,
            partly,
            shards: (within.counter.shards() / 2).clamp(1, MOST_SHARDS),
            creates: true,
            retry,
            link,
        }
    }

    /// Whether the addition leaves out shards that others hold. Inside a transaction, the holders may be waiting for that transaction.
    fn leaves_out_held_shards(&mut self) -> QueryResult<bool> {
        Ok(self.link.dialect().supports_skip_locked() && in_transaction(self.link)?)
    }

    /// Adds all of `n` to a shard that has room for it, without the row's lock. Returns whether it found one. All shards were handed the
    /// same room and should be used up evenly, so it tries one at random, or any that nobody else holds.
    ///
    /// An addition that gives room is added only to a shard that has some left. That room was handed out when the total was within its bounds,
    /// so it still is. While the total is out of bounds, the addition gives no room: it pays a debt.
    async fn add_to_a_shard(&mut self) -> QueryResult<bool> {
        if self.n == 0 {
            return match self.counter.is_there(self.link).await? {
                true => Ok(true),
                false => Err(DieselError::NotFound),
            };
        }
        let any_free = self.leaves_out_held_shards()?;
        let key = KeyIs(TableOf::<K::Field>::key_is(self.counter.key()?));
        for _ in 0..if any_free { 1 } else { 2 } {
            let statement = RetryLoop::statement(self.link, self.retry.clone())?;
            let added = retry_loop!(self.link, statement, {
                let shard = (!any_free).then(|| {
                    let chosen = (self.retry.random() % u64::from(self.shards)) as i32; // another one at each attempt
                    2 * chosen + i32::from(self.bounds.uses_room_above(self.n))
                });
                self.add_to_shard(self.n, shard, &key).await
            });
            if added? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds `n` to this shard, or to any that nobody else holds, if that shard alone has enough room.
    async fn add_to_shard(
        &mut self,
        n: i64,
        shard: Option<i32>,
        filter: &(dyn QueryFragment<M::Backend> + Sync),
    ) -> QueryResult<bool> {
        let (smallest, largest) = field::<K::Field>()?.column_type.integers();
        let add = AddWithin {
            names: Names::of::<TableOf<K::Field>>(),
            changes: &AddTo::<K::Field>::new(vec![n]),
            filter,
            shard,
            field: K::Field::NAME,
            room: match self.bounds.leave_free(n) {
                true if n > 0 => Room::Given(largest.saturating_sub(n)),
                true => Room::Given(smallest.saturating_sub(n)),
                false => Room::Taken(n.saturating_neg()), // no shard holds an amount at which this saturates
            },
            upwards: self.bounds.uses_room_above(n),
        };
        Ok(self.link.execute_prepared(add).await? > 0)
    }

    /// Adds as much as the exact total allows. Creates a counter that only exists from its first increment on.
    async fn add_with_lock(&mut self) -> QueryResult<i64> {
        let mut created = 0;
        loop {
            match self.add_to_row().await? {
                Some(added) => return Ok(added),
                None if !K::IS_INSERTED || created == MOST_CREATED => {
                    return Err(DieselError::NotFound);
                }
                None if self.bounds.part(0, self.n, self.partly) == 0 => return Ok(0),
                None => self.counter.create(self.link).await?,
            }
            created += 1;
        }
    }

    /// As [`add_with_lock`](Self::add_with_lock), but `None` if there is no such row.
    async fn add_to_row(&mut self) -> QueryResult<Option<i64>> {
        // A read inside a caller's transaction may return a total that is out of date.
        if !in_any_transaction(self.link).await? {
            let reading = RetryLoop::decision(self.link, self.retry.clone())?;
            let total = retry_loop!(self.link, reading, {
                self.counter.total_on_primary(self.link).await
            });
            let Some(total) = total? else {
                return Ok(None);
            };
            if self.bounds.part(total.into(), self.n, self.partly) == 0 {
                self.refuse_hidden_shards().await?;
                return Ok(Some(0));
            }
        }
        let key = self.stored_key().await?;
        let mut waits = 0;
        loop {
            let may_create = self.creates;
            let locking = locking(self.link, self.retry.clone())?;
            let tried = retry_loop!(self.link, locking, ending => {
                let tried = self.try_with_lock(&key, waits < MOST_WAITS).await?;
                // If nothing was added, the locks are released, where the database can do that.
                Ok(Ending::commit_if(matches!(tried, Tried::Added(_)), tried))
            });
            match tried {
                Ok(Tried::Added(added)) => return Ok(Some(added)),
                Ok(Tried::Refused) => return Ok(Some(0)),
                Ok(Tried::NoRow) => return Ok(None),
                Ok(Tried::Busy(shard)) => {
                    self.wait_for(shard, &key).await?;
                    waits += 1;
                }
                // Others are creating shards. Until they are done, the base holds the room of these shards.
                Err(error)
                    if may_create && !self.creates && begins_again(self.link.dialect(), &error) => {
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Fails if row security hides shards from this role: no total that the role sees contains their amounts.
    async fn refuse_hidden_shards(&mut self) -> QueryResult<()> {
        let key = vec![self.counter.key()?];
        let row = LockedRows::<_, M::Backend>::locked(*TableOf::<K::Field>::TABLE, key);
        let asking = RetryLoop::read(self.link, self.retry.clone())?;
        retry_loop!(
            self.link,
            asking,
            row.on(self.link).refuse_hidden_shards().await
        )
    }

    /// The parent's key as it is stored: the shards may compare keys in another way than the parent does.
    async fn stored_key(&mut self) -> QueryResult<StoredKey<K::Field, M::Backend>> {
        let key = self.counter.key()?;
        let by_key = KeyIs(TableOf::<K::Field>::key_is(key.clone()));
        let reading = RetryLoop::decision(self.link, self.retry.clone())?;
        let stored = retry_loop!(self.link, reading, {
            let names = Names::of::<TableOf<K::Field>>();
            let query = SelectKeys::new(names, &by_key);
            let pick = OnPrimary { names, query };
            <TableOf<K::Field> as KeyedTable<M::Backend>>::KeySql::rows(self.link, pick).await
        });
        let key = stored?.into_iter().next().unwrap_or(key);
        Ok(KeysAre(vec![TableOf::<K::Field>::key_is(key)]))
    }

    /// Waits until nobody else holds this shard.
    async fn wait_for(
        &mut self,
        shard: i32,
        key: &StoredKey<K::Field, M::Backend>,
    ) -> QueryResult<()> {
        let waiting = locking(self.link, self.retry.clone())?;
        retry_loop!(self.link, waiting, ending => {
            let clauses = Clauses {
                names: Names::of::<TableOf<K::Field>>(),
                changes: &(),
                filter: key,
                insert: None,
                shard,
            };
            self.link.execute(LockShard(clauses, Strength::Exclusive)).await?;
            Ok(Ending::RollBack(())) // releases the shard
        })
    }

    /// Locks the row, and adds as much as the bounds allow. `beside` others who hold shards, it takes only what it can reach without
    /// waiting for them: they may be waiting for the row.
    async fn try_with_lock(
        &mut self,
        key: &StoredKey<K::Field, M::Backend>,
        beside: bool,
    ) -> QueryResult<Tried> {
        let table = *TableOf::<K::Field>::TABLE;
        let lock = LockedRows::<_, M::Backend>::lock_all;
        let row = lock(table, self.link, key, Strength::Exclusive).await?;
        if row.is_empty() {
            return Ok(Tried::NoRow);
        }
        let free = match beside {
            true => row.on(self.link).lock_free_shards().await?,
            false => None,
        };
        let mut shards = BTreeMap::new();
        for (shard, amount) in row.on(self.link).amounts(field::<K::Field>()?).await? {
            shards.insert(shard, integer(&amount)?);
        }
        if let Some(free) = free {
            if shards.keys().any(|shard| !free.contains(shard)) {
                return self.take_beside(&row, &shards, &free).await;
            }
        }
        if self.creates {
            self.create_shards(&row, &shards).await?;
        }
        let locked = row
            .with_shards(self.link, None, Strength::Exclusive)
            .await?;
        self.hand_out(&locked).await
    }

    /// Reads the base and the sum of the shards.
    async fn read(
        &mut self,
        row: &Row<K::Field, M::Backend>,
        sums: Sums,
    ) -> QueryResult<(i128, i128)> {
        let field = field::<K::Field>()?;
        let states = row.on(self.link).states(&[field], sums).await?;
        match states.iter().flatten().next() {
            Some(FieldState::Sum { base, shards }) => Ok((integer(base)?, integer(shards)?)),
            _ => Err(DieselError::NotFound), // the row is locked, and its fields are sums
        }
    }

    /// Takes from the base and from `free` shards, which this transaction holds, while others hold the rest. The others may be using up
    /// what their shards hold, or may roll back what they have added: this relies on neither.
    async fn take_beside(
        &mut self,
        row: &Row<K::Field, M::Backend>,
        shards: &BTreeMap<i32, i128>,
        free: &[i32],
    ) -> QueryResult<Tried> {
        let field = field::<K::Field>()?;
        let (smallest, largest) = field.column_type.integers();
        let range = i128::from(smallest)..=i128::from(largest);
        let (old_base, _) = self.read(row, Sums::Replaced).await?;
        let (mut total, mut certain) = (old_base, old_base);
        for amount in shards.values() {
            total += amount;
            certain += match self.n < 0 {
                true => (*amount).min(0),
                false => (*amount).max(0),
            };
        }
        let n = self.bounds.part(total, self.n, self.partly);
        if n == 0 {
            return Ok(Tried::Refused);
        }
        let of_base = self.bounds.part(certain, n, true);
        let (mut left, mut base) = (n - of_base, old_base + i128::from(of_base));
        let upwards = i32::from(self.bounds.uses_room_above(n));
        let (free, held): (Vec<_>, Vec<_>) =
            shards.iter().partition(|(shard, _)| free.contains(shard));
        let of_direction = |(shard, _): &&(&i32, &i128)| *shard % 2 == upwards;
        for (shard, amount) in free.iter().filter(of_direction) {
            let room = narrow(-**amount)?; // has the sign of what is taken, if there is some
            let taken = room.clamp(left.min(0), left.max(0));
            if taken != 0 && self.add_to_shard(taken, Some(**shard), &row.keys).await? {
                left -= taken;
            }
        }
        if left != 0 || !range.contains(&base) {
            let mut with_room = held.iter().filter(of_direction);
            let holder = with_room.find(|(_, amount)| **amount != 0);
            let holder = holder.or(held.first());
            return Ok(holder.map_or(Tried::Refused, |(shard, _)| Tried::Busy(**shard)));
        }
        // Room on the free shards spares the next additions the row's lock. Half of the room stays in the base, for counts that meet no free
        // shard.
        let most = i128::from(largest / 2);
        let room = self.bounds.room(certain + i128::from(of_base), n);
        let share = room.unwrap_or(0).clamp(-most, most) / (2 * i128::from(self.shards));
        for (shard, amount) in free.iter().filter(of_direction) {
            let is_empty = **amount == 0 && **shard < 2 * i32::from(self.shards);
            if is_empty && share != 0 && range.contains(&(base + share)) {
                let give = CountByKey(Clauses {
                    names: Names::of::<TableOf<K::Field>>(),
                    changes: &AddTo::<K::Field>::new(vec![narrow(-share)?]),
                    filter: &row.keys,
                    insert: None,
                    shard: **shard,
                });
                if self.link.execute(give).await? > 0 {
                    base += share;
                }
            }
        }
        if base != old_base {
            let (before, expected) = (only_state(old_base, 0), only_state(base, 0));
            let base = Base(K::Field::NAME, narrow(base)?);
            row.on(self.link).write(RowKind::Parents, &base).await?;
            // Checks the base alone: others may change their shards meanwhile.
            row.on(self.link)
                .check(&[field], Sums::Replaced, &before, &expected)
                .await?;
        }
        Ok(Tried::Added(n))
    }

    /// Creates the shards to which room will be handed out. Others may be creating them while they wait for the row, so this waits for them
    /// only briefly.
    async fn create_shards(
        &mut self,
        row: &Row<K::Field, M::Backend>,
        there: &BTreeMap<i32, i128>,
    ) -> QueryResult<()> {
        let Bounds { least, most } = self.bounds;
        let has_room = |shard: &i32| if shard % 2 == 0 { least } else { most }.is_some();
        let shards = (0..2 * i32::from(self.shards)).filter(has_room);
        let mut missing: Vec<_> = shards.filter(|shard| !there.contains_key(shard)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let (base, shards) = self.read(row, Sums::Read).await?;
        let n = self.bounds.part(base + shards, self.n, self.partly);
        let (total, field) = (base + shards + i128::from(n), field::<K::Field>()?);
        let (down, up) = self.bounds.shares(total, self.shards, field.column_type);
        missing.retain(|shard| if shard % 2 == 0 { down } else { up } != 0);
        if n == 0 || missing.is_empty() {
            return Ok(());
        }
        self.creates = false; // once: an attempt that meets others here goes on without these shards
        let bounds = self.link.dialect().bounds_some_waits();
        if let Some([begin, _]) = bounds {
            self.link.batch_execute(begin).await?;
        }
        for shard in missing {
            let create = CreateShards {
                names: Names::of::<TableOf<K::Field>>(),
                filter: &row.keys,
                shard,
                locks: true,
            };
            self.link.execute(create).await?;
        }
        match bounds {
            Some([_, end]) => self.link.batch_execute(end).await,
            None => Ok(()),
        }
    }

    /// Decides on the exact total, and hands the room out anew.
    async fn hand_out(&mut self, row: &Row<K::Field, M::Backend>) -> QueryResult<Tried> {
        let (old_base, old_shards) = self.read(row, Sums::Read).await?;
        let n = self.bounds.part(old_base + old_shards, self.n, self.partly);
        if n == 0 {
            return Ok(Tried::Refused);
        }
        let total = old_base + old_shards + i128::from(n);
        let field = field::<K::Field>()?;
        let (smallest, largest) = field.column_type.integers();
        if total < smallest.into() || total > largest.into() {
            return Err(out_of_range(total).into());
        }
        let (down, up) = self.bounds.shares(total, self.shards, field.column_type);
        let to_shares = ToShares {
            names: Names::of::<TableOf<K::Field>>(),
            field: K::Field::NAME,
            beyond: 2 * i32::from(self.shards),
            down,
            up,
        };
        row.on(self.link).write(RowKind::Shards, &to_shares).await?;
        // Whatever the shards hold now, the base holds the rest of the total.
        let (_, shards) = self.read(row, Sums::Read).await?;
        let before = only_state(old_base, old_shards);
        let expected = only_state(total - shards, shards);
        let base = Base(K::Field::NAME, narrow(total - shards)?);
        row.on(self.link).write(RowKind::Parents, &base).await?;
        row.on(self.link)
            .check(&[field], Sums::Read, &before, &expected)
            .await?;
        row.on(self.link).refuse_others().await?; // their amounts are in no share, and were taken for the base's
        Ok(Tried::Added(n))
    }
}

/// Whether the addition can begin again after this error, because the rollback to a savepoint leaves nothing of it.
fn begins_again(dialect: Dialect, error: &DieselError) -> bool {
    let class = dialect.classify(error);
    dialect.unlocks_at_savepoints()
        && matches!(
            class,
            ErrorClass::Conflict(Conflict::LockTimeout | Conflict::Serialization)
        )
}

/// Base and shards of the one field of the one row.
fn only_state(base: i128, shards: i128) -> States {
    let (base, shards) = (Amount::Integer(base), Amount::Integer(shards));
    vec![vec![FieldState::Sum { base, shards }]]
}

fn integer(amount: &Amount) -> QueryResult<i128> {
    amount.to_integer().ok_or_else(|| {
        let message = format!("`{amount}` is no integer");
        DieselError::DeserializationError(message.into())
    })
}

fn narrow(n: i128) -> QueryResult<i64> {
    i64::try_from(n).map_err(|_| out_of_range(n).into())
}

fn out_of_range(n: i128) -> Error {
    Error::overflow(format!("{n} is out of the column's range"))
}

/// The least and the greatest total.
#[derive(Debug, Clone, Copy, Default)]
struct Bounds {
    least: Option<i64>,
    most: Option<i64>,
}

impl Bounds {
    /// How much may be added to `total` in the direction of `n`, with the sign of `n`; `None` without a bound.
    fn room(self, total: i128, n: i64) -> Option<i128> {
        match n < 0 {
            true => self.least.map(|least| (i128::from(least) - total).min(0)),
            false => self.most.map(|most| (i128::from(most) - total).max(0)),
        }
    }

    /// How much of `n` may be added to `total`: all of it or nothing, or if `partly` also a part.
    fn part(self, total: i128, n: i64, partly: bool) -> i64 {
        // Room that is smaller than `n` fits into its type.
        match self
            .room(total, n)
            .filter(|room| room.unsigned_abs() < n.unsigned_abs().into())
        {
            None => n,
            Some(room) if partly => i64::try_from(room).unwrap_or(0),
            Some(_) => 0,
        }
    }

    /// Whether `n` uses the room up to the upper bound, rather than the room down to the lower one. In a direction without a bound, `n`
    /// uses the room of the other direction, and only adds to it.
    fn uses_room_above(self, n: i64) -> bool {
        if n > 0 {
            self.most.is_some()
        } else {
            self.least.is_none()
        }
    }

    /// Whether no bound limits `n`: adding it gives room in the other direction.
    fn leave_free(self, n: i64) -> bool {
        (n > 0 && self.most.is_none()) || (n < 0 && self.least.is_none())
    }

    /// The share of each shard in the room below `total`, positive, and in that above it, negative. All of it is handed out, up
    /// to half of the greatest value of the column's type: SQLite could not add up the shards of a bound at the edge. The base
    /// keeps the remainder.
    fn shares(self, total: i128, shards: u16, column: ColumnType) -> (i64, i64) {
        let (smallest, largest) = column.integers();
        let share = |room: i128| {
            let share = room.clamp(0, i128::from(largest / 2)) / i128::from(shards);
            share as i64 // not above `largest`
        };
        let below = |least: i64| share(total - i128::from(least.max(smallest)));
        let above = |most: i64| share(i128::from(most.min(largest)) - total);
        (self.least.map_or(0, below), -self.most.map_or(0, above))
    }
}

statements! {
    /// `UPDATE shards AS parent SET … WHERE key AND parent.shard = $n AND parent.field >= $n`, or `<= $n`; where it gives,
    /// `AND parent.field > 0 AND parent.field < $n`, or `< 0` and `> $n`. For any free shard its number is
    /// `(SELECT parent.shard FROM shards AS parent WHERE key AND … LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED)`
    ///
    /// It has eight texts; Diesel keeps it prepared by its text.
    struct AddWithin<'a> {
        names: Names<'a, DB>,
        changes: &'a (dyn QueryFragment<DB> + Sync),
        filter: &'a (dyn QueryFragment<DB> + Sync),
        shard: Option<i32>,
        field: &'static str,
        room: Room,
        upwards: bool,
    }: Prepare;
    |self, out| {
        let table = self.names;
        let number = || table.under_alias().column(SHARD);
        sql!(out;
            "UPDATE ", table.shards_as_parent(), " SET ", table.aliased(self.changes), table.aliased(self.filter), " AND ",
            if let Some(shard) = &self.shard { table.shard_is(shard) } else {
                number(), " = (SELECT ", number(), " FROM ", table.shards_as_parent(), table.aliased(self.filter), self.has_room(),
                " LIMIT 1", on(|dialect| dialect.locks_rows(Strength::ExclusiveIfFree)), ")"
            },
            self.has_room())
    }

    /// `field = CASE WHEN shard >= $n THEN 0 WHEN shard % 2 = 0 THEN $n ELSE $n END`
    struct ToShares<'a> {
        names: Names<'a, DB>,
        field: &'static str,
        beyond: i32,
        down: i64,
        up: i64,
    };
    |self, out| {
        let shard = || self.names.column(SHARD);
        sql!(out;
            id(self.field), " = CASE WHEN ", shard(), " >= ", bind(Integer, &self.beyond), " THEN 0 WHEN ",
            shard(), " % 2 = 0 THEN ", bind(BigInt, &self.down), " ELSE ", bind(BigInt, &self.up), " END")
    }
}

/// The room that a shard must hold for an addition.
#[derive(Debug, Clone, Copy)]
enum Room {
    /// This much room.
    Taken(i64),
    /// Some room, which the addition adds to, up to this.
    Given(i64),
}

impl<DB: ShardedBackend> AddWithin<'_, DB> {
    /// ` AND field >= $n`, or the condition of an addition that gives room
    fn has_room<'b>(&'b self) -> impl Sql<'b, DB> {
        let field = || self.names.under_alias().column(self.field);
        let (taken, most) = match &self.room {
            Room::Taken(n) => (Some(n), None),
            Room::Given(most) => (None, Some(most)),
        };
        let [from, above, below] = match self.upwards {
            true => [" <= ", " < 0", " > "],
            false => [" >= ", " > 0", " < "],
        };
        sql! {
            " AND ", field(),
            if let Some(n) = taken { from, bind(BigInt, n) },
            if let Some(most) = most { above, " AND ", field(), below, bind(BigInt, most) }
        }
    }
}

/// `field = $n`
struct Base(&'static str, i64);

fragments! {
    [] Base;
    |self, out| sql!(out; id(self.0), " = ", bind(BigInt, &self.1));
}

#[cfg(test)]
mod tests {
    use super::*;
    use ColumnType::{BigInt, Integer, SmallInt};

    const SEATS: Bounds = Bounds {
        least: Some(0),
        most: Some(100),
    };

    #[test]
    fn only_what_leads_out_of_the_bounds_is_refused() {
        let all = |total, n| SEATS.part(total, n, false) == n;
        assert!(all(5, -5) && !all(5, -6));
        assert!(all(95, 5) && !all(95, 6));
        assert!(all(-10, 1) && all(110, -1)); // towards them
        assert!(!all(-10, -1) && !all(110, 1));
        let most = i64::MAX;
        assert_eq!(Bounds::default().part(most.into(), most, false), most);
        let parts = [(5, -6), (95, 6), (0, -1), (-10, -1), (7, i64::MIN)];
        let parts = parts.map(|(total, n)| SEATS.part(total, n, true));
        assert_eq!(parts, [-5, 5, 0, 0, -7]);
    }

    /// Whatever is taken from the shards of one direction alone, the total stays within the bounds.
    #[test]
    fn shares_never_exceed_the_room() {
        let edges = [i64::MIN, -1000, -1, 0, 1, 7, 1000, i64::MAX];
        for column in [SmallInt, Integer, BigInt] {
            let (smallest, largest) = column.integers();
            for least in edges {
                for most in edges.into_iter().filter(|most| *most >= least) {
                    for total in edges.map(|total| total.clamp(smallest, largest)) {
                        for shards in [1, 2, 8, 2048] {
                            let bounds = Bounds {
                                least: Some(least),
                                most: Some(most),
                            };
                            let (down, up) = bounds.shares(total.into(), shards, column);
                            assert!(down >= 0 && up <= 0);
                            let (total, shards) = (i128::from(total), i128::from(shards));
                            let (down, up) = (i128::from(down) * shards, i128::from(up) * shards);
                            assert!(down == 0 || total - down >= least.into());
                            assert!(up == 0 || total - up <= most.into());
                            let base = total - down - up;
                            assert!((smallest.into()..=largest.into()).contains(&base));
                        }
                    }
                }
            }
        }
    }

    #[cfg(all(
        feature = "postgres_backend",
        feature = "mysql_backend",
        feature = "sqlite"
    ))]
    #[test]
    fn sql_of_a_count_and_of_shares() {
        use crate::test_schema::{assert_sql, videos};
        use diesel::mysql::Mysql;
        use diesel::pg::Pg;

        let add = AddTo::<videos::likes>::new(vec![-1]);
        let key = KeyIs(videos::id.eq(7));
        let add_within = |shard, room, upwards| AddWithin::<Pg> {
            names: Names::of::<videos::table>(),
            changes: &add,
            filter: &key,
            shard,
            field: "likes",
            room,
            upwards,
        };
        assert_sql!(add_within(Some(2), Room::Taken(1), false);
            Pg => r#"UPDATE "videos_shards" AS "videos" SET "likes" = ("videos"."likes" + $1) WHERE ("videos"."id" = $2) AND "videos"."shard" = $3 AND "videos"."likes" >= $4"#,
        );
        assert_sql!(add_within(Some(3), Room::Given(9), true);
            Pg => r#"UPDATE "videos_shards" AS "videos" SET "likes" = ("videos"."likes" + $1) WHERE ("videos"."id" = $2) AND "videos"."shard" = $3 AND "videos"."likes" < 0 AND "videos"."likes" > $4"#,
        );
        assert_sql!(add_within(None, Room::Taken(1), false);
            Pg => r#"UPDATE "videos_shards" AS "videos" SET "likes" = ("videos"."likes" + $1) WHERE ("videos"."id" = $2) AND "videos"."shard" = (SELECT "videos"."shard" FROM "videos_shards" AS "videos" WHERE ("videos"."id" = $3) AND "videos"."likes" >= $4 LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED) AND "videos"."likes" >= $5"#,
        );
        let to_shares = ToShares::<Mysql> {
            names: Names::of::<videos::table>(),
            field: "likes",
            beyond: 16,
            down: 5,
            up: -3,
        };
        assert_sql!(to_shares;
            Mysql => "`likes` = CASE WHEN `videos`.`shard` >= ? THEN 0 WHEN `videos`.`shard` % 2 = 0 THEN ? ELSE ? END",
        );
    }
}
