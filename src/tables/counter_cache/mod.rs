//! The number of a table's rows, kept by triggers: [`CounterCache`].
//!
//! The triggers add to the shards of the row that the counted rows belong to, in the transaction that writes them. So the total is
//! exact for every writer, whichever program it is.

mod child;
mod condition;
pub(crate) mod described;
mod literal;
mod triggers;

#[cfg(test)]
mod tests;

use std::marker::PhantomData;

use diesel::dsl::SqlTypeOf;
use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{Query, QueryFragment};
use diesel::result::Error as DieselError;
use diesel::sql_types::BoolOrNullableBool;

use crate::backend::{BackendOf, Dialect, SESSION_SHARDS, ShardedBackend, UNLOCK_CACHES};
use crate::connection::{Blocking, paired};
use crate::engine::explain;
use crate::error::Error;
use crate::model::{FieldType, ShardedColumn, ShardedTable};
use crate::query_builder::{Names, fragments, sql, text_of};
use crate::tables::migrations::{CreatedBySql, SqlMigration};
use crate::tables::shards_table::{explain_unfit, install};
use crate::upkeep::verify::Verify;

use self::described::{Declaration, DescribedCache};

pub use self::child::{ChildTable, One, ReadFrom, RefersTo, SummedInto};
pub use self::literal::{Literal, LiteralValue, literal};

