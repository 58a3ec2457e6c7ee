//! The settings of an update beside its rows and changes.

use std::marker::PhantomData;

use diesel::associations::HasTable;
use diesel::prelude::*;

use super::insert::{NoInsert, OrInsert};
use super::returning::{NoReturning, ReturningTotals, SelectTotals};
use super::statement::{UpdateStatement, Values};
#[cfg(doc)]
use crate::error::Error;
use crate::placement::ShardChoice;
use crate::policy::RetryPolicy;

impl<Query, Values, Ret, Ins, Run> UpdateStatement<Query, Values, Ret, Ins, Run> {
    /// Retries by `policy` instead of the [process-wide](RetryPolicy::global) one when the update meets a conflict. It has no
    /// effect inside a transaction, where nothing is retried.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.settings.retry = Some(policy);
        self
    }

    /// Chooses the shard by `choice` instead of the [process-wide](ShardChoice::global) one.
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
    /// # diesel::insert_into(all).values((id.eq(7), views.eq(0))).execute(conn)?;
    /// # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
    /// use diesel_sharded::shard_choice::ShardChoice;
    /// use diesel_sharded::update;
    ///
    /// update(all.find(7)).set(views.eq(views + 1)).shard_choice(ShardChoice::Random).execute(conn)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn shard_choice(mut self, choice: ShardChoice) -> Self {
        self.settings.shard_choice = Some(choice);
        self
    }
}

impl<Query, Values, Ret, Run> UpdateStatement<Query, Values, Ret, NoInsert, Run> {
    /// Inserts `row` if no row matches, and then counts on it: for rows that may not exist yet, such as the downloads of one day.
    /// Racing callers lose no counts: one inserts the row, and the others count on it.
    ///
    /// ```
    /// # mod schema { diesel::table! { downloads (version, day) { version -> Integer, day -> Integer, number -> BigInt, } } }
    /// # use schema::downloads::{self, dsl::*};
    /// # use diesel::prelude::*;
    /// # #[derive(diesel_sharded::ShardedField)]
    /// # #[diesel(primary_key(version, day))]
    /// # struct Download { version: i32, day: i32, #[sharded] number: i64 }
    /// # fn main() -> QueryResult<()> {
    /// # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
    /// # diesel::sql_query("CREATE TABLE downloads (version INTEGER, day INTEGER, number BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (version, day))").execute(conn)?;
    /// # diesel_sharded::ShardsTable::of(downloads::table).create(conn)?;
    /// # let today = 20_000;
    /// use diesel_sharded::update;
    ///
    /// let counted = update(downloads.find((1, today)))
    ///     .set(number.eq(number + 1))
    ///     .or_insert((version.eq(1), day.eq(today)))
    ///     .execute(conn)?;
    /// assert_eq!(counted, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The insert is Diesel's own, sent only if nothing matched, in one transaction with the count (inside the caller's, in
    /// a savepoint):
    ///
    /// ```sql
    /// INSERT INTO "downloads" ("version", "day", "number") VALUES ($1, $2, 0) -- PostgreSQL: ON CONFLICT DO NOTHING
    /// ```
    ///
    /// Its effect on the total: the value of the field that `row` has, 0 without one (whatever the column's default is), and the count.
    ///
    /// # Errors
    /// As without it. Errors of the insert, as Diesel reports them: a unique key that is violated although no row matches, a
    /// value out of range. [`InsertedOther`](Error::InsertedOther) if the row does not match the update's filter.
    pub fn or_insert<I>(self, row: I) -> UpdateStatement<Query, Values, Ret, OrInsert<I>, Run>
    where
        Query: HasTable,
        I: Insertable<Query::Table>,
    {
        UpdateStatement {
            query: self.query,
            values: self.values,
            returning: self.returning,
            insert: OrInsert(row),
            settings: self.settings,
            run: PhantomData,
        }
    }
}

impl<Query, V, Ins, Run> UpdateStatement<Query, Values<V>, NoReturning, Ins, Run>
where
    Query: HasTable,
{
    /// Reads `selection` from the counted rows. Every sharded column in it is read as its total.
    pub fn returning<S, Kind>(
        self,
        selection: S,
    ) -> UpdateStatement<Query, Values<V>, ReturningTotals<S::Output>, Ins, Run>
    where
        S: SelectTotals<Query::Table, Kind>,
    {
        UpdateStatement {
            query: self.query,
            values: self.values,
            returning: ReturningTotals(selection.with_totals()),
            insert: self.insert,
            settings: self.settings,
            run: PhantomData,
        }
    }
}
