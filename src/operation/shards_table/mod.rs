//! The shards table: its `CREATE TABLE` and `DROP TABLE`, as text and as a Diesel migration.

mod create;
mod fold_and_drop;
mod quoted;
mod triggers;

use std::fmt;
use std::marker::PhantomData;

use diesel::connection::{BoxableConnection, LoadConnection};
use diesel::migration::{
    Migration, MigrationMetadata, MigrationName, MigrationSource, MigrationVersion,
};
use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use diesel::result::Error as DieselError;

use crate::backend::{BackendOf, Dialect, ShardedBackend};
use crate::conflict::Failure;
use crate::connection;
use crate::connection::{Link, TransactionOptions, in_any_transaction, now};
use crate::engine::{enclosed, explain};
use crate::error::Error;
use crate::model::ShardedTable;
use crate::query_builder::Names;

use self::create::explain_key;
use self::fold_and_drop::{CLEAN_UP, Program, explain_unfit, select_unfit, told};
use self::quoted::Quoted;
pub(crate) use self::quoted::literal;
pub(crate) use self::triggers::check_triggers;
use self::triggers::texts_of;

/// The shards table of `T`, from what the derive knows of its parent: one column for each column of the key, `shard`, and
/// one for each sharded field.
///
/// ```sql
/// -- PostgreSQL; the fillfactor leaves room on the page for new versions of a row
/// CREATE TABLE "videos_shards" (
///     "id" BIGINT NOT NULL,
///     "shard" INTEGER NOT NULL,
///     "views" BIGINT NOT NULL DEFAULT 0,
///     PRIMARY KEY ("id", "shard"),
///     FOREIGN KEY ("id") REFERENCES "videos" ("id") ON UPDATE CASCADE ON DELETE CASCADE
/// ) WITH (fillfactor = 50)
/// ```
///
/// A key of text takes the parent's type and collation on PostgreSQL, from `CREATE TABLE .. AS SELECT "name" FROM "pages" WITH
/// NO DATA`; with `#[sharded(sql_type = "..")]` it is what that says.
///
/// MySQL: `ENGINE = InnoDB`; an unsigned field is a `DECIMAL(20, 0)` here, since one shard alone may be negative. SQLite:
/// `WITHOUT ROWID`, a `CHECK` of the range of integers, and triggers that delete and rename shards with their parent and
/// let a new row begin without shards, since foreign keys are off there unless a connection asks for them, and a deleted
/// row's id is given out again. SQLite's documented way to rebuild the parent's table drops these triggers with the old table;
/// a [`fold`](crate::fold()) then says [`MissingTriggers`](crate::Error::MissingTriggers), with the statements that create them.
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
pub struct ShardsTable<T> {
    table: PhantomData<T>,
}

impl<T: ShardedTable> ShardsTable<T> {
    /// The shards table of a table with sharded fields: `ShardsTable::of(videos::table)`.
    pub const fn of(_table: T) -> Self {
        ShardsTable { table: PhantomData }
    }

    /// The statements that create it, separated by semicolons: `create_sql(&Pg)`.
    ///
    /// Where there are several they are one step: on SQLite in a `SAVEPOINT`, on PostgreSQL in a `DO` block.
    ///
    /// # Errors
    /// [`QueryBuilderError`](diesel::result::Error::QueryBuilderError) if a name cannot be quoted.
    pub fn create_sql<DB>(&self, backend: &DB) -> QueryResult<String>
    where
        DB: ShardedBackend,
        T: QueryFragment<DB>,
    {
        create_sql(Names::of::<T>(), backend)
    }