/// A sharded field that holds the number of rows of another table, or a sum over them, and is kept by the database: triggers on that
/// table add to the field's shards.
///
/// ```
/// # mod schema {
/// #     diesel::table! { posts (id) { id -> BigInt, comments_count -> BigInt, } }
/// #     diesel::table! { comments (id) { id -> Integer, post_id -> BigInt, published -> Bool, } }
/// # }
/// # use schema::{comments, posts};
/// # use diesel::prelude::*;
/// # use diesel_sharded::prelude::*;
/// # #[derive(ShardedField)]
/// # struct Post { id: i64, #[sharded] comments_count: i64 }
/// # fn main() -> QueryResult<()> {
/// # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
/// # diesel::sql_query("CREATE TABLE posts (id INTEGER PRIMARY KEY, comments_count BIGINT NOT NULL DEFAULT 0)").execute(conn)?;
/// # diesel::sql_query("CREATE TABLE comments (id INTEGER PRIMARY KEY, post_id BIGINT NOT NULL, published BOOL NOT NULL)").execute(conn)?;
/// # diesel::insert_into(posts::table).values(posts::id.eq(7)).execute(conn)?;
/// # diesel_sharded::ShardsTable::of(posts::table).create(conn)?;
/// # let new = |published: bool| (comments::post_id.eq(7_i64), comments::published.eq(published));
/// use diesel_sharded::CounterCache;
///
/// // Once, or as a migration:
/// let comments_count = CounterCache::of(posts::comments_count)
///     .counts(comments::post_id)
///     .filter(comments::published);
/// comments_count.create(conn)?;
///
/// // From now on nobody has to count:
/// diesel::insert_into(comments::table)
///     .values([new(true), new(true), new(false)])
///     .execute(conn)?;
/// diesel::delete(comments::table.filter(comments::id.eq(1))).execute(conn)?;
/// let total = posts::table.find(7).select(posts::comments_count.total());
/// assert_eq!(total.first::<i64>(conn)?, 1);
/// # Ok(())
/// # }
/// ```
///
/// A table may have several caches, of the same field of different parents or of several fields. Each needs the parent's
/// [shards table](crate::ShardsTable), which [`create`](Self::create) uses at once, and which is not dropped before the cache. A field has
/// one cache, since the repairs of a second one would take away what the first has counted: likes and comments are two fields. So are
/// two foreign keys of one table, such as a duel's challenger and opponent, whose totals a query adds, `challenged.total() + opposed.total()`, and
/// what was paid and received, whose difference is a balance.
///
/// # Counted changes
///
/// A cache counts inserted and deleted rows, and updates that move a row to another parent or change the summed column or what the
/// condition says. It counts them for every program, in the transaction that writes. A row whose key of the parent is NULL, or the key of
/// no parent, counts nothing. A deleted parent takes its shards with it, and its children leave nothing.
///
/// | | PostgreSQL | MySQL, MariaDB | SQLite |
/// |---|---|---|---|
/// | triggers | for each statement, one upsert for each parent, in key order | for each row | for each row |
/// | shard | `pg_backend_pid() % n` | `CONNECTION_ID() % n` | 0 |
/// | a foreign key's `CASCADE` or `SET NULL` deletes or changes rows | counts | does **not** count | counts |
/// | `TRUNCATE` of the rows' table | counts | does **not** count | there is none |
/// | `REPLACE INTO` the rows' table | there is none | counts | counts the replaced row only under `PRAGMA recursive_triggers = ON` |
/// | a parent's key changes, and its rows follow by a cascade | counts | counts | counts |
/// | a parent's key changes, and its rows do not follow | counts | does **not** count | does **not** count |
/// | a parent comes after its rows, or is replaced beside them | does **not** count | does **not** count | does **not** count |
/// | rows of a partition are written under its own name | do **not** count | count | there is none |
/// | a partition is dropped, detached or truncated | does **not** count | does **not** count | there is none |
///
/// The [reference](crate::reference::counter_caches#what-does-not-count) says what to do about each, and about rarer ones.
///
/// MySQL and MariaDB fire no trigger for the action of a foreign key. If the rows go with their *parent*, nothing is lost, since its shards go
/// too. If they go with another table's row (a user's comments), let a trigger of your own delete them, instead of the cascade:
///
/// ```sql
/// CREATE TRIGGER users_delete_comments BEFORE DELETE ON users FOR EACH ROW DELETE FROM comments WHERE user_id = OLD.id
/// ```
///
/// MariaDB (tried: 10.11.19) does not prepare a statement again for new triggers on a table that already had some. Connections that were
/// open before then fail to write that table, with error 1146 about the shards table, and nothing is lost. Create its caches one after the
/// other before the application connects, let the application reconnect, or change the table's definition at the end
/// (`ALTER TABLE comments COMMENT = '…'`).
///
/// A tool that rebuilds the rows' table may drop its triggers (SQLite's documented way to alter a table, online schema changes on
/// MySQL): [`create`](Self::create) them again. [`verify`](Self::verify) shows whether anything is amiss, and repairs it.
///
/// # Locks
///
/// An increment waits for a transaction that counted on the same shard of the same parent and is still open, so transactions of as many
/// sessions as there are [`shards`](Self::shards) run side by side. Two transactions that write rows of several parents in different
/// orders may deadlock, as on any rows: [`retry::transaction`](crate::retry::transaction) retries them. On MySQL an increment also takes
/// a shared lock on the parent, as a foreign key of the rows does.
///
/// # Privileges
///
/// The triggers run with the privileges of the role that created them (PostgreSQL: `SECURITY DEFINER`), so the application needs none on
/// the shards table. That role owns the tables, or may read parents and insert and update shards. On PostgreSQL the tables are found by
/// the search path at creation, whatever a session sets; no temporary table takes their place; row security that would hide a
/// parent is an error instead of a lost increment. Roles that are not trusted may not create objects in the schemas of that path. On MySQL with a
/// binary log, creating triggers needs `log_bin_trust_function_creators = ON` or the privilege `SUPER`.
#[derive(Debug, Clone, Copy)]
#[must_use = "a declaration; `create` or `migration` makes triggers of it"]
pub struct CounterCache<
    C,
    Child = NotCounting,
    Condition = EveryRow,
    Amount = EveryRow,
    Run = Blocking,
> {
    column: C,
    types: PhantomData<fn() -> (Child, Run)>,
    by: &'static [&'static str],
    condition: Condition,
    amount: Amount,
    shards: u16,
}

/// Stands for the table in a [`CounterCache`] before [`counts`](CounterCache::counts) names it.
#[derive(Debug, Clone, Copy)]
pub struct NotCounting;

/// Stands for the condition in a [`CounterCache`] without one, or for the amount: each row counts as one.
#[derive(Debug, Clone, Copy)]
pub struct EveryRow;

fragments! {
    [] EveryRow, no query id [];
    |self, _| Ok(());
}

impl<C: ShardedColumn, Run> CounterCache<C, NotCounting, EveryRow, EveryRow, Run> {
    /// A sharded field that counts rows: `CounterCache::of(posts::comments_count)`.
    pub fn of(column: C) -> Self {
        CounterCache {
            column,
            types: PhantomData,
            by: &[],
            condition: EveryRow,
            amount: EveryRow,
            shards: SESSION_SHARDS,
        }
    }

