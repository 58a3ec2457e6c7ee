//! The shards table of a parent table.

use std::fmt;
use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use diesel::result::Error as DieselError;

use crate::backend::{BackendOf, Dialect, ShardedBackend};
use crate::conflict::Failure;
use crate::connection;
use crate::connection::{
    Blocking, Io, Link, LoadIo, TransactionOptions, begin, clean_up, in_any_transaction, paired,
};
use crate::engine::explain;
use crate::error::Error;
use crate::model::ShardedTable;
use crate::query_builder::Names;

use super::create::explain_key;
use super::fold_and_drop::{CLEAN_UP, Program, select_unfit};
use super::migration::{CreatedBySql, SqlMigration};
use super::quoted::{Integrity, Quoted};
use super::triggers::texts;
use super::unfit_text::{explain_unfit, told};

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
/// without foreign keys a row that is replaced through another unique column leaves its shards behind. No other row
/// inherits them, but the table cannot be dropped until they are deleted; `PRAGMA foreign_keys = ON` deletes them at once.
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
    /// nodes all take writes.
    ///
    /// The triggers do what the foreign key does, for the same price: they delete the shards of a row with the row, create none for a
    /// row that is not there, and on PostgreSQL rename and truncate them with their rows. MySQL differs:
    ///
    /// - The key of a row that has shards cannot be changed: the update fails with 1242, `Subquery returns more than 1 row`.
    ///   `fold(videos.find(7)).keep_shards(0)` removes the shards first.
    /// - A statement that deletes or inserts rows may not read their totals (1442).
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
    /// SQLite has its triggers in either case. A [`drop`](Self::drop), [`drop_sql`](Self::drop_sql) or [`migration`](Self::migration) of this
    /// value drops the triggers too, on MySQL last: for a moment the parent's rows cannot be inserted or deleted.
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
        ShardsTable {
            integrity: Integrity::Triggers,
            ..self
        }
    }

    /// Without a foreign key and without triggers, for servers that refuse both, such as PlanetScale and Aurora DSQL. SQLite keeps its
    /// triggers.
    ///
    /// The application then deletes the shards of a row with the row, and never changes a key. A new row with a used key begins with the
    /// counts that were left, unless [`remove_orphans`](Self::remove_orphans) removes them before that.
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
        ShardsTable {
            integrity: Integrity::Application,
            ..self
        }
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
        Ok(self.quoted(backend)?.create())
    }

    /// The statements that fold every shard into its parent and then drop the shards table: no count is lost. They hold a lock on
    /// both tables, so no count can arrive in between. A later count fails with
    /// [`MissingShardsTable`](crate::Error::MissingShardsTable).
    ///
    /// The text checks itself: each base must be its earlier value plus the sum of its shards, and each shard must have a row. If
    /// a trigger, a policy, or a column that rounds or cuts prevents that, or the triggers of a [`CounterCache`](crate::CounterCache) would
    /// miss the table, the text fails with an error that names a row or a trigger, and both tables stay as they were. That holds inside a transaction and outside, in Diesel's migrations, `psql`, `mariadb` and
    /// even in `sqlite3`, which continues after an error.
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
        Ok(self.quoted(backend)?.fold_and_drop(Program::Any))
    }

    /// The statements that create functions for triggers of the application's own: `videos_shards_add(id, field, delta)` adds to a field of a row, on one
    /// of 16 shards by the session's number, and `videos_shards_add_all(id, views, likes)` to all fields, if there are several.
    ///
    /// ```sql
    /// -- PostgreSQL: functions, true if there is such a row. In a trigger's function:
    /// PERFORM videos_shards_add(NEW.video_id, 'likes', 1);
    /// PERFORM videos_shards_add_all(NEW.video_id, likes => 1); -- 0 for others
    /// CALL videos_shards_add(NEW.video_id, 'likes', 1); -- MySQL, MariaDB: procedures
    /// CALL videos_shards_add_all(NEW.video_id, 0, 1);          -- in the fields' order
    /// -- SQLite has neither: in a trigger, this statement
    /// INSERT INTO videos_shards (id, shard, likes) SELECT id, 0, 1 FROM videos WHERE id = NEW.video_id
    ///     ON CONFLICT (id, shard) DO UPDATE SET likes = likes + excluded.likes;
    /// ```
    ///
    /// Their names are that of the shards table, `_add` and `_add_all`; a composite key has a parameter for each column. Deltas are of the fields' own types
    /// (`BIGINT`, `DOUBLE`, `NUMERIC`). A field of another name is an error, a row that does not exist counts nothing. They run with the
    /// privileges of their caller on PostgreSQL, and those of their creator on MySQL.
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
        self.quoted(backend)?.create_function()
    }

    /// The statements that drop these functions.
    ///
    /// ```sql
    /// DROP FUNCTION IF EXISTS "videos_shards_add"; …       -- PostgreSQL; MySQL: DROP PROCEDURE
    /// ```
    ///
    /// # Errors
    /// As [`add_function_sql`](Self::add_function_sql).
    pub fn drop_function_sql<DB>(&self, backend: &DB) -> QueryResult<String>
    where
        DB: ShardedBackend,
        T: QueryFragment<DB>,
    {
        self.quoted(backend)?.drop_function()
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
        /// [`KeyTypeMismatch`](Error::KeyTypeMismatch) if MySQL does not let its key refer to the parent's; else the database's
        /// error, also if the table already exists. [`AlreadyInTransaction`](DieselError::AlreadyInTransaction) inside a transaction
        /// on MySQL, which would commit it.
        pub fn create(&self, link: Link) -> QueryResult<()> {
            let quoted = self.quoted(&link.backend())?;
            let sql = quoted.create_statements().join(";\n");
            match install(link, &sql, None).await {
                Ok(()) => Ok(()),
                Err(error) => Err(explain_key::<T, _, _, _>(&quoted, link, error).await),
            }
        }

        /// Folds every shard into its parent and drops it; see [`drop_sql`](Self::drop_sql).
        ///
        /// # Errors
        /// [`HasCounterCache`](Error::HasCounterCache) before its caches are dropped; [`Unfit`](Error::Unfit) if a row does not accept the
        /// values of its shards, [`Overflow`](Error::Overflow), or the database's error. No total has changed then. [`AlreadyInTransaction`](diesel::result::Error::AlreadyInTransaction) inside
        /// a transaction on MySQL, which would commit it. On PostgreSQL a transaction around it has to be `READ COMMITTED`.
        pub fn drop(&self, link: Link) -> QueryResult<()> {
            let quoted = self.quoted(&link.backend())?;
            link.enter();
            let dropped = match quoted.dialect {
                Dialect::Mysql => drop_on_mysql::<T, _, _, _>(&quoted, link).await,
                _ => drop_in_one::<T, _, _, _>(&quoted, link).await,
            };
            link.leave();
            dropped.map_err(|error| explain_drop::<T, DB>(&link.backend(), error))
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
        let sql = self.quoted(backend)?.fold_and_drop(Program::StopsAtErrors);
        Ok(vec![sql])
    }

    fn clean_up(&self, creating: bool) -> Option<String> {
        (!creating).then(|| CLEAN_UP.to_owned())
    }

    fn explain(&self, dialect: Dialect, error: DieselError) -> DieselError {
        explain_unfit::<T>(dialect, error)
    }
}

