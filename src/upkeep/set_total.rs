//! `set_total(..)` and `reset(..)` set totals while increments continue.

use std::fmt::Write;
use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AstPass, IntoUpdateTarget, QueryFragment, QueryId};

use crate::backend::{BackendOf, Binds, Dialect, ShardedBackend, Strength};
use crate::connection::{Blocking, Link, LoadIo, TransactionOptions, paired};
use crate::counting::idempotency::{Idempotent, Request, Requested, once};
use crate::counting::update::UpdateSource;
use crate::engine::{
    KeyedTable, LockedRows, ReadInto, Sums, explain, in_chunks, locking, locking_options,
    retry_loop,
};
use crate::error::Error;
use crate::model::{Amount, FieldType, ShardedColumn, ShardedTable, ShardsColumn, Value, has_sums};
use crate::policy::RetryPolicy;
use crate::query_builder::{KeysAre, Names, RowKind, SelectKeys, Sql, fragments, id, sql, zeros};
use crate::unfit::FieldState;

pub use self::blocking::{reset, set_total};

paired! {
    /// Builds a statement that sets the total of a field to a value: in rows by key, in rows that match a filter, or in all rows.
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
    /// use diesel_sharded::prelude::*;
    /// use diesel_sharded::{reset, set_total, update};
    ///
    /// update(all.find(7)).set(views.eq(views + 5)).execute(conn)?;
    /// assert_eq!(set_total(all.find(7), views, 1000).execute(conn)?, 1);
    /// update(all.find(7)).set(views.eq(views + 1)).execute(conn)?;
    /// assert_eq!(all.find(7).select(views.total()).first::<i64>(conn)?, 1001);
    /// reset(all.find(7)).execute(conn)?; // every sharded field
    /// assert_eq!(all.find(7).select(views.total()).first::<i64>(conn)?, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Statements
    ///
    /// One transaction, which is retried after a conflict:
    ///
    /// ```sql
    /// BEGIN;                                                     -- READ COMMITTED; SQLite: BEGIN IMMEDIATE, and no FOR UPDATE
    /// SELECT "videos"."id" FROM "videos" WHERE … ORDER BY "videos"."id";
    /// SELECT "videos"."id" FROM "videos" WHERE … ORDER BY "videos"."id" FOR UPDATE;          -- 100 keys a statement
    /// SELECT 1 FROM "videos_shards" AS "videos" WHERE … ORDER BY "videos"."id", "videos"."shard" FOR UPDATE;
    /// SELECT "videos"."id" FROM (SELECT "videos"."id" FROM "videos" WHERE …) AS "videos" WHERE …;     -- still in the filter
    /// SELECT base FROM "videos" WHERE …;
    /// UPDATE "videos" SET "views" = $1 WHERE …;
    /// UPDATE "videos_shards" AS "videos" SET "views" = 0 WHERE … AND ("videos"."views" <> 0);
    /// SELECT base, sum of shards FROM "videos" WHERE …;                                     -- has to be what was set
    /// COMMIT
    /// ```
    ///
    /// # Effect on the total
    /// At one instant between the call and its return the total is the value. Increments that commit before that instant are gone, those
    /// that commit after it survive, and no increment is split between the two (the set is linearizable). The set may skip a row that is inserted
    /// meanwhile, and skips a row that stops matching the filter before it is locked. On PostgreSQL, inserts of rows that refer to its rows
    /// delay the set if one always begins before the last has ended.
    ///
    /// The set is one transaction for any number of rows, and increments on all these rows wait until its end. Set a large table in several
    /// parts.
    ///
    /// # Result
    /// `.execute(conn)` returns the number of rows that were set: `Ok(0)` for an id that does not exist. On MySQL, inside a transaction with
    /// the default isolation, it is also `Ok(0)` for an id that the transaction does not see yet.
    ///
    /// # Inside a transaction
    /// The set is part of the caller's transaction, in a savepoint, and holds its locks until that transaction ends. The isolation
    /// level is the caller's. Above `READ COMMITTED` on PostgreSQL, an increment that was committed since the caller first read causes a
    /// serialization failure; if it was the first on its shard, it survives the set. On MySQL, use `READ COMMITTED` for transactions that set
    /// and read totals. At a higher level a filter sees the transaction's snapshot, so the set also changes a row that no longer matches; for
    /// totals see [`fold`](crate::fold()).
    ///
    /// # Errors
    /// Those of [`update`](crate::update()), and [`Error::Unfit`](crate::Error::Unfit) if a row did not accept the value: its column
    /// rounds it or cuts it off, or row security or a trigger prevents the update. No total was set then.
    pub fn set_total<Source, Kind, C>(
        source: Source,
        _column: C,
        total: Value<C>,
    ) -> SetTotal<Source::Query, ToValue<C>, Run>
    where
        Source: UpdateSource<Kind>,
        Source::Query: IntoUpdateTarget<Table = C::Table>,
        C: ShardedColumn,
    {
        SetTotal::of(source, ToValue(total))
    }

    /// Builds a statement that sets the totals of all counted fields to zero. It is a [`set_total`] of all of them at once, with the same
    /// locks, isolation, effect and errors. A field with `#[sharded(max)]` or `#[sharded(min)]` stays as it is.
    ///
    /// ```sql
    /// UPDATE "videos" SET "views" = 0, "likes" = 0 WHERE …;
    /// UPDATE "videos_shards" AS "videos" SET "views" = 0, "likes" = 0 WHERE … AND ("videos"."views" <> 0 OR "videos"."likes" <> 0)
    /// ```
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
    /// # diesel::insert_into(all).values([(id.eq(7), views.eq(100)), (id.eq(8), views.eq(0))]).execute(conn)?;
    /// # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
    /// use diesel_sharded::reset;
    ///
    /// assert_eq!(reset(all.filter(id.ge(7))).execute(conn)?, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn reset<Source, Kind, T>(source: Source) -> SetTotal<Source::Query, ToZero<T>, Run>
    where
        Source: UpdateSource<Kind>,
        Source::Query: IntoUpdateTarget<Table = T>,
        T: ShardedTable,
    {
        SetTotal::of(source, ToZero::new())
    }

    #[awaited(Q: Send, Q::WhereClause: Send + Sync, A: Send + Sync)]
    impl<Q: IntoUpdateTarget, A> SetTotal<Q, A, Run>
    where
        Q::Table: KeyedTable<DB>,
        Q::WhereClause: QueryFragment<DB>,
        Q::WhereClause: QueryId,
        A: Assignment,
        A: QueryFragment<DB>,
        DB: BackendOf<Conn>,
    {
        /// Sets the totals; see [`set_total`].
        ///
        /// # Errors
        /// Those of [`set_total`]. No total was set then.
        pub fn execute(self, link: Link) -> QueryResult<usize> {
            let mut set = self;
            set.carry_out(link).await
        }
    }

    #[awaited(Q: Send, Q::WhereClause: Send + Sync, A: Send + Sync)]
    impl<Q: IntoUpdateTarget, A> Idempotent<SetTotal<Q, A, Run>>
    where
        Q::Table: KeyedTable<DB>,
        Q::WhereClause: QueryFragment<DB>,
        Q::WhereClause: QueryId,
        A: Assignment,
        A: QueryFragment<DB>,
        DB: BackendOf<Conn>,
    {
        /// Sets the totals, unless a request with this key has done so before. Returns the number of rows that were set, now or then. If no
        /// row matched, nothing was done, and the key stays free.
        ///
        /// # Errors
        /// Those of [`SetTotal::execute`](crate::operation::SetTotal::execute),
        /// [`InvalidIdempotencyKey`](Error::InvalidIdempotencyKey) for a key that is empty or too long, and
        /// [`IdempotencyKeyReused`](Error::IdempotencyKeyReused) for a key that came with another request before.
        pub fn execute(self, link: Link) -> QueryResult<usize> {
            let mut set = self.of;
            let request = set.request(&self.key, &link.backend())?;
            let retry = set.retry.clone().unwrap_or_default();
            Ok(once(link, &request, retry, &mut set).await?.0)
        }
    }
}

