//! The shards table: its `CREATE TABLE` and `DROP TABLE`, as text and as a Diesel migration.

mod caches;
mod create;
mod drop;
mod function;
mod integrity;
mod unfit_text;
mod view;

#[cfg(test)]
mod tests;

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use diesel::result::Error as DieselError;
use diesel::sql_types::{Nullable, Text};

use crate::backend::{BackendOf, CLEAN_UP_DROP, Dialect, Integrity, Quoted, ShardedBackend};
use crate::conflict::ErrorClass;
use crate::connection;
use crate::connection::{
    Blocking, Link, LoadIo, TransactionOptions, begin, in_any_transaction, paired,
};
use crate::engine::{
    KEYS_IN_A_STATEMENT, KeyedTable, LockedRows, Parents, ReadInto, RetryLoop, explain,
    explain_keys, locking, retry_loop,
};
use crate::error::Error;
use crate::model::{ShardedTable, shows};
use crate::policy::RetryPolicy;
use crate::query_builder::{Names, copies, fragments, sql, statements, text_of};

use super::migrations::{CreatedBySql, SqlMigration};

use self::create::{explain_key, refuse_short_key};
use self::unfit_text::told;

pub use self::caches::{FoundCache, found_caches};
pub use self::create::declared_type;
pub use self::integrity::MissingTriggers;
pub(crate) use self::integrity::check_triggers;
pub(crate) use self::unfit_text::explain_unfit;
pub use self::view::TotalsView;
pub use self::view::{create_view_sql, drop_view_sql};

/// The shards table of `T`, as the derive describes its parent: one column for each column of the key, `shard`, and one for each
/// sharded field.
///
/// ```sql
/// -- PostgreSQL; the fillfactor leaves room on the page for new versions of a row
/// CREATE TABLE "videos_shards" (
///     "id" BIGINT NOT NULL,
///     "shard" INTEGER NOT NULL,
///     "views" BIGINT NOT NULL DEFAULT 0,
///     PRIMARY KEY ("id", "shard"),
///     FOREIGN KEY ("id") REFERENCES "videos" ("id") ON UPDATE CASCADE ON DELETE CASCADE
/// ) WITH (fillfactor = 90)
/// ```
///
/// A key of text takes the parent's type and collation on PostgreSQL, from
/// `CREATE TABLE .. AS SELECT "name" FROM "pages" WITH NO DATA`; `#[sharded(sql_type = "..")]` overrides both.
///
/// MySQL: `ENGINE = InnoDB`; an unsigned field is a `DECIMAL(20, 0)` here, since one shard alone may be negative. SQLite:
/// `WITHOUT ROWID`, a `CHECK` of the range of integers, and triggers that delete and rename shards with their parent and let a
/// new row begin without shards. (Foreign keys are off there unless a connection turns them on, and a deleted row's id may be
/// reused.) SQLite's documented way to rebuild the parent's table drops these triggers with the old table; a
/// [`fold`](crate::fold()) then fails with [`MissingTriggers`](crate::Error::MissingTriggers), which contains the statements that
/// create them.
///
/// A row that is replaced by `REPLACE INTO` starts without shards, except on MySQL from 9.6 on (tried: 9.7.4), which replaces it
/// without the foreign key's actions: `DELETE` and `INSERT` there, or the new row inherits the old one's shards. On SQLite
/// a row that has shards cannot be replaced through another unique column, nor its table be dropped, where foreign keys are enforced: use
/// `ON CONFLICT DO UPDATE`, and rebuild the parent's table without them. Without enforced foreign keys, such a row leaves its shards
/// behind. No other row inherits them, but the shards table cannot be dropped until they are deleted.
///
/// ```
/// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
/// # use schema::videos;
/// # use diesel::prelude::*;
/// # #[derive(diesel_sharded::ShardedField)]
/// # struct Video { id: i64, #[sharded] views: i64 }
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// # let conn = &mut SqliteConnection::establish(":memory:")?;
/// # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, views BIGINT NOT NULL)").execute(conn)?;
/// use diesel_migrations::MigrationHarness;
/// use diesel_sharded::ShardsTable;
///
/// let shards_table = ShardsTable::of(videos::table);
/// conn.run_pending_migrations(shards_table.migration("20260101000000"))?;
/// # assert!(shards_table.create_sql(&diesel::sqlite::Sqlite)?.contains("CREATE TABLE `videos_shards`"));
/// # conn.revert_migration(&shards_table.migration("20260101000000"))?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a description of a table; `create` or `migration` makes one of it"]
pub struct ShardsTable<T, Run = Blocking> {
    integrity: Integrity,
    types: PhantomData<fn() -> (T, Run)>,
}