    /// The statements that fold every shard into its parent and then drop the shards table: no count is lost. They hold a
    /// lock on both tables, under which no count can arrive in between. A count that comes later fails with
    /// [`MissingShardsTable`](crate::Error::MissingShardsTable).
    ///
    /// The text checks itself: each base has to be what it was and the sum of its shards, and each shard has to have a row.
    /// Where a trigger, a policy, or a column that rounds or cuts stands in the way, it fails with an error that names a row, and
    /// both tables stay as they were. That holds inside a transaction and outside, in Diesel's migrations, `psql`, `mariadb` and
    /// also in `sqlite3`, which goes on after an error.
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
        drop_sql(Names::of::<T>(), backend)
    }

    /// Creates it.
    ///
    /// # Errors
    /// [`KeyTypeMismatch`](Error::KeyTypeMismatch) where MySQL does not let its key refer to the parent's; else the database's, also when it is
    /// there already. [`AlreadyInTransaction`](DieselError::AlreadyInTransaction) inside a transaction on MySQL, which would
    /// commit it.
    pub fn create<Conn>(&self, conn: &mut Conn) -> QueryResult<()>
    where
        Conn: LoadConnection,
        Conn::Backend: BackendOf<Conn>,
        T: QueryFragment<Conn::Backend>,
    {
        let backend = Conn::Backend::backend_of(conn);
        let quoted = Quoted::new(Names::<Conn::Backend>::of::<T>(), &backend)?;
        let sql = quoted.create_statements().join(";\n");
        let created = match backend.dialect() {
            Dialect::Mysql => {
                refuse_inside(conn)?;
                conn.batch_execute(&sql)
            }
            _ => enclosed(conn, TransactionOptions::default(), |conn| {
                conn.batch_execute(&sql)
            }),
        };
        created.map_err(|error| explain_key::<T>(&quoted, error, |sql| texts_of(conn, sql)))
    }

    /// Folds every shard into its parent and drops it; see [`drop_sql`](Self::drop_sql).
    ///
    /// # Errors
    /// [`Unfit`](Error::Unfit) where a row does not take what its shards hold, [`Overflow`](Error::Overflow), or the database's;
    /// every total is what it was then. [`AlreadyInTransaction`](diesel::result::Error::AlreadyInTransaction) inside a transaction
    /// on MySQL, which would commit it. On PostgreSQL a transaction around it has to be `READ COMMITTED`.
    pub fn drop<Conn>(&self, conn: &mut Conn) -> QueryResult<()>
    where
        Conn: LoadConnection,
        Conn::Backend: BackendOf<Conn>,
        T: QueryFragment<Conn::Backend>,
    {
        let backend = Conn::Backend::backend_of(conn);
        let dialect = backend.dialect();
        let quoted = Quoted::new(Names::<Conn::Backend>::of::<T>(), &backend)?;
        let sql = quoted.fold_and_drop(Program::StopsAtErrors);
        let options = TransactionOptions {
            isolation: dialect.holding_isolation(),
            ..Default::default()
        };
        let dropped = match dialect {
            Dialect::Postgres => enclosed(conn, options, |conn| conn.batch_execute(&sql)),
            Dialect::Mysql => {
                refuse_inside(conn)?;
                conn.batch_execute(&sql).map_err(|error| {
                    let unfit = unfit(conn);
                    let _ = conn.batch_execute(CLEAN_UP); // the failure is what is reported
                    match unfit {
                        Ok(Some(text)) => told::<T>(&text).unwrap_or(error),
                        _ => error,
                    }
                })
            }
            Dialect::Sqlite => enclosed(conn, options, |conn| {
                conn.batch_execute(&quoted.fold_on_sqlite(None).join(";\n"))?;
                match unfit(conn)? {
                    Some(text) => Err(told::<T>(&text)
                        .unwrap_or_else(|| DieselError::QueryBuilderError(text.into()))),
                    None => conn.batch_execute(&quoted.drop_on_sqlite()),
                }
            }),
        };
        dropped.map_err(|error| explain_drop::<T, _, _>(conn, error))
    }

    /// A migration that creates it, and that folds and drops it when reverted. `version` orders it among the
    /// application's own; in Diesel's own form that is the time, `20260101000000`.
    pub fn migration(&self, version: impl Into<String>) -> ShardsMigration<T> {
        ShardsMigration {
            name: ShardsMigrationName {
                version: version.into(),
                table: T::SHARDS_TABLE,
            },
            table: PhantomData,
        }
    }
}

impl<T> Clone for ShardsTable<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ShardsTable<T> {}

impl<T: ShardedTable> fmt::Debug for ShardsTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ShardsTable({})", T::SHARDS_TABLE)
    }
}

/// See [`ShardsTable::create_sql`].
pub(crate) fn create_sql<DB: ShardedBackend>(
    names: Names<'_, DB>,
    backend: &DB,
) -> QueryResult<String> {
    Ok(Quoted::new(names, backend)?.create())
}

