//! `fold(..)`: moves shards into the base, under full write load, without changing any total.

use std::fmt;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use diesel::connection::LoadConnection;
use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, IntoUpdateTarget, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Integer};

use crate::amount::Amount;
use crate::dialect::{BackendOf, ShardedBackend};
use crate::field::{ShardedColumn, ShardedTable};
use crate::held::{self, Rows};
use crate::keyed::{KEYS_IN_A_STATEMENT, KeyedTable, in_chunks};
use crate::retry::{Retry, in_transaction};
use crate::shard_numbers;
use crate::sql::{SHARD, push_bind, push_from_shards, push_key, push_shards_column};
use crate::update::UpdateSource;

/// Begins a fold: the values of shards move into the base, so that the plain column, its index and readers who know nothing
/// of shards are nearly fresh. No total changes, not for one reader at one instant.
///
/// ```
/// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
/// # use schema::videos::{self, dsl::{id, videos as all, views}};
/// # use diesel::prelude::*;
/// # #[derive(diesel_sharded::ShardedField)]
/// # #[diesel(table_name = videos)]
/// # struct Video { id: i64, #[sharded] views: i64 }
/// # fn main() -> QueryResult<()> {
/// # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
/// # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, views BIGINT NOT NULL)").execute(conn)?;
/// # diesel::insert_into(all).values((id.eq(7), views.eq(100))).execute(conn)?;
/// # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
/// use diesel_sharded::{Amount, fold, update};
///
/// update(all.find(7)).set(views.eq(views + 5)).execute(conn)?;
/// // One row, rows by any filter, or the whole table.
/// let folded = fold(all.find(7)).run(conn)?;
/// assert_eq!((folded.parents, folded.moved(views)), (1, Amount::Integer(5)));
/// assert_eq!(all.find(7).select(views).first::<i64>(conn)?, 105);
/// # Ok(())
/// # }
/// ```
///
/// # What it sends
///
/// The parents that have something to fold are found in key order, [`batch`](Fold::batch) by batch. Each batch is one
/// transaction, which is tried again after a conflict:
///
/// ```sql
/// SELECT "videos"."id" FROM (SELECT "videos"."id" FROM "videos" WHERE …) AS "videos"
/// WHERE EXISTS (SELECT 1 FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id"
///               AND ("videos_shards"."views" <> 0 OR "videos_shards"."shard" >= $1))
///   AND "videos"."id" > $2
/// ORDER BY "videos"."id" LIMIT $3;
///
/// BEGIN;                                                     -- READ COMMITTED; SQLite: BEGIN IMMEDIATE, and no FOR UPDATE
/// SELECT 1 FROM "videos" WHERE … ORDER BY "videos"."id" FOR UPDATE;
/// SELECT 1 FROM "videos_shards" AS "videos" WHERE … ORDER BY "videos"."id", "videos"."shard" FOR UPDATE;
/// SELECT CAST(SUM("videos"."views") AS TEXT) FROM "videos_shards" AS "videos" WHERE …;
/// UPDATE "videos" SET "views" = total WHERE …;
/// UPDATE "videos_shards" AS "videos" SET "views" = 0 WHERE … AND ("videos"."views" <> 0);
/// DELETE FROM "videos_shards" AS "videos" WHERE … AND "videos"."shard" >= $1;
/// COMMIT
/// ```
///
/// Counts on the shards of a batch wait for these few statements. Nothing is lost or doubled when it is killed at any of
/// them: the database takes the open batch back, and what was committed is complete. Several processes may fold at once:
/// the parent's row lock lets one at a time at a parent, and the next finds nothing left.
///
/// Shards numbered beyond the [wished number](crate::shard_numbers) are removed when they are empty; a count that was
/// waiting for one creates it again.
///
/// # Effect on the total
/// None. A reader sees a parent before or after its batch, never in between, in one statement with a snapshot of its own.
/// What takes a lock and reads a total in the *same* statement (`.for_update()`, `UPDATE … WHERE` on a total) may wait for
/// a fold and then pair the new base with the old shards, on PostgreSQL and MySQL: lock first, read the total in the next
/// statement.
///
/// # Inside a transaction
/// It is part of the caller's, with savepoints in place of transactions, and holds its locks until the caller's ends. The
/// isolation level is the caller's: above `READ COMMITTED` a busy counter's fold ends in a serialization failure there.
pub fn fold<Source, Kind>(source: Source) -> Fold<Source::Query>
where
    Source: UpdateSource<Kind>,
    Source::Query: IntoUpdateTarget<Table: ShardedTable>,
{
    Fold {
        query: source.into_query(),
        batch: KEYS_IN_A_STATEMENT,
        per_second: None,
        keep_shards: None,
        after: None,
        retry: None,
    }
}