impl<T: ShardedTable, Run> ShardsTable<T, Run> {
    /// The shards table of a table with sharded fields: `ShardsTable::of(videos::table)`.
    pub const fn of(_table: T) -> Self {
        ShardsTable {
            integrity: Integrity::ForeignKey,
            types: PhantomData,
        }
    }

    /// Without a foreign key: triggers take its place. For servers that refuse foreign keys, such as MySQL Group Replication whose
    /// nodes all accept writes.
    ///
    /// The triggers do what the foreign key does, for the same price: they delete the shards of a row with the row, create none for a
    /// row that is not there, and on PostgreSQL rename and truncate them with their rows. There a trigger sees only the snapshot of its
    /// transaction: above `READ COMMITTED` it refuses to rename, and a deleted row may leave behind a shard that was created after the
    /// snapshot ([`remove_orphans`](Self::remove_orphans)). MySQL differs:
    ///
    /// - The key of a row that has shards cannot be changed: the update fails with 1242, `Subquery returns more than 1 row`.
    ///   `fold(videos.find(7)).keep_shards(0)` removes the shards first.
    /// - A statement that deletes or inserts rows may not read their totals (1442): read the keys first.
    /// - A new row removes shards that it finds under its key. That locks the gap where they would be until the transaction ends,
    ///   unless it is `READ COMMITTED`.
    /// - `TRUNCATE` fires no trigger, and a node of a cluster may create a shard while another one deletes its row.
    ///   [`remove_orphans`](Self::remove_orphans) finds both.
    /// - The triggers run as the user who creates them, and nobody compares the type of the key with the parent's.
    ///
    /// ```sql
    /// -- PostgreSQL, in one block with the table
    /// CREATE FUNCTION "videos_shards_keep"() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER …;
    /// CREATE TRIGGER "videos_shards_create" AFTER INSERT ON "videos_shards" …;      -- locks the parent, or fails
    /// CREATE TRIGGER "videos_shards_delete" AFTER DELETE ON "videos" …;             -- and "…_rename", "…_truncate"
    /// -- MySQL, MariaDB
    /// CREATE TRIGGER `videos_shards_create` BEFORE INSERT ON `videos_shards` …;     -- locks the parent, or fails
    /// CREATE TRIGGER `videos_shards_delete` AFTER DELETE ON `videos` FOR EACH ROW
    ///     DELETE FROM `videos_shards` WHERE `videos_shards`.`id` = OLD.`id`;        -- and `…_insert`, `…_rename`
    /// ```
    ///
    /// SQLite has its triggers in either case. A [`drop`](Self::drop) finds the triggers and drops them too, on MySQL last. There the
    /// parent's rows cannot be inserted or deleted for a moment. MySQL shows them only to a role with the privilege `TRIGGER`. On MySQL a
    /// [`drop_sql`](Self::drop_sql) or [`migration`](Self::migration) has to be this value's.
    ///
    /// ```
    /// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
    /// # use schema::videos;
    /// # #[derive(diesel_sharded::ShardedField)]
    /// # struct Video { id: i64, #[sharded] views: i64 }
    /// use diesel_sharded::ShardsTable;
    ///
    /// let shards_table = ShardsTable::of(videos::table).without_foreign_key();
    /// assert!(!shards_table.create_sql(&diesel::sqlite::Sqlite)?.contains("FOREIGN KEY"));
    /// # diesel::QueryResult::Ok(())
    /// ```
    pub const fn without_foreign_key(self) -> Self {
        let integrity = Integrity::Triggers;
        ShardsTable { integrity, ..self }
    }