    /// Counts the rows that name their parent in this column, or in these columns of a composite key: `counts(comments::post_id)`,
    /// `counts((reviews::product, reviews::edition))`.
    pub fn counts<By, Kind>(self, by: By) -> CounterCache<C, By::Child, EveryRow, EveryRow, Run>
    where
        By: RefersTo<C::Table, Kind>,
    {
        let _ = by; // its type has the names
        CounterCache {
            by: By::COLUMNS,
            ..self.with_types(EveryRow, EveryRow)
        }
    }

    /// Counts all rows of a table, for each row of the field's table. An example is the single row that holds a site's numbers:
    /// `CounterCache::of(sites::users_count).counts_all(users::table)`. Each total is the number of all rows.
    ///
    /// A row that is inserted into the field's table later begins at 0, until [`verify`](CounterCache::verify) repairs it. Repair it when
    /// the transactions that were open at its commit have ended, because those do not see the row. On PostgreSQL the role that creates the
    /// triggers needs `UPDATE` on the field's table too, since they share its rows' locks as a foreign key does.
    pub fn counts_all<T: Table>(self, _rows: T) -> CounterCache<C, T, EveryRow, EveryRow, Run> {
        self.with_types(EveryRow, EveryRow)
    }
}

impl<C, Child, A, Run> CounterCache<C, Child, EveryRow, A, Run>
where
    C: ShardedColumn,
    Child: Table,
    A: Clone,
{
    /// Counts only the rows that fulfil a condition on their own columns. A row whose condition is NULL is not counted.
    ///
    /// The condition is written into the triggers, which hold no binds: `comments::published`, `comments::deleted_at.is_null()`,
    /// `comments::status.eq(literal("published"))` with [`literal`](literal()), or [`diesel::dsl::sql`], in which each column is qualified by
    /// its table's name: `comments.published`. It has to give the same answer for the same row at any time: no clock, no other table.
    pub fn filter<W>(self, condition: W) -> CounterCache<C, Child, W, A, Run>
    where
        W: ReadFrom<Child, SqlType: BoolOrNullableBool>,
    {
        let amount = self.amount.clone();
        self.with_types(condition, amount)
    }
}

impl<C, Child, W, Run> CounterCache<C, Child, W, EveryRow, Run>
where
    C: ShardedColumn,
    Child: Table,
    W: Clone,
{
    /// Adds up a column of the rows instead of counting them, or an expression on their own columns:
    /// `CounterCache::of(customers::spent).counts(orders::customer_id).sums(orders::amount)`, or votes,
    /// `.sums(sql::<Integer>("CASE WHEN votes.is_up THEN 1 WHEN NOT votes.is_up THEN -1 END"))`. NULL adds nothing; an `ELSE` would apply
    /// to NULL too.
    ///
    /// An expression is written as a [condition](Self::filter) is. It has to succeed on every row that is counted, or the row's writer fails; MariaDB
    /// 10.11 crashed after a cast that failed in a trigger. What is added up has to have the type that it says: a fraction would be
    /// rounded, and a text that is no number would fail the writer. If it is itself a sharded field, its *base* is added up: the sum then
    /// follows each [`fold`](crate::fold()).
    pub fn sums<A>(self, amount: A) -> CounterCache<C, Child, W, A, Run>
    where
        A: ReadFrom<Child, SqlType: SummedInto<C::SqlType>>,
    {
        let condition = self.condition.clone();
        self.with_types(condition, amount)
    }
}

