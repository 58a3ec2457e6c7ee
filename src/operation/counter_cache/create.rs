//! The triggers as texts, and created and dropped on a connection.

use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use diesel::result::Error as DieselError;

use crate::backend::{BackendOf, Dialect, ShardedBackend};
#[cfg(feature = "async")]
use crate::connection::BoxFuture;
use crate::connection::{Io, Link, TransactionOptions, begin, in_any_transaction, now, told};
use crate::engine::explain;
use crate::model::ShardedColumn;

use super::cache::CounterCache;
use super::child::ChildTable;
use super::triggers::UNLOCK;

impl<C, Child, W> CounterCache<C, Child, W>
where
    C: ShardedColumn,
{
    /// The statements that create the triggers, separated by semicolons: `create_sql(&Pg)`.
    ///
    /// The first statement writes no row; it fails where a table or a column is missing. The others form one step on PostgreSQL (a
    /// `DO` block) and SQLite (a `SAVEPOINT`), and stand under one lock on MySQL. Names begin with those of table, columns, parent and field; longer ones end in
    /// a hash.
    ///
    /// ```sql
    /// -- PostgreSQL
    /// CREATE FUNCTION "comments_post_id_posts_comments_count"() RETURNS trigger SECURITY DEFINER … AS $$ …
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
    ///     INSERT INTO `posts_shards` … SELECT `posts`.`id`, CONNECTION_ID() % 16, sharded_counts.n
    ///     FROM (SELECT … FROM (SELECT NEW.`id` AS `id`, …) AS `comments` WHERE (`comments`.`published`)) AS sharded_counts
    ///     STRAIGHT_JOIN `posts` ON … ON DUPLICATE KEY UPDATE `comments_count` = `posts_shards`.`comments_count` + sharded_counts.n
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

    /// The statements that drop the triggers. Totals stay as they are, and nobody counts any more.
    ///
    /// ```sql
    /// DROP FUNCTION IF EXISTS "comments_post_id_posts_comments_count"() CASCADE        -- PostgreSQL
    /// DROP TRIGGER IF EXISTS `comments_post_id_posts_comments_count_insert`; …         -- MySQL, SQLite
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
    /// As [`create_sql`](Self::create_sql); [`MissingShardsTable`](crate::Error::MissingShardsTable); the database's error, also if the
    /// triggers exist. [`AlreadyInTransaction`](diesel::result::Error::AlreadyInTransaction) inside a transaction on MySQL, which
    /// would commit it; an error there may leave some of the triggers, which [`drop`](Self::drop) removes.
    pub fn create<Conn, DB>(&self, conn: &mut Conn) -> QueryResult<()>
    where
        Conn: Connection<Backend = DB>,
        DB: BackendOf<Conn>,
        C::Table: QueryFragment<DB>,
        Child: ChildTable<DB>,
        W: QueryFragment<DB>,
    {
        let backend = DB::backend_of(conn);
        let sql = self.declaration(&backend)?.create_statements().join(";\n");
        let created = now(install(&mut Link::blocking(conn), &sql));
        created.map_err(|error| explain::<C::Table, DB>(&backend, error))
    }

    /// Drops the triggers; see [`drop_sql`](Self::drop_sql).
    ///
    /// # Errors
    /// The database's. [`AlreadyInTransaction`](diesel::result::Error::AlreadyInTransaction) inside a transaction on MySQL, which would
    /// commit it.
    pub fn drop<Conn, DB>(&self, conn: &mut Conn) -> QueryResult<()>
    where
        Conn: Connection<Backend = DB>,
        DB: BackendOf<Conn>,
        C::Table: QueryFragment<DB>,
        Child: ChildTable<DB>,
        W: QueryFragment<DB>,
    {
        let sql = self.drop_sql(&DB::backend_of(conn))?;
        now(install(&mut Link::blocking(conn), &sql))
    }

    /// As [`create`](Self::create), on a connection of `diesel_async`.
    ///
    /// # Errors
    /// As there.
    #[cfg(feature = "async")]
    pub fn create_async<'c, Conn, DB>(&self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<()>>
    where
        Conn: diesel_async::AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
        C::Table: QueryFragment<DB>,
        Child: ChildTable<DB>,
        W: QueryFragment<DB>,
    {
        let backend = DB::backend_of(conn);
        let declared = self.declaration(&backend);
        let sql = declared.map(|declared| declared.create_statements().join(";\n"));
        Box::pin(async move {
            let sql = sql?;
            let created = install(&mut Link::awaited(conn), &sql).await;
            created.map_err(|error| explain::<C::Table, DB>(&backend, error))
        })
    }

    /// As [`drop`](Self::drop), on a connection of `diesel_async`.
    ///
    /// # Errors
    /// As there.
    #[cfg(feature = "async")]
    pub fn drop_async<'c, Conn, DB>(&self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<()>>
    where
        Conn: diesel_async::AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
        C::Table: QueryFragment<DB>,
        Child: ChildTable<DB>,
        W: QueryFragment<DB>,
    {
        let sql = self.drop_sql(&DB::backend_of(conn));
        Box::pin(async move { install(&mut Link::awaited(conn), &sql?).await })
    }
}

/// Runs statements as one step: in a transaction, or in a savepoint of the caller's. MySQL commits at each of them, and so refuses a
/// transaction around them.
pub(super) async fn install<M, Conn>(link: &mut Link<'_, M, Conn>, sql: &str) -> QueryResult<()>
where
    M: Io<Conn>,
{
    let dialect = link.dialect();
    if dialect == Dialect::Mysql && in_any_transaction(link).await? {
        return Err(DieselError::AlreadyInTransaction);
    }
    link.enter();
    let done = match dialect {
        Dialect::Mysql => {
            let done = link.batch_execute(sql).await;
            if done.is_err() {
                let _ = link.batch_execute(UNLOCK).await; // the failure is what is reported
            }
            done
        }
        _ => enclosed(link, sql).await,
    };
    link.leave();
    done.map_err(|error| told(dialect, error))
}

async fn enclosed<M, Conn>(link: &mut Link<'_, M, Conn>, sql: &str) -> QueryResult<()>
where
    M: Io<Conn>,
{
    let begun = begin(link, link.dialect(), TransactionOptions::default()).await?;
    let done = link.batch_execute(sql).await;
    begun.end(link, done).await
}