    /// Without a foreign key and without triggers, for servers that refuse both, such as PlanetScale and Aurora DSQL. SQLite keeps its
    /// triggers.
    ///
    /// The application then deletes the shards of a row with the row, and never changes a key. A new row with a used key begins with the
    /// amounts that were left, unless [`remove_orphans`](Self::remove_orphans) removes them before that.
    ///
    /// ```
    /// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
    /// # use schema::videos;
    /// # #[derive(diesel_sharded::ShardedField)] struct Video { id: i64, #[sharded] views: i64 }
    /// use diesel_sharded::ShardsTable;
    ///
    /// let shards = ShardsTable::of(videos::table).without_triggers();
    /// let sql = shards.create_sql(&diesel::sqlite::Sqlite)?;
    /// # assert!(!sql.contains("FOREIGN KEY")); diesel::QueryResult::Ok(())
    /// ```
    pub const fn without_triggers(self) -> Self {
        let integrity = Integrity::Application;
        ShardsTable { integrity, ..self }
    }

    /// The statements that create it, separated by semicolons: `create_sql(&Pg)`.
    ///
    /// Several statements form one step: on SQLite in a `SAVEPOINT`, on PostgreSQL in a `DO` block.
    ///
    /// # Errors
    /// [`QueryBuilderError`](diesel::result::Error::QueryBuilderError) if a name cannot be quoted.
    pub fn create_sql<DB>(&self, backend: &DB) -> QueryResult<String>
    where
        DB: ShardedBackend,
        T: QueryFragment<DB>,
    {
        Ok(self.quoted(backend)?.create_sql())
    }

    /// The statements that fold every shard into its parent and then drop the shards table: no increment is lost. They hold a lock on
    /// both tables, so no increment can arrive in between. A later increment fails with
    /// [`MissingShardsTable`](crate::Error::MissingShardsTable).
    ///
    /// The text checks itself: each base must be its earlier value plus the sum of its shards, and each shard must have a row. If
    /// a trigger, a policy, or a column that rounds or cuts prevents that, or the triggers of a [`CounterCache`](crate::CounterCache) would
    /// miss the table, the text fails with an error that names a row or a trigger, and both tables stay as they were. That holds inside a
    /// transaction and outside, in Diesel's migrations, `psql`, `mariadb` and even in `sqlite3`, which continues after an error.
    ///
    /// ```sql
    /// -- PostgreSQL, in one block
    /// DO $diesel_sharded$ … BEGIN
    ///     LOCK TABLE "videos", "videos_shards" IN ACCESS EXCLUSIVE MODE;
    ///     CREATE TEMPORARY TABLE diesel_sharded_totals ON COMMIT DROP AS SELECT …;  -- keys, bases, and sums of shards
    ///     UPDATE "videos" SET "views" = base + sum …;
    ///     IF … THEN RAISE EXCEPTION …;                           -- "videos_shards, key 7: 100 + 10 gave 100"
    ///     DROP TABLE "videos_shards";
    /// END $diesel_sharded$
    /// -- MySQL
    /// SET autocommit = 0; LOCK TABLES `videos` WRITE, `videos_shards` WRITE;
    /// CREATE TEMPORARY TABLE …; UPDATE IGNORE `videos` …; DELETE FROM `videos_shards`;
    /// COMMIT;                                                    -- or ROLLBACK
    /// DROP TABLE `videos_shards`; UNLOCK TABLES; SET autocommit = …;
    /// CREATE TEMPORARY TABLE …                                   -- fails if there was a ROLLBACK
    /// -- SQLite
    /// SAVEPOINT diesel_sharded; ALTER TABLE `videos_shards` RENAME TO `diesel_sharded_dropped`;
    /// …; INSERT OR ROLLBACK INTO …; DROP TABLE `diesel_sharded_dropped`; RELEASE diesel_sharded
    /// ```
    ///
    /// # Errors
    /// As [`create_sql`](Self::create_sql).
    pub fn drop_sql<DB>(&self, backend: &DB) -> QueryResult<String>
    where
        DB: ShardedBackend,
        T: QueryFragment<DB>,
    {
        Ok(self.quoted(backend)?.drop_sql())
    }