/// Totals to be set; made by [`set_total`] and [`reset`].
#[derive(Debug)]
#[must_use = "no total is set until it is `.execute(conn)`-d"]
pub struct SetTotal<Q: IntoUpdateTarget, A, Run = Blocking> {
    filter: Q::WhereClause,
    assignment: A,
    retry: Option<RetryPolicy>,
    run: PhantomData<fn() -> Run>,
}

impl<Q: IntoUpdateTarget, A, Run> SetTotal<Q, A, Run> {
    fn of<Source, Kind>(source: Source, assignment: A) -> Self
    where
        Source: UpdateSource<Kind, Query = Q>,
    {
        SetTotal {
            filter: source.into_query().into_update_target().where_clause,
            assignment,
            retry: None,
            run: PhantomData,
        }
    }

    /// Retries by `policy` instead of the [process-wide](RetryPolicy::global) one.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }

    /// Sets the totals only if nothing was done with this key before, by any process. A key, such as a request's id, has 1 to 255 bytes.
    /// Only `.execute(conn)` may follow. See [`idempotency`](crate::idempotency).
    ///
    /// ```
    /// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
    /// # use schema::videos::{self, dsl::{id, videos as all, views}};
    /// # use diesel::prelude::*;
    /// # use diesel_migrations::MigrationHarness;
    /// # #[derive(diesel_sharded::ShardedField)]
    /// # #[diesel(table_name = videos)]
    /// # struct Video { id: i64, #[sharded] views: i64 }
    /// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// # let conn = &mut SqliteConnection::establish(":memory:")?;
    /// # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, views BIGINT NOT NULL)").execute(conn)?;
    /// # diesel::insert_into(all).values((id.eq(7), views.eq(100))).execute(conn)?;
    /// # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
    /// # conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?;
    /// use diesel_sharded::prelude::*;
    /// use diesel_sharded::{set_total, update};
    ///
    /// for _ in 0..2 {
    ///     set_total(all.find(7), views, 1000).idempotency_key("job 17").execute(conn)?;
    ///     update(all.find(7)).set(views.eq(views + 1)).execute(conn)?;
    /// }
    /// assert_eq!(all.find(7).select(views.total()).first::<i64>(conn)?, 1002);
    /// # Ok(())
    /// # }
    /// ```
    pub fn idempotency_key(self, key: impl AsRef<[u8]>) -> Idempotent<Self> {
        Idempotent::new(self, key)
    }
}