/// See [`ShardsTable::drop_sql`].
pub(crate) fn drop_sql<DB: ShardedBackend>(
    names: Names<'_, DB>,
    backend: &DB,
) -> QueryResult<String> {
    Ok(Quoted::new(names, backend)?.fold_and_drop(Program::Any))
}

/// Inside a transaction that what follows would commit.
fn refuse_inside<Conn>(conn: &mut Conn) -> QueryResult<()>
where
    Conn: Connection,
    Conn::Backend: BackendOf<Conn>,
{
    match now(in_any_transaction(&mut Link::blocking(conn)))? {
        true => Err(diesel::result::Error::AlreadyInTransaction),
        false => Ok(()),
    }
}

/// The statements that create the triggers of a shards table on SQLite which are not among `found`.
pub(crate) fn missing_triggers<DB: ShardedBackend>(
    names: Names<'_, DB>,
    backend: &DB,
    found: &[String],
) -> QueryResult<Option<String>> {
    match backend.dialect().has_triggers() {
        true => Ok(Quoted::new(names, backend)?.missing_triggers(None, found)),
        false => Ok(None),
    }
}

/// What the check of a fold found, on MySQL and SQLite.
fn unfit<Conn>(conn: &mut Conn) -> QueryResult<Option<String>>
where
    Conn: LoadConnection,
    Conn::Backend: BackendOf<Conn>,
{
    let dialect = Conn::Backend::backend_of(conn).dialect();
    let unfit = texts_of(conn, select_unfit(dialect).to_owned())?;
    Ok(unfit.into_iter().next())
}

/// What a failed fold and drop of `T`'s shards table means.
fn explain_drop<T, DB, Conn>(conn: &Conn, error: DieselError) -> DieselError
where
    T: ShardedTable + QueryFragment<DB>,
    DB: BackendOf<Conn>,
{
    let dialect = DB::backend_of(conn).dialect();
    let error = connection::told(dialect, explain_unfit::<T>(dialect, error));
    match dialect.classify(&error) {
        Failure::Overflow => Error::Overflow { source: error }.into(),
        _ => explain::<T, DB>(&DB::backend_of(conn), error),
    }
}

/// A Diesel migration that creates a shards table; made by [`ShardsTable::migration`].
#[derive(Debug)]
pub struct ShardsMigration<T> {
    name: ShardsMigrationName,
    table: PhantomData<T>,
}

#[derive(Debug, Clone)]
struct ShardsMigrationName {
    version: String,
    table: &'static str,
}

impl fmt::Display for ShardsMigrationName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_create_{}", self.version, self.table)
    }
}

impl MigrationName for ShardsMigrationName {
    fn version(&self) -> MigrationVersion<'_> {
        MigrationVersion::from(self.version.as_str())
    }
}

/// In a transaction, as Diesel does by default.
pub(crate) struct InTransaction;

impl MigrationMetadata for InTransaction {}

impl<T, DB> Migration<DB> for ShardsMigration<T>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    fn run(&self, conn: &mut dyn BoxableConnection<DB>) -> diesel::migration::Result<()> {
        let backend = backend_behind(conn)?;
        let sql = ShardsTable::of(*T::TABLE).create_sql(&backend)?;
        Ok(conn.batch_execute(&sql)?)
    }

    fn revert(&self, conn: &mut dyn BoxableConnection<DB>) -> diesel::migration::Result<()> {
        let backend = backend_behind(conn)?;
        let dialect = backend.dialect();
        let quoted = Quoted::new(Names::<DB>::of::<T>(), &backend)?;
        let sql = quoted.fold_and_drop(Program::StopsAtErrors);
        conn.batch_execute(&sql).map_err(|error| {
            if dialect == Dialect::Mysql {
                let _ = conn.batch_execute(CLEAN_UP); // the failure is what is reported
            }
            explain_unfit::<T>(dialect, error).into()
        })
    }

    fn metadata(&self) -> &dyn MigrationMetadata {
        &InTransaction
    }

    fn name(&self) -> &dyn MigrationName {
        &self.name
    }
}