    /// The statement that creates a function for the application's own triggers: `videos_shards_add(id, views, likes)` adds to the fields
    /// of a row, on one of 16 shards by the session's number.
    ///
    /// ```sql
    /// -- PostgreSQL: a function, true if there is such a row. In a trigger's function:
    /// PERFORM videos_shards_add(NEW.video_id, likes => 1); -- 0 for the other fields
    /// CALL videos_shards_add(NEW.video_id, 0, 1); -- MySQL, MariaDB: a procedure, with an amount for each field in their order
    /// -- SQLite has neither: in a trigger, this statement
    /// INSERT INTO videos_shards (id, shard, likes) SELECT id, 0, 1 FROM videos WHERE id = NEW.video_id
    ///     ON CONFLICT (id, shard) DO UPDATE SET likes = likes + excluded.likes;
    /// ```
    ///
    /// Its name is that of the shards table and `_add`; a composite key has a parameter for each column. Amounts are of the fields' own types
    /// (`BIGINT`, `DOUBLE`, `NUMERIC`). A row that does not exist counts nothing. It runs with the privileges of its caller on PostgreSQL, and
    /// those of its creator on MySQL.
    ///
    /// ```
    /// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
    /// # use schema::videos;
    /// # #[derive(diesel_sharded::ShardedField)]
    /// # struct Video { id: i64, #[sharded] views: i64 }
    /// use diesel_sharded::{Error, ShardsTable};
    ///
    /// let none = ShardsTable::of(videos::table).add_function_sql(&diesel::sqlite::Sqlite);
    /// assert!(matches!(Error::from(none.unwrap_err()), Error::NoStoredFunctions));
    /// ```
    ///
    /// # Errors
    /// [`NoStoredFunctions`](Error::NoStoredFunctions) on SQLite; as [`create_sql`](Self::create_sql).
    pub fn add_function_sql<DB>(&self, backend: &DB) -> QueryResult<String>
    where
        DB: ShardedBackend,
        T: QueryFragment<DB>,
    {
        self.quoted(backend)?.add_function_sql()
    }

    /// The statement that drops this function.
    ///
    /// ```sql
    /// DROP FUNCTION IF EXISTS "videos_shards_add"          -- PostgreSQL; MySQL: DROP PROCEDURE
    /// ```
    ///
    /// # Errors
    /// As [`add_function_sql`](Self::add_function_sql).
    pub fn drop_function_sql<DB>(&self, backend: &DB) -> QueryResult<String>
    where
        DB: ShardedBackend,
        T: QueryFragment<DB>,
    {
        self.quoted(backend)?.drop_function_sql()
    }

    /// A migration that creates the table, and folds and drops it when reverted. `version` orders it among the application's own
    /// migrations; Diesel's own form is a time, `20260101000000`.
    pub fn migration(&self, version: impl Into<String>) -> SqlMigration<Self> {
        let does = format!("create_{}", T::SHARDS_TABLE);
        SqlMigration::new(version.into(), &does, *self)
    }

    fn quoted<DB>(&self, backend: &DB) -> QueryResult<Quoted<'static>>
    where
        DB: ShardedBackend,
        T: QueryFragment<DB>,
    {
        Quoted::new(Names::<DB>::of::<T>(), self.integrity, backend)
    }
}