impl<C, Child, W, A, Run> CounterCache<C, Child, W, A, Run>
where
    C: ShardedColumn,
{
    /// How many shards of a parent the triggers use, from 1 to 4096: sessions are spread over them by their numbers. 16 by default; on
    /// SQLite always one.
    ///
    /// More let more open transactions write rows of one parent side by side; each shard that was used is a row that a total reads,
    /// until a [`fold`](crate::fold()) removes it.
    pub fn shards(mut self, number: u16) -> Self {
        self.shards = number;
        self
    }

    /// The same with other rows, another condition or amount, or for another kind of connection.
    fn with_types<Child2, W2, A2, Run2>(
        &self,
        condition: W2,
        amount: A2,
    ) -> CounterCache<C, Child2, W2, A2, Run2> {
        CounterCache {
            column: self.column,
            types: PhantomData,
            by: self.by,
            condition,
            amount,
            shards: self.shards,
        }
    }

    fn declaration<DB>(&self, backend: &DB) -> QueryResult<Declaration<'static>>
    where
        DB: ShardedBackend,
        C::Table: QueryFragment<DB>,
        Child: ChildTable<DB>,
        W: QueryFragment<DB>,
        A: QueryFragment<DB>,
    {
        let mut table = Child::names(backend)?;
        let described = DescribedCache {
            field: C::NAME.to_owned(),
            child: table.pop().unwrap_or_default(),
            schema: table.pop(),
            by: self.by.iter().map(|name| (*name).to_owned()).collect(),
            amount: text_without_binds(&self.amount, backend)?,
            condition: text_without_binds(&self.condition, backend)?,
            shards: Some(self.shards),
        };
        described.declaration(Names::of::<C::Table>(), backend)
    }

    /// The statements that create the triggers, separated by semicolons: `create_sql(&Pg)`.
    ///
    /// The first statement writes no row; it fails where a table or a column is missing. The others form one step on PostgreSQL (a
    /// `DO` block) and SQLite (a `SAVEPOINT`), and run under one lock on MySQL. They fail if the field has a cache already, so run them
    /// with a program that stops at an error. Names begin with those of table, columns, parent and field; longer ones, and those of a cache
    /// with a condition, end in a hash.
    ///
    /// ```sql
    /// -- PostgreSQL
    /// CREATE FUNCTION "comments_post_id_posts_comments_count"() RETURNS trigger SECURITY DEFINER … AS $$ …
    ///     -- for one row first, which is nearly always enough:
    ///     UPDATE "posts_shards" SET "comments_count" = … + 1 WHERE "posts_shards"."id" = … AND "posts_shards"."shard" = pg_backend_pid() % 16;
    ///     INSERT INTO "posts_shards" ("id", "shard", "comments_count")
    ///     SELECT "posts"."id", pg_backend_pid() % 16, sharded_counts.n
    ///     FROM (SELECT "comments"."post_id" AS key1, COUNT(*) AS n FROM sharded_new AS "comments"
    ///         WHERE ("comments"."published") GROUP BY "comments"."post_id") AS sharded_counts
    ///     JOIN "posts" ON "posts"."id" = sharded_counts.key1
    ///     WHERE sharded_counts.n <> 0 ORDER BY "posts"."id"
    ///     ON CONFLICT ("id", "shard") DO UPDATE SET "comments_count" = "posts_shards"."comments_count" + excluded."comments_count"; …
    /// CREATE TRIGGER "comments_post_id_posts_comments_count_insert" AFTER INSERT ON "comments" REFERENCING NEW TABLE AS sharded_new
    ///     FOR EACH STATEMENT EXECUTE FUNCTION "comments_post_id_posts_comments_count"();
    /// …                          -- _update, _delete; _truncate BEFORE TRUNCATE; _rename BEFORE UPDATE OF "id" ON "posts"
    /// -- MySQL, MariaDB; between LOCK TABLES `comments` WRITE and UNLOCK TABLES
    /// CREATE TRIGGER `comments_post_id_posts_comments_count_insert` AFTER INSERT ON `comments` FOR EACH ROW
    ///     INSERT INTO `posts_shards` … SELECT `posts`.`id`, CONNECTION_ID() % 16, 1 FROM `posts`
    ///     WHERE `posts`.`id` = NEW.`post_id` AND (NEW.`published`) LOCK IN SHARE MODE
    ///     ON DUPLICATE KEY UPDATE `comments_count` = `posts_shards`.`comments_count` + 1
    /// -- SQLite: as MySQL, in BEGIN … END, on shard 0, ON CONFLICT … DO UPDATE SET …
    /// ```
    ///
    /// # Errors
    /// [`BindInTrigger`](crate::Error::BindInTrigger) if the condition holds a bound value, [`QueryInTrigger`](crate::Error::QueryInTrigger) if
    /// it holds a query, as a total is, [`InvalidShardCount`](crate::Error::InvalidShardCount),
    /// [`OtherSchema`](crate::Error::OtherSchema), [`QueryBuilderError`](diesel::result::Error::QueryBuilderError) if a name cannot be
    /// quoted.
    pub fn create_sql<DB>(&self, backend: &DB) -> QueryResult<String>
    where
        DB: ShardedBackend,
        C::Table: QueryFragment<DB>,
        Child: ChildTable<DB>,
        W: QueryFragment<DB>,
        A: QueryFragment<DB>,
    {
        self.declaration(backend)?.create_sql()
    }

    /// The statements that drop the triggers of this cache, but none of a cache with another condition. Totals stay as they are, and rows
    /// are no longer counted.
    ///
    /// ```sql
    /// -- PostgreSQL, in one block; the lock where the role may take it
    /// LOCK TABLE "comments" IN ACCESS EXCLUSIVE MODE;
    /// DROP FUNCTION IF EXISTS "comments_post_id_posts_comments_count"() CASCADE;
    /// -- MySQL, SQLite
    /// DROP TRIGGER IF EXISTS `comments_post_id_posts_comments_count_insert`; …
    /// ```
    ///
    /// # Errors
    /// As [`create_sql`](Self::create_sql).
    pub fn drop_sql<DB>(&self, backend: &DB) -> QueryResult<String>
    where
        DB: ShardedBackend,
        C::Table: QueryFragment<DB>,
        Child: ChildTable<DB>,
        W: QueryFragment<DB>,
        A: QueryFragment<DB>,
    {
        Ok(self.declaration(backend)?.drop_sql())
    }

    /// A migration that creates the triggers, and drops them when reverted. `version` orders it among the application's own
    /// migrations, after that of the [shards table](crate::ShardsTable); Diesel's own form is a time, `20260101000000`.
    pub fn migration(&self, version: impl Into<String>) -> SqlMigration<Self>
    where
        Self: Clone,
    {
        let shards_table = <C::Table as ShardedTable>::SHARDS_TABLE;
        let does = format!("count_{shards_table}_{}", C::NAME);
        SqlMigration::new(version.into(), &does, self.clone())
    }
}

