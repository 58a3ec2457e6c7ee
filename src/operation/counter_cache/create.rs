//! The triggers as texts, and created and dropped on a connection.

use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use diesel::result::Error as DieselError;

use crate::backend::{BackendOf, Dialect, ShardedBackend};
use crate::connection::{Link, LoadIo, paired};
use crate::engine::explain;
use crate::model::{ShardedColumn, ShardedTable};
use crate::operation::shards_table::{CreatedBySql, SqlMigration, explain_unfit, install, texts};

use super::cache::CounterCache;
use super::child::ChildTable;
use super::declaration::Declaration;
use super::triggers::unlock;

impl<C, Child, W, Run> CounterCache<C, Child, W, Run>
where
    C: ShardedColumn,
{
    /// The statements that create the triggers, separated by semicolons: `create_sql(&Pg)`.
    ///
    /// The first statement writes no row; it fails where a table or a column is missing. The others form one step on PostgreSQL (a
    /// `DO` block) and SQLite (a `SAVEPOINT`), and stand under one lock on MySQL. They fail if the field has a cache already, so run them
    /// by a program that stops at an error. Names begin with those of
    /// table, columns, parent and field; longer ones, and those of a cache with a condition, end in a hash.
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
    /// [`BindInTrigger`](crate::Error::BindInTrigger) if the condition holds a bound value, [`InvalidShardCount`](crate::Error::InvalidShardCount),
    /// [`OtherSchema`](crate::Error::OtherSchema), [`QueryBuilderError`](diesel::result::Error::QueryBuilderError) if a name cannot be
    /// quoted.
    pub fn create_sql<DB>(&self, backend: &DB) -> QueryResult<String>
    where
        DB: ShardedBackend,
        C::Table: QueryFragment<DB>,
        Child: ChildTable<DB>,
        W: QueryFragment<DB>,
    {
        Ok(self.declaration(backend)?.create())
    }

    /// The statements that drop the triggers of this cache, and none of one with another condition. Totals stay as they are, and nobody
    /// counts any more.
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
    {
        Ok(self.declaration(backend)?.drop())
    }

    /// A migration that creates the triggers, and drops them when reverted. `version` orders it among the application's own
    /// migrations, behind that of the [shards table](crate::ShardsTable); Diesel's own form is a time, `20260101000000`.
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
    impl<C: ShardedColumn, Child, W> CounterCache<C, Child, W, Run>
    where
        C::Table: QueryFragment<DB>,
        Child: ChildTable<DB>,
        W: QueryFragment<DB>,
        W: Sync,
        DB: BackendOf<Conn>,
    {
        /// Creates the triggers; see [`create_sql`](Self::create_sql).
        ///
        /// Rows that are there already are not counted by that. [`verify`](Self::verify)`().repair(conn)` adds them afterwards, while the
        /// application writes:
        ///
        /// 1. `create` waits for the transactions that are writing rows. From its commit on, every writer counts.
        /// 2. The repair reads totals and rows in one snapshot. In it, each row that the triggers have counted is in the total, and any
        ///    other row is from before: the difference is what is missing, exactly.
        ///
        /// # Errors
        /// As [`create_sql`](Self::create_sql); [`MissingShardsTable`](crate::Error::MissingShardsTable);
        /// [`SumOfOtherType`](crate::Error::SumOfOtherType) if the summed column has not the type that its `table!` says;
        /// [`HasCounterCache`](crate::Error::HasCounterCache) if the field has a cache already, this one or another; the database's error. [`AlreadyInTransaction`](diesel::result::Error::AlreadyInTransaction) inside a transaction on MySQL, which
        /// would commit it; an error there may leave some of the triggers, which [`drop`](Self::drop) removes.
        pub fn create(&self, link: Link) -> QueryResult<()> {
            let declared = self.declaration(&link.backend())?;
            create::<C::Table, DB, _, _>(&declared, link).await
        }

        /// Drops the triggers; see [`drop_sql`](Self::drop_sql).
        ///
        /// # Errors
        /// The database's. [`AlreadyInTransaction`](diesel::result::Error::AlreadyInTransaction) inside a transaction on MySQL, which would
        /// commit it.
        pub fn drop(&self, link: Link) -> QueryResult<()> {
            let sql = self.drop_sql(&link.backend())?;
            install(link, &sql, Some(&unlock())).await
        }
    }
}

impl<C, Child, W, Run, DB> CreatedBySql<DB> for CounterCache<C, Child, W, Run>
where
    C: ShardedColumn<Table: QueryFragment<DB>>,
    Child: ChildTable<DB>,
    W: QueryFragment<DB>,
    DB: ShardedBackend,
{
    fn up(&self, backend: &DB) -> QueryResult<Vec<String>> {
        Ok(vec![self.create_sql(backend)?])
    }

    fn down(&self, backend: &DB) -> QueryResult<Vec<String>> {
        Ok(vec![self.drop_sql(backend)?])
    }

    fn clean_up(&self, creating: bool) -> Option<String> {
        creating.then(unlock)
    }

    fn explain(&self, dialect: Dialect, error: DieselError) -> DieselError {
        explain_unfit::<C::Table>(dialect, error)
    }
}

async fn create<T, DB, M, Conn>(
    declared: &Declaration<'_>,
    link: &mut Link<'_, M, Conn>,
) -> QueryResult<()>
where
    T: ShardedTable + QueryFragment<DB>,
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    if let Some(query) = declared.select_sum_type() {
        for sql_type in texts::<DB, _, _>(link, query).await? {
            declared.check_sum(&sql_type)?;
        }
    }
    let sql = declared.create_statements().join(";\n");
    let Err(error) = install(link, &sql, Some(&unlock())).await else {
        return Ok(());
    };
    let tables = &declared.tables;
    let error = tables.explain_cache(&declared.field, link, error).await;
    Err(explain::<T, DB>(&link.backend(), error))
}