paired! {
    impl<T: ShardedTable> ShardsTable<T, Run>
    where
        T: QueryFragment<DB>,
        DB: BackendOf<Conn>,
    {
        /// Creates it.
        ///
        /// # Errors
        /// [`KeyTypeMismatch`](Error::KeyTypeMismatch) if MySQL does not let its key refer to the parent's, or could cut it; else the database's
        /// error, also if the table already exists, or if the parent is a view, which accepts neither foreign keys nor triggers. A failure
        /// leaves no new table. [`AlreadyInTransaction`](DieselError::AlreadyInTransaction) inside a transaction on MySQL, which would
        /// commit it.
        pub fn create(&self, link: Link) -> QueryResult<()> {
            let quoted = self.quoted(&link.backend())?;
            refuse_short_key(&quoted, link).await?;
            let statements = quoted.create_statements();
            // MySQL has no transaction for them.
            let (table, triggers) = match quoted.dialect.commits_definitions() {
                true => statements.split_at(1),
                false => (&statements[..], &[][..]),
            };
            if let Err(error) = install(link, &table.join(";\n"), None, None).await {
                return Err(explain_key(&quoted, link, error).await);
            }
            if triggers.is_empty() {
                return Ok(());
            }
            let undo = quoted.undo_create().join("; ");
            install(link, &triggers.join(";\n"), Some(&undo), None).await
        }

        /// Folds every shard into its parent and drops it; see [`drop_sql`](Self::drop_sql).
        ///
        /// # Errors
        /// [`HasCounterCache`](Error::HasCounterCache) before its caches are dropped; [`Unfit`](Error::Unfit) if a row does not accept the
        /// values of its shards, [`Overflow`](Error::Overflow), or the database's error. No total has changed then.
        /// [`AlreadyInTransaction`](diesel::result::Error::AlreadyInTransaction) inside
        /// a transaction on MySQL, which would commit it. On PostgreSQL a transaction around it has to be `READ COMMITTED`.
        pub fn drop(&self, link: Link) -> QueryResult<()> {
            let mut quoted = self.quoted(&link.backend())?;
            quoted.find_triggers(link).await?;
            let dialect = quoted.dialect;
            let dropped = install(link, &quoted.drop_sql(), Some(CLEAN_UP_DROP), Some(told::<T>)).await;
            let explained = |error| explain_unfit::<T>(dialect, error);
            dropped.map_err(explained).map_err(|source| match dialect.classify(&source) {
                ErrorClass::Overflow => Error::Overflow { source }.into(),
                _ => explain::<T, DB>(&link.backend(), source),
            })
        }
    }

    impl<T: ShardedTable> ShardsTable<T, Run>
    where
        T: KeyedTable<DB>,
        DB: BackendOf<Conn>,
    {
        /// Removes the shards whose row does not exist, and returns how many there were.
        ///
        /// A foreign key leaves none. Without it a deleted row may leave some; see [`without_foreign_key`](Self::without_foreign_key) and
        /// [`without_triggers`](Self::without_triggers). They belong to no total, but a new row with their key may begin with their
        /// amounts, and [`drop`](Self::drop) refuses a table that has some.
        ///
        /// It may run beside any writers: in batches of 100 keys, each in a transaction of its own that is retried after a conflict. The
        /// shards are locked before their rows are looked for, so no increment of a row that is being inserted is removed.
        ///
        /// ```sql
        /// SELECT "videos"."id" FROM (SELECT DISTINCT "videos"."id" FROM "videos_shards" AS "videos" WHERE NOT EXISTS (…) …) AS "videos"
        /// SELECT … FROM "videos_shards" AS "videos" WHERE … FOR NO KEY UPDATE                   -- not on SQLite
        /// DELETE FROM "videos_shards" AS "videos" WHERE … AND NOT EXISTS (SELECT 1 FROM "videos" AS "diesel_sharded_parents" …)
        /// ```
        ///
        /// ```
        /// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
        /// # use schema::videos;
        /// # use diesel::connection::SimpleConnection;
        /// # use diesel::prelude::*;
        /// # #[derive(diesel_sharded::ShardedField)]
        /// # struct Video { id: i64, #[sharded] views: i64 }
        /// # let conn = &mut SqliteConnection::establish(":memory:")?;
        /// # conn.batch_execute("CREATE TABLE videos (id INTEGER PRIMARY KEY, views BIGINT NOT NULL)")?;
        /// use diesel_sharded::ShardsTable;
        ///
        /// let shards_table = ShardsTable::of(videos::table).without_triggers();
        /// shards_table.create(conn)?;
        /// # conn.batch_execute("INSERT INTO videos_shards (id, shard, views) VALUES (7, 0, 1), (7, 1, 1)")?;
        /// assert_eq!(shards_table.remove_orphans(conn)?, 2);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        ///
        /// # Errors
        /// [`Unfit`](crate::Error::Unfit) where PostgreSQL's row security may hide rows from this role;
        /// [`ConflictPersisted`](crate::Error::ConflictPersisted); else the database's error. The batches before stay removed.
        pub fn remove_orphans(&self, link: Link) -> QueryResult<usize> {
            remove_orphans(*T::TABLE, link).await
        }
    }
}