paired! {
    #[awaited(W: Sync, A: Sync)]
    impl<C: ShardedColumn, Child, W, A> CounterCache<C, Child, W, A, Run>
    where
        C::Table: QueryFragment<DB>,
        Child: ChildTable<DB>,
        W: QueryFragment<DB>,
        A: QueryFragment<DB>,
        DB: BackendOf<Conn>,
    {
        /// Creates the triggers; see [`create_sql`](Self::create_sql).
        ///
        /// That does not count the rows that already exist. [`verify`](Self::verify)`().repair(conn)` adds them afterwards, while the
        /// application writes:
        ///
        /// 1. `create` waits for the transactions that are writing rows. From its commit on, every writer counts.
        /// 2. The repair reads totals and rows in one snapshot. In it, each row that the triggers have counted is in the total, and any
        ///    other row is from before: the difference is what is missing, exactly.
        ///
        /// # Errors
        /// As [`create_sql`](Self::create_sql); [`MissingShardsTable`](crate::Error::MissingShardsTable);
        /// [`HasCounterCache`](crate::Error::HasCounterCache) if the field has a cache already, this one or another; the database's error.
        /// [`AlreadyInTransaction`](diesel::result::Error::AlreadyInTransaction) inside a transaction on MySQL, which
        /// would commit it; an error there may leave some of the triggers, which [`drop`](Self::drop) removes.
        pub fn create(&self, link: Link) -> QueryResult<()> {
            let declared = self.declaration(&link.backend())?;
            let sql = declared.create_statements()?.join(";\n");
            let Err(error) = install(link, &sql, Some(UNLOCK_CACHES), None).await else {
                return Ok(());
            };
            let tables = &declared.tables;
            let error = tables.explain_cache(&declared.field, link, error).await;
            Err(explain::<C::Table, DB>(&link.backend(), error))
        }

        /// Drops the triggers; see [`drop_sql`](Self::drop_sql).
        ///
        /// # Errors
        /// The database's. [`AlreadyInTransaction`](diesel::result::Error::AlreadyInTransaction) inside a transaction on MySQL, which would
        /// commit it.
        pub fn drop(&self, link: Link) -> QueryResult<()> {
            let sql = self.drop_sql(&link.backend())?;
            install(link, &sql, Some(UNLOCK_CACHES), None).await
        }
    }
}