impl<T, Run> Clone for ShardsTable<T, Run> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, Run> Copy for ShardsTable<T, Run> {}

impl<T: ShardedTable, Run> fmt::Debug for ShardsTable<T, Run> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShardsTable({})", T::SHARDS_TABLE)
    }
}

/// Executes statements that create or drop something, as one step: in a transaction, or on MySQL, which has none for them, outside any.
/// `clean_up` undoes there what a failure leaves behind.
pub(crate) async fn install<M, Conn>(
    link: &mut Link<'_, M, Conn>,
    sql: &str,
    clean_up: Option<&str>,
) -> QueryResult<()>
where
    M: Io<Conn>,
{
    let dialect = link.dialect();
    if dialect == Dialect::Mysql {
        refuse_inside(link).await?;
    }
    link.enter();
    let done = match dialect {
        Dialect::Mysql => {
            let done = link.batch_execute(sql).await;
            if let (Err(_), Some(sql)) = (&done, clean_up) {
                connection::clean_up(link, sql).await;
            }
            done
        }
        _ => in_one(link, sql).await,
    };
    link.leave();
    done.map_err(|error| connection::told(dialect, error))
}

async fn in_one<M, Conn>(link: &mut Link<'_, M, Conn>, sql: &str) -> QueryResult<()>
where
    M: Io<Conn>,
{
    let begun = begin(link, link.dialect(), TransactionOptions::default()).await?;
    let done = link.batch_execute(sql).await;
    begun.end(link, done).await
}

/// Inside a transaction that the next statements would commit.
async fn refuse_inside<M: Io<Conn>, Conn>(link: &mut Link<'_, M, Conn>) -> QueryResult<()> {
    match in_any_transaction(link).await? {
        true => Err(DieselError::AlreadyInTransaction),
        false => Ok(()),
    }
}

/// The text about a row that the check of a fold found, on MySQL and SQLite.
async fn unfit<DB, M, Conn>(link: &mut Link<'_, M, Conn>) -> QueryResult<Option<String>>
where
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    let unfit = texts(link, select_unfit(link.dialect()).to_owned()).await?;
    Ok(unfit.into_iter().next())
}

async fn drop_on_mysql<T, DB, M, Conn>(
    quoted: &Quoted<'_>,
    link: &mut Link<'_, M, Conn>,
) -> QueryResult<()>
where
    T: ShardedTable,
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    refuse_inside(link).await?;
    let sql = quoted.fold_and_drop(Program::StopsAtErrors);
    let Err(error) = link.batch_execute(&sql).await else {
        return Ok(());
    };
    let unfit = unfit(link).await;
    clean_up(link, CLEAN_UP).await;
    Err(match unfit {
        Ok(Some(text)) => told::<T>(&text).unwrap_or(error),
        _ => error,
    })
}