impl<T, Run, DB> CreatedBySql<DB> for ShardsTable<T, Run>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    fn up(&self, backend: &DB) -> QueryResult<Vec<String>> {
        Ok(vec![self.create_sql(backend)?])
    }

    fn down(&self, backend: &DB) -> QueryResult<Vec<String>> {
        Ok(vec![self.drop_sql(backend)?])
    }

    fn clean_up(&self, creating: bool) -> Option<String> {
        (!creating).then(|| CLEAN_UP_DROP.to_owned())
    }

    fn explain(&self, dialect: Dialect, error: DieselError) -> DieselError {
        explain_unfit::<T>(dialect, error)
    }
}

copies!([T, Run] ShardsTable<T, Run>);

shows!([T: ShardedTable, Run] ShardsTable<T, Run>: |self| ShardsTable { name: T::SHARDS_TABLE.as_str() } finish_non_exhaustive);

impl<'a> Quoted<'a> {
    /// The names of a table in statements of a backend. They give the SQL that creates and drops the table and what belongs to it.
    ///
    /// # Errors
    /// If a name cannot be quoted.
    pub fn new<DB: ShardedBackend>(
        names: Names<'a, DB>,
        integrity: Integrity,
        backend: &DB,
    ) -> QueryResult<Self> {
        let parent = text_of(names.parent, backend)?;
        let columns = [names.key, names.fields];
        Quoted::of(
            backend.dialect(),
            parent,
            names.shards_table,
            columns,
            integrity,
        )
    }
}

/// Executes statements that create or drop something, as one step: in a transaction, or outside any on MySQL, which has none for them.
/// `clean_up` undoes there what a failure leaves behind. `unfit` names the row that a failure is about, by the text that MySQL and SQLite
/// keep for a question.
pub(crate) async fn install<M: LoadIo>(
    link: &mut Link<'_, M>,
    sql: &str,
    clean_up: Option<&str>,
    unfit: Option<fn(&str) -> Option<DieselError>>,
) -> QueryResult<()> {
    link.enter();
    let done = in_one(link, sql, clean_up, unfit).await;
    link.leave();
    let dialect = link.dialect();
    done.map_err(|error| connection::told(dialect, error))
}

async fn in_one<M: LoadIo>(
    link: &mut Link<'_, M>,
    sql: &str,
    clean_up: Option<&str>,
    unfit: Option<fn(&str) -> Option<DieselError>>,
) -> QueryResult<()> {
    let dialect = link.dialect();
    let begun = match dialect.commits_definitions() {
        true if in_any_transaction(link).await? => {
            return Err(DieselError::AlreadyInTransaction); // the next statements would commit it
        }
        true => None,
        false => {
            let options = TransactionOptions {
                isolation: unfit.and_then(|_| dialect.locking_isolation()),
                ..Default::default()
            };
            Some(begin(link, options).await?)
        }
    };
    let mut done = link.batch_execute(sql).await;
    let asks_why = dialect.asks_why_not_dropped();
    if let (Err(error), Some(told), Some(asks_why)) = (&mut done, unfit, asks_why) {
        let found = texts(link, asks_why.to_owned()).await;
        if let Some(unfit) = found.ok().and_then(|texts| told(texts.first()?)) {
            *error = unfit;
        }
    }
    let Some(begun) = begun else {
        if let (Err(_), Some(sql)) = (&done, clean_up) {
            connection::clean_up(link, sql).await;
        }
        return done;
    };
    begun.end(link, done).await
}

/// Reads the rows of a query of one column of texts.
pub(crate) async fn texts<M: LoadIo>(
    link: &mut Link<'_, M>,
    sql: String,
) -> QueryResult<Vec<String>> {
    let texts = link.load::<Option<String>, _>(Texts(sql));
    Ok(texts.await?.into_iter().flatten().collect())
}