/// A fold that has not run yet; made by [`fold`](fold()).
#[must_use = "a fold moves nothing until it is `.run(conn)`"]
pub struct Fold<Q: IntoUpdateTarget<Table: ShardedTable>> {
    query: Q,
    batch: usize,
    per_second: Option<f64>,
    keep_shards: Option<u16>,
    after: Option<Key<Q>>,
    retry: Option<Retry>,
}

type Key<Q> = <<Q as diesel::associations::HasTable>::Table as ShardedTable>::Key;

impl<Q: IntoUpdateTarget<Table: ShardedTable>> Fold<Q> {
    /// How many parents one transaction folds; 100 by default, from 1 to 1000. More are faster, and make counts on them wait
    /// longer.
    pub fn batch(mut self, parents: usize) -> Self {
        self.batch = parents.clamp(1, 1000);
        self
    }

    /// Sleeps between batches so that no more parents than this are folded in a second. Without effect inside a caller's
    /// transaction, whose locks would be held the longer. No limit by default, nor by zero.
    pub fn at_most_per_second(mut self, parents: u32) -> Self {
        self.per_second = (parents > 0).then_some(f64::from(parents));
        self
    }

    /// Keeps empty shards numbered below this, instead of below the number that this process's writers choose from.
    /// 0 removes every shard that it folded.
    pub fn keep_shards(mut self, number: u16) -> Self {
        self.keep_shards = Some(number);
        self
    }

    /// Folds only parents whose keys come after this one: the [`last`](Folded::last) of a fold that was interrupted.
    pub fn after(mut self, key: Key<Q>) -> Self {
        self.after = Some(key);
        self
    }

    /// Tries each batch again by `policy` instead of the [process-wide](Retry::process_wide) one.
    pub fn retry(mut self, policy: Retry) -> Self {
        self.retry = Some(policy);
        self
    }

    /// Folds to the end.
    ///
    /// # Errors
    /// As [`update`](crate::update())'s. What was folded before the error stays folded, and no total has changed; folding again
    /// goes on with what is left. [`Overflow`](crate::Error::Overflow) where a total does not fit the column.
    pub fn run<Conn, DB, T, W>(self, conn: &mut Conn) -> QueryResult<Folded<T>>
    where
        Q: IntoUpdateTarget<Table = T, WhereClause = W>,
        T: KeyedTable<DB>,
        T::PrimaryKey: Expression,
        W: QueryFragment<DB> + QueryId,
        Conn: LoadConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        self.run_with(conn, |_| ControlFlow::Continue(()))
    }

    /// Folds to the end, or until `progress` breaks off; it is called after every batch with what was folded so far.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_with<Conn, DB, T, W>(
        self,
        conn: &mut Conn,
        mut progress: impl FnMut(&Folded<T>) -> ControlFlow<()>,
    ) -> QueryResult<Folded<T>>
    where
        Q: IntoUpdateTarget<Table = T, WhereClause = W>,
        T: KeyedTable<DB>,
        T::PrimaryKey: Expression,
        W: QueryFragment<DB> + QueryId,
        Conn: LoadConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        let retry = self.retry.unwrap_or_default();
        let filter = self.query.into_update_target().where_clause;
        let keep = self
            .keep_shards
            .unwrap_or_else(|| shard_numbers::known::<T>(T::FIELDS.iter().map(|f| f.name)));
        let pace = match in_transaction(conn)? {
            true => None,
            false => self.per_second,
        };
        let started = Instant::now();
        let mut folded = Folded::nothing(self.after);
        loop {
            let pick = PickFoldable::<T, W> {
                filter: &filter,
                after: folded.last.as_ref().map(T::key_after),
                first_to_remove: i32::from(keep),
                limit: self.batch as i64,
            };
            let keys = T::load_keys(conn, pick)?;
            folded.finished = keys.len() < self.batch;
            if let Some(last) = keys.last().cloned() {
                for keys in in_chunks::<T, DB>(keys) {
                    let batch =
                        held::hold::<T, DB, _, _>(conn, &keys, retry.clone(), |conn, held| {
                            let mut batch = Folded::nothing(None);
                            for (field, moved) in T::FIELDS.iter().zip(&mut batch.moved) {
                                *moved = held.sum(conn, Rows::Shards, field)?;
                            }
                            batch.parents = held.fold(conn)? as u64;
                            batch.shards_removed = held.remove_shards(conn, keep)? as u64;
                            Ok(batch)
                        })?;
                    folded.add(batch);
                }
                folded.last = Some(last);
                if progress(&folded).is_break() {
                    return Ok(folded);
                }
            }
            if folded.finished {
                return Ok(folded);
            }
            if let Some(per_second) = pace {
                let due = Duration::from_secs_f64(folded.parents as f64 / per_second);
                retry.sleep(due.saturating_sub(started.elapsed()));
            }
        }
    }
}