impl<Q: IntoUpdateTarget<Table: ShardedTable>, A, Run> SetTotal<Q, A, Run> {
    /// The request that the key identifies.
    fn request<DB>(&self, key: &[u8], backend: &DB) -> QueryResult<Request>
    where
        A: QueryFragment<DB>,
        Q::WhereClause: QueryFragment<DB>,
        DB: ShardedBackend,
    {
        Ok(Request::new(key, |text| {
            write!(text, "set {} ", Q::Table::SHARDS_TABLE)?;
            backend.show(&self.assignment, text)?;
            backend.show(&self.filter, text)
        })?)
    }
}

impl<M, DB, Q, A, T, Run> Requested<M> for SetTotal<Q, A, Run>
where
    Q: IntoUpdateTarget<Table = T, WhereClause: QueryFragment<DB> + QueryId>,
    A: Assignment + QueryFragment<DB>,
    T: KeyedTable<DB>,
    M: LoadIo<Backend = DB>,
    DB: ShardedBackend,
{
    fn transaction(&self, dialect: Dialect) -> TransactionOptions {
        locking_options(dialect)
    }

    /// Returns the number of parents whose totals were set.
    async fn carry_out(&mut self, link: &mut Link<'_, M>) -> QueryResult<usize> {
        self.assignment.check()?;
        let (filter, assignment) = (&self.filter, &self.assignment);
        let locking = locking(link, self.retry.clone().unwrap_or_default())?;
        let set = retry_loop!(link, locking, {
            let pick = SelectKeys::new(Names::of::<T>(), filter);
            let mut set = 0;
            for keys in in_chunks::<T, DB>(T::KeySql::rows(link, pick).await?) {
                let locked =
                    LockedRows::<T, DB>::lock_all(*T::TABLE, link, &keys, Strength::Full).await?;
                let locked = locked.with_shards(link, None, Strength::Full).await?;
                let still = locked.on(link).matching(filter).await?;
                set += assign(link, &still, assignment).await?;
            }
            Ok(set)
        });
        set.map_err(|error| explain::<T, DB>(&link.backend(), error))
    }
}

/// Sets the totals of locked parents. Returns the number of parents.
async fn assign<T, DB, A, M>(
    link: &mut Link<'_, M>,
    locked: &LockedRows<T, DB>,
    assignment: &A,
) -> QueryResult<usize>
where
    T: KeyedTable<DB>,
    DB: ShardedBackend,
    A: Assignment + QueryFragment<DB>,
    M: LoadIo<Backend = DB>,
{
    if locked.is_empty() {
        return Ok(0);
    }
    let set = T::FIELDS.iter();
    let set = set.filter_map(|field| Some((field, assignment.sets(field)?)));
    let (fields, totals): (Vec<_>, Vec<_>) = set.unzip();
    let before = locked.on(link).states(&fields, Sums::Replaced).await?;
    let parent = fields
        .iter()
        .zip(totals)
        .map(|(field, base)| FieldState::Sum {
            base,
            shards: Amount::zero(field.column_type),
        });
    let expected = vec![parent.collect(); before.len()];
    locked.on(link).write(RowKind::Parents, assignment).await?;
    locked.on(link).empty(&fields).await?;
    locked
        .on(link)
        .check(&fields, Sums::Read, &before, &expected)
        .await?;
    Ok(before.len())
}