/// A query of one column of texts.
struct Texts(String);

fragments! {
    [] Texts: Query<Nullable<Text>>, no query id [];
    |self, mut out| {
        out.unsafe_to_cache_prepared(); // a text of its own for each table
        sql!(out; self.0.as_str())
    };
}

/// See [`ShardsTable::remove_orphans`].
pub(crate) async fn remove_orphans<P, DB, M>(of: P, link: &mut Link<'_, M>) -> QueryResult<usize>
where
    P: Parents<DB>,
    M: LoadIo<Backend = DB>,
    DB: ShardedBackend,
{
    let explained = |error, backend| explain_keys(of.names(), &backend, error);
    let (mut removed, mut last) = (0, None);
    loop {
        let after = last.as_ref().map(|last| of.is_after(last));
        let picking = RetryLoop::decision(link, RetryPolicy::default())?;
        let keys = retry_loop!(link, picking, {
            let pick = PickOrphans {
                names: of.names(),
                after: after.as_ref().map(|after| after as &dyn QueryFragment<DB>),
                limit: KEYS_IN_A_STATEMENT as i64,
                key_sql: PhantomData,
            };
            P::KeySql::rows(link, pick).await
        });
        let keys = keys.map_err(|error| explained(error, link.backend()))?;
        let removing = locking(link, RetryPolicy::default())?;
        let batch = retry_loop!(link, removing, {
            LockedRows::locked(of, keys.clone())
                .on(link)
                .remove_orphans()
                .await
        });
        removed += batch.map_err(|error| explained(error, link.backend()))?;
        if keys.len() < KEYS_IN_A_STATEMENT {
            return Ok(removed);
        }
        last = keys.last().cloned();
    }
}

statements! {
    /// Reads keys in the shards table that no parent has [on the primary](Names::on_primary), in key order.
    struct PickOrphans<'a, ST> {
        names: Names<'a, DB>,
        after: Option<&'a dyn QueryFragment<DB>>,
        limit: i64,
        key_sql: PhantomData<ST>,
    }: Query<ST>;
    |self, out| {
        let (table, after) = (self.names, self.after.as_ref());
        let condition = sql! { table.has_no_parent(), table.next_keys(after, &self.limit) };
        sql!(out; table.on_primary(), table.keys_of_shards(condition))
    }
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod orphan_tests {
    use super::*;
    use crate::test_schema::{assert_sql, videos};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;

    #[test]
    fn keys_without_parents_are_picked_behind_the_last_one() {
        let after = videos::table::key_after(&7);
        let pick = PickOrphans::<(), Pg> {
            names: Names::of::<videos::table>(),
            after: Some(&after),
            limit: 100,
            key_sql: PhantomData,
        };
        assert_sql!(pick;
            Pg => r#"WITH "sharded_primary" AS (UPDATE "videos_shards" SET "shard" = 0 WHERE FALSE) SELECT "videos"."id" FROM (SELECT DISTINCT "videos"."id" FROM "videos_shards" AS "videos" WHERE NOT EXISTS (SELECT 1 FROM "videos" AS "diesel_sharded_parents" WHERE "diesel_sharded_parents"."id" = "videos"."id") AND ("videos"."id" > $1) ORDER BY "videos"."id" LIMIT $2) AS "videos" ORDER BY "videos"."id""#,
        );
        let pick = PickOrphans::<(), Mysql> {
            names: Names::of::<videos::table>(),
            after: None,
            limit: 100,
            key_sql: PhantomData,
        };
        assert_sql!(pick;
            Mysql => "SELECT `videos`.`id` FROM (SELECT DISTINCT `videos`.`id` FROM `videos_shards` AS `videos` WHERE NOT EXISTS (SELECT 1 FROM `videos` AS `diesel_sharded_parents` WHERE `diesel_sharded_parents`.`id` = `videos`.`id`) ORDER BY `videos`.`id` LIMIT ?) AS `videos` ORDER BY `videos`.`id` LIMIT 18446744073709551615",
        );
    }
}