/// What a fold has moved.
pub struct Folded<T: ShardedTable> {
    /// How many parents were folded.
    pub parents: u64,
    /// How many empty shards were removed.
    pub shards_removed: u64,
    /// The key of the last parent that was folded, for [`after`](Fold::after).
    pub last: Option<T::Key>,
    /// Whether nothing was left to fold.
    pub finished: bool,
    /// For each of `T::FIELDS`.
    moved: Vec<Amount>,
}

impl<T: ShardedTable> Folded<T> {
    fn nothing(last: Option<T::Key>) -> Self {
        Folded {
            parents: 0,
            shards_removed: 0,
            last,
            finished: false,
            moved: T::FIELDS
                .iter()
                .map(|field| Amount::zero(field.column_type))
                .collect(),
        }
    }

    /// How much was moved from the shards of a field to its base, over all parents.
    pub fn moved<C: ShardedColumn<Table = T>>(&self, _field: C) -> Amount {
        let fields = T::FIELDS.iter().zip(&self.moved);
        fields
            .filter(|(field, _)| field.name == C::NAME)
            .map(|(_, amount)| amount.clone())
            .next()
            .unwrap_or(Amount::Integer(0)) // every sharded column is a field
    }

    fn add(&mut self, batch: Self) {
        self.parents += batch.parents;
        self.shards_removed += batch.shards_removed;
        for (sum, moved) in self.moved.iter_mut().zip(&batch.moved) {
            sum.add(moved);
        }
    }
}

impl<T: ShardedTable<Key: fmt::Debug>> fmt::Debug for Folded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Folded")
            .field("parents", &self.parents)
            .field("shards_removed", &self.shards_removed)
            .field("last", &self.last)
            .field("finished", &self.finished)
            .field("moved", &self.moved)
            .finish()
    }
}

/// Finds parents that have something to fold; see [`fold`](fold()).
///
/// The derived table carries the parent's name, so that the predicate on its key is valid as it is.
struct PickFoldable<'a, T: ShardedTable, W> {
    filter: &'a W,
    after: Option<T::KeyAfter>,
    first_to_remove: i32,
    limit: i64,
}

impl<T, W, DB> QueryFragment<DB> for PickFoldable<'_, T, W>
where
    DB: ShardedBackend,
    T: KeyedTable<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        push_key::<T, DB>(out.reborrow())?;
        out.push_sql(" FROM (SELECT ");
        push_key::<T, DB>(out.reborrow())?;
        out.push_sql(" FROM ");
        T::TABLE.walk_ast(out.reborrow())?;
        self.filter.walk_ast(out.reborrow())?;
        out.push_sql(") AS ");
        T::TABLE.walk_ast(out.reborrow())?;
        out.push_sql(" WHERE EXISTS (SELECT 1");
        push_from_shards::<T, DB>(out.reborrow())?;
        out.push_sql(" AND (");
        for field in T::FIELDS {
            push_shards_column::<T, DB>(field.name, out.reborrow())?;
            out.push_sql(" <> 0 OR ");
        }
        push_shards_column::<T, DB>(SHARD, out.reborrow())?;
        out.push_sql(" >= ");
        push_bind::<Integer, i32, DB>(&self.first_to_remove, out.reborrow())?;
        out.push_sql("))");
        if let Some(after) = &self.after {
            out.push_sql(" AND ");
            T::push_key_after(after, out.reborrow())?;
        }
        out.push_sql(" ORDER BY ");
        push_key::<T, DB>(out.reborrow())?;
        out.push_sql(" LIMIT ");
        push_bind::<BigInt, i64, DB>(&self.limit, out)
    }
}

impl<T: ShardedTable, W> Query for PickFoldable<'_, T, W> {
    type SqlType = <T::PrimaryKey as Expression>::SqlType;
}

/// Its text changes with `after`; one preparation a batch is little.
impl<T: ShardedTable, W> QueryId for PickFoldable<'_, T, W> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}