/// Sets the total of the parent with this `key`. Returns the number of parents: 1, or 0 if there is none.
pub(crate) async fn set_by_key<C, DB, M>(
    link: &mut Link<'_, M>,
    key: <C::Table as ShardedTable>::Key,
    total: Value<C>,
) -> QueryResult<usize>
where
    C: ShardedColumn<Table: KeyedTable<DB>>,
    DB: ShardedBackend + Binds<C::SqlType, Value<C>>,
    M: LoadIo<Backend = DB>,
{
    let keys = KeysAre(vec![C::Table::key_is(key)]);
    let to_total = ToValue::<C>(total);
    let locking = locking(link, RetryPolicy::default())?;
    let set = retry_loop!(link, locking, {
        let locked =
            LockedRows::<C::Table, DB>::lock_all(*C::Table::TABLE, link, &keys, Strength::Full)
                .await?;
        let locked = locked.with_shards(link, None, Strength::Full).await?;
        assign(link, &locked, &to_total).await
    });
    set.map_err(|error| explain::<C::Table, DB>(&link.backend(), error))
}

/// The assignments that [`SetTotal`](crate::operation::SetTotal) writes to the bases, and the fields that they set.
pub trait Assignment {
    /// The total that this field is set to, if the assignment sets it.
    fn sets(&self, field: &ShardsColumn) -> Option<Amount>;

    /// An error if a total must not be set to this value.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// `"views" = $1`
pub struct ToValue<C: Expression<SqlType: FieldType>>(Value<C>);

impl<C: ShardedColumn> Assignment for ToValue<C> {
    fn sets(&self, field: &ShardsColumn) -> Option<Amount> {
        (field.name == C::NAME).then(|| <C::SqlType as FieldType>::amount(&self.0))
    }

    fn check(&self) -> Result<(), Error> {
        if <C::SqlType as FieldType>::is_finite(&self.0) {
            return Ok(());
        }
        Err(Error::overflow("a total is no finite number"))
    }
}

impl<C, DB> QueryFragment<DB> for ToValue<C>
where
    C: ShardedColumn,
    DB: ShardedBackend + Binds<C::SqlType, Value<C>>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let value = |out: AstPass<'_, 'b, DB>| <DB as Binds<C::SqlType, _>>::push(&self.0, out);
        sql!(out; id(C::NAME), " = ", value)
    }
}

/// `"views" = 0, "likes" = 0`, for all counted fields
#[derive(Debug)]
pub struct ToZero<T>(PhantomData<T>);

impl<T: ShardedTable> ToZero<T> {
    fn new() -> Self {
        const {
            assert!(
                has_sums(T::FIELDS),
                "no field of this table is counted: a greatest or least value has no zero"
            );
        }
        ToZero(PhantomData)
    }
}

impl<T: ShardedTable> Assignment for ToZero<T> {
    fn sets(&self, field: &ShardsColumn) -> Option<Amount> {
        field.is_sum().then(|| Amount::zero(field.column_type))
    }
}

fragments! {
    [T: ShardedTable,] ToZero<T>;
    |self, out| zeros(T::FIELDS.iter().filter(|field| field.is_sum())).push(out);
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::videos::dsl::*;
    use crate::{reset, set_total};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::sqlite::Sqlite;

    /// Another release must recognize the requests that this one has executed.
    #[test]
    fn fingerprints_stay_what_they_are() {
        macro_rules! fingerprint {
            ($backend:ty, $set:expr) => {{
                let request = $set.request(b"key", &<$backend>::default());
                request.unwrap().fingerprint
            }};
        }
        let set = || set_total(videos.find(7), views, 1);
        let fingerprints = [
            fingerprint!(Pg, set()),
            fingerprint!(Mysql, set()),
            fingerprint!(Sqlite, set()),
            fingerprint!(Pg, set_total(videos.find(7), views, 2)),
            fingerprint!(Pg, set_total(videos.find(7), likes, 1)),
            fingerprint!(Pg, set_total(videos.find(8), views, 1)),
            fingerprint!(Pg, reset(videos.find(7))),
        ];
        assert_eq!(
            fingerprints,
            [
                -7595149391897824734,
                // MySQL and SQLite quote the same way.
                -851179412046811844,
                -851179412046811844,
                -8523780140646867261,
                -8397146682083393204,
                -7598175247898093731,
                2505673052544258881
            ]
        );
    }
}