/// As the one migration of a source, it runs by `conn.run_pending_migrations(..)`.
impl<T, DB> MigrationSource<DB> for ShardsMigration<T>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    fn migrations(&self) -> diesel::migration::Result<Vec<Box<dyn Migration<DB>>>> {
        Ok(vec![Box::new(self.clone())])
    }
}

impl<T> Clone for ShardsMigration<T> {
    fn clone(&self) -> Self {
        ShardsMigration {
            name: self.name.clone(),
            table: PhantomData,
        }
    }
}

pub(crate) fn backend_behind<DB: ShardedBackend>(
    conn: &mut dyn BoxableConnection<DB>,
) -> diesel::migration::Result<DB> {
    DB::backend_behind(conn)
        .ok_or_else(|| "this connection is none that `multi_connection!` was told of".into())
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::{downloads, pages, videos};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::sqlite::Sqlite;

    #[test]
    fn create_on_postgres() {
        assert_eq!(
            ShardsTable::of(videos::table).create_sql(&Pg).unwrap(),
            r#"CREATE TABLE "videos_shards" (
    "id" BIGINT NOT NULL,
    "shard" INTEGER NOT NULL,
    "views" BIGINT NOT NULL DEFAULT 0,
    "likes" INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY ("id", "shard"),
    FOREIGN KEY ("id") REFERENCES "videos" ("id") ON UPDATE CASCADE ON DELETE CASCADE
) WITH (fillfactor = 50)"#
        );
    }

    #[test]
    fn create_on_mysql() {
        assert_eq!(
            ShardsTable::of(downloads::table)
                .create_sql(&Mysql)
                .unwrap(),
            r#"CREATE TABLE `download "counts"` (
    `version` INTEGER NOT NULL,
    `day` CHAR(10) NOT NULL,
    `shard` INTEGER NOT NULL,
    `number` DOUBLE NOT NULL DEFAULT 0,
    PRIMARY KEY (`version`, `day`, `shard`),
    FOREIGN KEY (`version`, `day`) REFERENCES `downloads` (`version`, `day`) ON UPDATE CASCADE ON DELETE CASCADE
) ENGINE = InnoDB"#
        );
    }

    #[test]
    fn create_on_sqlite() {
        assert_eq!(
            ShardsTable::of(videos::table).create_sql(&Sqlite).unwrap(),
            "SAVEPOINT diesel_sharded;
CREATE TABLE `videos_shards` (
    `id` BIGINT NOT NULL,
    `shard` INTEGER NOT NULL,
    `views` BIGINT NOT NULL DEFAULT 0 CHECK (`views` BETWEEN -9223372036854775807 AND 9223372036854775807),
    `likes` INTEGER NOT NULL DEFAULT 0 CHECK (`likes` BETWEEN -2147483648 AND 2147483647),
    PRIMARY KEY (`id`, `shard`),
    FOREIGN KEY (`id`) REFERENCES `videos` (`id`) ON DELETE CASCADE
) WITHOUT ROWID;
CREATE TRIGGER `videos_shards_delete` AFTER DELETE ON `videos` BEGIN DELETE FROM `videos_shards` WHERE `id` = OLD.`id`; END;
CREATE TRIGGER `videos_shards_update` AFTER UPDATE OF `id` ON `videos` BEGIN DELETE FROM `videos_shards` WHERE `id` = NEW.`id` AND NOT (`id` = OLD.`id`); UPDATE `videos_shards` SET `id` = NEW.`id` WHERE `id` = OLD.`id`; END;
CREATE TRIGGER `videos_shards_insert` AFTER INSERT ON `videos` BEGIN DELETE FROM `videos_shards` WHERE `id` = NEW.`id`; END;
RELEASE diesel_sharded"
        );
    }

    #[test]
    fn create_with_a_key_of_text_on_postgres() {
        assert_eq!(
            ShardsTable::of(pages::table).create_sql(&Pg).unwrap(),
            r#"DO $diesel_sharded$
BEGIN
    CREATE TABLE "pages_shards" WITH (fillfactor = 50) AS SELECT "name" FROM "pages" WITH NO DATA;
    ALTER TABLE "pages_shards"
        ADD "shard" INTEGER NOT NULL,
        ADD "hits" BIGINT NOT NULL DEFAULT 0,
        ADD PRIMARY KEY ("name", "shard"),
        ADD FOREIGN KEY ("name") REFERENCES "pages" ("name") ON UPDATE CASCADE ON DELETE CASCADE;
END
$diesel_sharded$"#
        );
    }

    #[test]
    fn drop_on_postgres() {
        assert_eq!(
            ShardsTable::of(downloads::table).drop_sql(&Pg).unwrap(),
            r#"DO $diesel_sharded$
DECLARE
    unfit TEXT;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION USING MESSAGE = 'download "counts": drop it in a transaction that is READ COMMITTED; in any other some counts may not be seen';
    END IF;
    LOCK TABLE "downloads", "download ""counts""" IN ACCESS EXCLUSIVE MODE;
    IF row_security_active('"download ""counts"""') THEN
        RAISE EXCEPTION USING MESSAGE = 'download "counts": row security may hide some of its rows; drop it as a role that bypasses row security';
    END IF;
    CREATE TEMPORARY TABLE diesel_sharded_totals ON COMMIT DROP AS
        SELECT "downloads"."version" AS key1, "downloads"."day" AS key2, "downloads"."number" AS base1, diesel_sharded_sums.sum1 FROM "downloads"
        JOIN (SELECT "download ""counts"""."version" AS key1, "download ""counts"""."day" AS key2, SUM("download ""counts"""."number") AS sum1 FROM "download ""counts""" GROUP BY "download ""counts"""."version", "download ""counts"""."day") AS diesel_sharded_sums ON diesel_sharded_sums.key1 = "downloads"."version" AND diesel_sharded_sums.key2 = "downloads"."day";
    UPDATE "downloads" SET "number" = diesel_sharded_totals.base1 + diesel_sharded_totals.sum1 FROM pg_temp.diesel_sharded_totals WHERE "downloads"."version" = diesel_sharded_totals.key1 AND "downloads"."day" = diesel_sharded_totals.key2;
    -- Each base has to be the one before plus its sum, and each shard has to have a row.
    unfit := (SELECT 'download "counts", key ' || CAST(diesel_sharded_totals.key1 AS TEXT) || ', ' || CAST(diesel_sharded_totals.key2 AS TEXT) || ': ' || CAST(diesel_sharded_totals.base1 AS TEXT) || ' + ' || CAST(diesel_sharded_totals.sum1 AS TEXT) || ' gave ' || COALESCE(CAST("downloads"."number" AS TEXT), 'nothing') FROM pg_temp.diesel_sharded_totals LEFT JOIN "downloads" ON "downloads"."version" = diesel_sharded_totals.key1 AND "downloads"."day" = diesel_sharded_totals.key2 WHERE NOT COALESCE("downloads"."number" = diesel_sharded_totals.base1 + diesel_sharded_totals.sum1, FALSE) LIMIT 1);
    unfit := COALESCE(unfit, (SELECT 'download "counts", key ' || CAST("download ""counts"""."version" AS TEXT) || ', ' || CAST("download ""counts"""."day" AS TEXT) || ': it has shards and no row' FROM "download ""counts""" LEFT JOIN pg_temp.diesel_sharded_totals ON "download ""counts"""."version" = diesel_sharded_totals.key1 AND "download ""counts"""."day" = diesel_sharded_totals.key2 WHERE diesel_sharded_totals.key1 IS NULL LIMIT 1));
    IF unfit IS NOT NULL THEN
        RAISE EXCEPTION USING MESSAGE = unfit, HINT = 'Nothing was changed. Look for a trigger, a policy, or a column that rounds or cuts what it is given.';
    END IF;
    DROP TABLE pg_temp.diesel_sharded_totals;
    DROP TABLE "download ""counts""";
END
$diesel_sharded$"#
        );
    }

    #[test]
    fn drop_on_mysql() {
        assert_eq!(
            ShardsTable::of(videos::table).drop_sql(&Mysql).unwrap(),
            "SET @diesel_sharded_row = 'not checked', @diesel_sharded_unfit = 'not checked', @diesel_sharded_autocommit = @@autocommit;
SET autocommit = 0;
LOCK TABLES `videos` WRITE, `videos_shards` WRITE;
CREATE TEMPORARY TABLE `diesel_sharded_totals` (PRIMARY KEY (key1)) ENGINE = InnoDB AS
    SELECT `videos`.`id` AS key1, `videos`.`views` AS base1, `videos`.`likes` AS base2, diesel_sharded_sums.sum1, diesel_sharded_sums.sum2 FROM `videos`
        JOIN (SELECT `videos_shards`.`id` AS key1, SUM(`videos_shards`.`views`) AS sum1, SUM(`videos_shards`.`likes`) AS sum2 FROM `videos_shards` GROUP BY `videos_shards`.`id`) AS diesel_sharded_sums ON diesel_sharded_sums.key1 = `videos`.`id`;
UPDATE IGNORE `videos` JOIN diesel_sharded_totals ON `videos`.`id` = diesel_sharded_totals.key1 SET `videos`.`views` = diesel_sharded_totals.base1 + diesel_sharded_totals.sum1, `videos`.`likes` = diesel_sharded_totals.base2 + diesel_sharded_totals.sum2;
-- Each base has to be the one before plus its sum, and each shard has to have a row. Else all this is rolled back.
SET @diesel_sharded_row = (SELECT CONCAT('videos_shards, key ', CONCAT(CAST(diesel_sharded_totals.key1 AS CHAR)), ': ', CONCAT(CAST(diesel_sharded_totals.base1 AS CHAR), ', ', CAST(diesel_sharded_totals.base2 AS CHAR)), ' + ', CONCAT(CAST(diesel_sharded_totals.sum1 AS CHAR), ', ', CAST(diesel_sharded_totals.sum2 AS CHAR)), ' gave ', COALESCE(CONCAT(CAST(`videos`.`views` AS CHAR), ', ', CAST(`videos`.`likes` AS CHAR)), 'nothing')) FROM diesel_sharded_totals LEFT JOIN `videos` ON `videos`.`id` = diesel_sharded_totals.key1 WHERE NOT COALESCE(`videos`.`views` = diesel_sharded_totals.base1 + diesel_sharded_totals.sum1 AND `videos`.`likes` = diesel_sharded_totals.base2 + diesel_sharded_totals.sum2, FALSE) LIMIT 1);
SET @diesel_sharded_unfit = COALESCE(@diesel_sharded_row, (SELECT CONCAT('videos_shards, key ', CONCAT(CAST(`videos_shards`.`id` AS CHAR)), ': it has shards and no row') FROM `videos_shards` LEFT JOIN diesel_sharded_totals ON `videos_shards`.`id` = diesel_sharded_totals.key1 WHERE diesel_sharded_totals.key1 IS NULL LIMIT 1));
DELETE FROM `videos_shards`;
SET @diesel_sharded_sql = IF(@diesel_sharded_unfit IS NULL, 'COMMIT', 'DO 0');
PREPARE diesel_sharded FROM @diesel_sharded_sql;
EXECUTE diesel_sharded;
ROLLBACK;
DROP TEMPORARY TABLE `diesel_sharded_totals`;
SET @diesel_sharded_sql = IF(@diesel_sharded_unfit IS NULL, 'DROP TABLE `videos_shards`', 'DO 0');
PREPARE diesel_sharded FROM @diesel_sharded_sql;
EXECUTE diesel_sharded;
DEALLOCATE PREPARE diesel_sharded;
UNLOCK TABLES;
SET autocommit = @diesel_sharded_autocommit;
-- Fails by a duplicate that names a row, if one did not fit.
CREATE TEMPORARY TABLE `diesel_sharded_unfit` (PRIMARY KEY (unfit)) ENGINE = InnoDB AS
    SELECT CAST(@diesel_sharded_unfit AS CHAR(180)) AS unfit FROM (SELECT 1 UNION ALL SELECT 2) AS twice
    WHERE @diesel_sharded_unfit IS NOT NULL;
DROP TEMPORARY TABLE `diesel_sharded_unfit`"
        );
    }

    #[test]
    fn drop_on_sqlite() {
        assert_eq!(
            ShardsTable::of(videos::table).drop_sql(&Sqlite).unwrap(),
            "SAVEPOINT diesel_sharded;
DROP TRIGGER IF EXISTS `videos_shards_delete`;
DROP TRIGGER IF EXISTS `videos_shards_update`;
DROP TRIGGER IF EXISTS `videos_shards_insert`;
CREATE TEMPORARY TABLE diesel_sharded_totals (key1, base1, base2, sum1, sum2);
CREATE TEMPORARY TABLE diesel_sharded_unfit (unfit);
ALTER TABLE `videos_shards` RENAME TO `diesel_sharded_dropped`;
INSERT INTO temp.diesel_sharded_totals
    SELECT `videos`.`id` AS key1, `videos`.`views` AS base1, `videos`.`likes` AS base2, diesel_sharded_sums.sum1, diesel_sharded_sums.sum2 FROM `videos`
        JOIN (SELECT `diesel_sharded_dropped`.`id` AS key1, SUM(`diesel_sharded_dropped`.`views`) AS sum1, SUM(`diesel_sharded_dropped`.`likes`) AS sum2 FROM `diesel_sharded_dropped` GROUP BY `diesel_sharded_dropped`.`id`) AS diesel_sharded_sums ON diesel_sharded_sums.key1 = `videos`.`id`;
UPDATE `videos` SET `views` = diesel_sharded_totals.base1 + diesel_sharded_totals.sum1, `likes` = diesel_sharded_totals.base2 + diesel_sharded_totals.sum2 FROM temp.diesel_sharded_totals WHERE `videos`.`id` = diesel_sharded_totals.key1;
-- Each base has to be the one before plus its sum, and each shard has to have a row.
INSERT INTO temp.diesel_sharded_unfit SELECT COALESCE((SELECT 'videos_shards, key ' || CAST(diesel_sharded_totals.key1 AS TEXT) || ': ' || CAST(diesel_sharded_totals.base1 AS TEXT) || ', ' || CAST(diesel_sharded_totals.base2 AS TEXT) || ' + ' || CAST(diesel_sharded_totals.sum1 AS TEXT) || ', ' || CAST(diesel_sharded_totals.sum2 AS TEXT) || ' gave ' || COALESCE(CAST(`videos`.`views` AS TEXT) || ', ' || CAST(`videos`.`likes` AS TEXT), 'nothing') FROM temp.diesel_sharded_totals LEFT JOIN `videos` ON `videos`.`id` = diesel_sharded_totals.key1 WHERE NOT COALESCE(`videos`.`views` = diesel_sharded_totals.base1 + diesel_sharded_totals.sum1 AND EXISTS (SELECT 1 FROM (SELECT diesel_sharded_totals.base1 + diesel_sharded_totals.sum1 AS total) WHERE typeof(total) = 'integer') AND `videos`.`likes` = diesel_sharded_totals.base2 + diesel_sharded_totals.sum2 AND EXISTS (SELECT 1 FROM (SELECT diesel_sharded_totals.base2 + diesel_sharded_totals.sum2 AS total) WHERE total BETWEEN -2147483648 AND 2147483647), FALSE) LIMIT 1), (SELECT 'videos_shards, key ' || CAST(`diesel_sharded_dropped`.`id` AS TEXT) || ': it has shards and no row' FROM `diesel_sharded_dropped` LEFT JOIN temp.diesel_sharded_totals ON `diesel_sharded_dropped`.`id` = diesel_sharded_totals.key1 WHERE diesel_sharded_totals.key1 IS NULL LIMIT 1));
CREATE TEMPORARY TABLE diesel_sharded_fits (fits CONSTRAINT `videos_shards: a row did not take what its shards hold` CHECK (fits));
SELECT unfit FROM temp.diesel_sharded_unfit WHERE unfit IS NOT NULL;
INSERT INTO temp.diesel_sharded_fits SELECT COUNT(*) = 1 AND COUNT(unfit) = 0 FROM temp.diesel_sharded_unfit;
-- For a program that has gone on after that error: everything is as it was.
INSERT OR ROLLBACK INTO temp.diesel_sharded_fits SELECT COUNT(*) = 1 AND COUNT(unfit) = 0 FROM temp.diesel_sharded_unfit;
DROP TABLE `diesel_sharded_dropped`;
DROP TABLE temp.diesel_sharded_fits;
DROP TABLE temp.diesel_sharded_unfit;
DROP TABLE temp.diesel_sharded_totals;
RELEASE diesel_sharded"
        );
    }
}