impl<C, Child, W, A, Run, DB> CreatedBySql<DB> for CounterCache<C, Child, W, A, Run>
where
    C: ShardedColumn<Table: QueryFragment<DB>>,
    Child: ChildTable<DB>,
    W: QueryFragment<DB>,
    A: QueryFragment<DB>,
    DB: ShardedBackend,
{
    fn up(&self, backend: &DB) -> QueryResult<Vec<String>> {
        Ok(vec![self.create_sql(backend)?])
    }

    fn down(&self, backend: &DB) -> QueryResult<Vec<String>> {
        Ok(vec![self.drop_sql(backend)?])
    }

    fn clean_up(&self, creating: bool) -> Option<String> {
        creating.then(|| UNLOCK_CACHES.to_owned())
    }

    fn explain(&self, dialect: Dialect, error: DieselError) -> DieselError {
        explain_unfit::<C::Table>(dialect, error)
    }
}

/// The text of a condition; `None` if there is none.
fn text_without_binds<DB: ShardedBackend>(
    condition: &impl QueryFragment<DB>,
    backend: &DB,
) -> QueryResult<Option<String>> {
    if condition.is_noop(backend)? {
        return Ok(None);
    }
    let sql = text_of(condition, backend)?;
    let mut shown = String::new();
    backend
        .show(condition, &mut shown)
        .map_err(|error| DieselError::QueryBuilderError(error.into()))?;
    match shown.ends_with("binds: []") {
        true => Ok(Some(sql)),
        false => Err(Error::BindInTrigger { sql }.into()),
    }
}

/// Keys of parents and the numbers that a [`CounterCache`] should have for them, as a query; made by
/// [`recount`](CounterCache::recount).
///
/// ```sql
/// SELECT "comments"."post_id", COUNT(*) FROM "comments" WHERE "comments"."post_id" IS NOT NULL GROUP BY "comments"."post_id"
/// -- all rows: SELECT "sites"."id", (SELECT COUNT(*) FROM "users" WHERE 1 = 1) FROM "sites"
/// -- a sum: COALESCE(SUM("orders"."amount"), 0); PostgreSQL: CAST(… AS BIGINT), AS DOUBLE PRECISION or AS NUMERIC
/// ```
#[derive(Debug, Clone, Copy)]
#[must_use = "a query does nothing until it is loaded"]
pub struct CacheRecount<C, Child, Condition, Amount>(CounterCache<C, Child, Condition, Amount>);

fragments! {
    [
        C: ShardedColumn<Table: QueryFragment<DB>>, Child: ChildTable<DB>, W: QueryFragment<DB>, A: QueryFragment<DB>,
    ] CacheRecount<C, Child, W, A>, no query id [C, Child, W, A];
    |self, mut out| {
        out.unsafe_to_cache_prepared(); // a text of its own for each cache
        let declared = self.0.declaration(out.backend())?;
        sql!(out; declared.recount_sql().as_str())
    };
}

impl<C, Child, W, A> Query for CacheRecount<C, Child, W, A>
where
    C: ShardedColumn,
    <C::Table as Table>::PrimaryKey: Expression,
{
    type SqlType = (
        SqlTypeOf<<C::Table as Table>::PrimaryKey>,
        <C::SqlType as FieldType>::Sum,
    );
}

impl<C, Child, W, A, Conn> RunQueryDsl<Conn> for CacheRecount<C, Child, W, A> {}

impl<C, Child, W, A, Run> CounterCache<C, Child, W, A, Run>
where
    C: ShardedColumn,
    W: Clone,
    A: Clone,
{
    /// The number counted anew, as a query for keys and numbers; see [`CacheRecount`] for the SQL. For
    /// [`verify`](crate::verify()) over some of the parents: it ignores the keys of others.
    pub fn recount(&self) -> CacheRecount<C, Child, W, A> {
        CacheRecount(self.with_types(self.condition.clone(), self.amount.clone()))
    }

    /// Compares all totals with the rows, and repairs them: [`drifts`](Verify::drifts), [`repair`](Verify::repair).
    ///
    /// Rows and increments are written in one transaction, so they agree in every snapshot: any drift is real.
    pub fn verify(&self) -> Verify<C::Table, C, CacheRecount<C, Child, W, A>, Run> {
        Verify::of_query(*<C::Table>::TABLE, self.recount())
    }
}