/// In a transaction.
async fn drop_in_one<T, DB, M, Conn>(
    quoted: &Quoted<'_>,
    link: &mut Link<'_, M, Conn>,
) -> QueryResult<()>
where
    T: ShardedTable,
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    let options = TransactionOptions {
        isolation: quoted.dialect.locking_isolation(),
        ..Default::default()
    };
    let begun = begin(link, quoted.dialect, options).await?;
    let dropped = match quoted.dialect {
        Dialect::Sqlite => drop_on_sqlite::<T, _, _, _>(quoted, link).await,
        _ => {
            let sql = quoted.fold_and_drop(Program::StopsAtErrors);
            link.batch_execute(&sql).await
        }
    };
    begun.end(link, dropped).await
}

async fn drop_on_sqlite<T, DB, M, Conn>(
    quoted: &Quoted<'_>,
    link: &mut Link<'_, M, Conn>,
) -> QueryResult<()>
where
    T: ShardedTable,
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    let fold = quoted.fold_on_sqlite(None).join(";\n");
    link.batch_execute(&fold).await?;
    match unfit(link).await? {
        Some(text) => {
            Err(told::<T>(&text).unwrap_or_else(|| DieselError::QueryBuilderError(text.into())))
        }
        None => link.batch_execute(&quoted.drop_on_sqlite()).await,
    }
}

/// Explains the error of a failed fold and drop of `T`'s shards table.
fn explain_drop<T, DB>(backend: &DB, error: DieselError) -> DieselError
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    let dialect = backend.dialect();
    let error = connection::told(dialect, explain_unfit::<T>(dialect, error));
    match dialect.classify(&error) {
        Failure::Overflow => Error::Overflow { source: error }.into(),
        _ => explain::<T, DB>(backend, error),
    }
}
