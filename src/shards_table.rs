//! The shards table: its `CREATE TABLE` and `DROP TABLE`, as text and as a Diesel migration.

use std::fmt;
use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::connection::BoxableConnection;
use diesel::migration::{
    Migration, MigrationMetadata, MigrationName, MigrationSource, MigrationVersion,
};
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryBuilder, QueryFragment};

use crate::dialect::{BackendOf, ShardedBackend};
use crate::field::{ShardedTable, ShardsColumn};
use crate::io::Blocking;
use crate::retry::in_transaction;
use crate::sql::{Names, SHARD, push_each_key_of, push_unique_key_of};
use crate::total::push_total_of;

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
/// MySQL: `ENGINE = InnoDB`; an unsigned field is a `DECIMAL(20, 0)` here, since one shard alone may be negative. SQLite:
/// `WITHOUT ROWID`, a `CHECK` of the range of integers, and triggers that delete and rename shards with their parent and
/// let a new row begin without shards, since foreign keys are off there unless a connection asks for them, and a deleted
/// row's id is given out again.
///
/// A row that is replaced by `REPLACE INTO` starts without shards, except on MySQL from 9.6 on (tried: 9.7.4), which replaces it
/// without the foreign key's actions: `DELETE` and `INSERT` there, or the new row inherits the old one's shards.
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
/// # assert!(shards_table.create_sql(&diesel::sqlite::Sqlite)?.starts_with("CREATE TABLE `videos_shards`"));
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
    /// lock on both tables, under which no count can arrive in between, and on PostgreSQL and SQLite need a transaction
    /// around them. A count that comes later fails with [`MissingShardsTable`](crate::Error::MissingShardsTable).
    ///
    /// ```sql
    /// LOCK TABLE "videos", "videos_shards" IN ACCESS EXCLUSIVE MODE;  -- MySQL: SET autocommit = 0; LOCK TABLES … WRITE
    /// UPDATE "videos" SET "views" = … WHERE EXISTS (SELECT 1 FROM "videos_shards" WHERE …);
    ///                                                                 -- MySQL: DELETE FROM `videos_shards`; COMMIT
    /// DROP TABLE "videos_shards"                                      -- MySQL: UNLOCK TABLES; SET autocommit = …
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
    /// The database's, also when it is there already.
    pub fn create<Conn>(&self, conn: &mut Conn) -> QueryResult<()>
    where
        Conn: Connection,
        Conn::Backend: BackendOf<Conn>,
        T: QueryFragment<Conn::Backend>,
    {
        let sql = self.create_sql(&Conn::Backend::backend_of(conn))?;
        conn.transaction(|conn| conn.batch_execute(&sql))
    }

    /// Folds every shard into its parent and drops it; see [`drop_sql`](Self::drop_sql).
    ///
    /// # Errors
    /// The database's; every total is what it was then. [`AlreadyInTransaction`](diesel::result::Error::AlreadyInTransaction)
    /// inside a transaction on MySQL, which would commit it.
    pub fn drop<Conn>(&self, conn: &mut Conn) -> QueryResult<()>
    where
        Conn: Connection,
        Conn::Backend: BackendOf<Conn>,
        T: QueryFragment<Conn::Backend>,
    {
        let backend = Conn::Backend::backend_of(conn);
        let sql = self.drop_sql(&backend)?;
        if !backend.dialect().exclusive().commits_fold {
            return conn.transaction(|conn| conn.batch_execute(&sql));
        }
        if in_transaction::<Blocking, _>(conn)? {
            return Err(diesel::result::Error::AlreadyInTransaction);
        }
        conn.batch_execute(&sql)
            .inspect_err(|_| clean_up(&backend, |sql| conn.batch_execute(sql)))
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
    let mut statements = vec![render(&CreateTable(names), backend)?];
    if backend.dialect().deletes_by_triggers() {
        for trigger in Trigger::ALL {
            statements.push(render(&CreateTrigger(trigger, names), backend)?);
        }
    }
    Ok(statements.join(";\n"))
}

/// See [`ShardsTable::drop_sql`].
pub(crate) fn drop_sql<DB: ShardedBackend>(
    names: Names<'_, DB>,
    backend: &DB,
) -> QueryResult<String> {
    let exclusive = backend.dialect().exclusive();
    let mut statements: Vec<_> = exclusive.before.map(str::to_owned).into_iter().collect();
    if exclusive.lock.is_some() {
        statements.push(render(&LockTables(names), backend)?);
    }
    statements.push(render(&FoldAll(names), backend)?);
    if exclusive.commits_fold {
        statements.push(render(&Empty(names), backend)?);
        statements.push("COMMIT".to_owned());
    }
    if backend.dialect().deletes_by_triggers() {
        for trigger in Trigger::ALL {
            statements.push(render(&DropTrigger(trigger, names), backend)?);
        }
    }
    statements.push(render(&DropTable(names), backend)?);
    statements.extend(exclusive.after.map(str::to_owned));
    Ok(statements.join(";\n"))
}

/// Undoes what a failure leaves behind. The failure is what is reported.
fn clean_up<DB: ShardedBackend>(backend: &DB, run: impl FnOnce(&str) -> QueryResult<()>) {
    if let Some(sql) = backend.dialect().exclusive().on_failure {
        let _ = run(sql);
    }
}

fn render<DB, S>(statement: &S, backend: &DB) -> QueryResult<String>
where
    DB: ShardedBackend,
    S: QueryFragment<DB>,
{
    let mut builder = backend.query_builder();
    statement.to_sql(&mut builder, backend)?;
    Ok(builder.finish())
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
        let sql = ShardsTable::of(*T::TABLE).drop_sql(&backend)?;
        let dropped = conn.batch_execute(&sql);
        Ok(dropped.inspect_err(|_| clean_up(&backend, |sql| conn.batch_execute(sql)))?)
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

struct CreateTable<'a, DB: Backend>(Names<'a, DB>);

impl<DB: ShardedBackend> QueryFragment<DB> for CreateTable<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let names = self.0;
        let dialect = out.backend().dialect();
        out.push_sql("CREATE TABLE ");
        out.push_identifier(names.shards_table)?;
        out.push_sql(" (\n    ");
        for column in names.key {
            out.push_identifier(column.name)?;
            out.push_sql(" ");
            out.push_sql(sql_type(column, |column_type| {
                dialect.key_type(column_type)
            }));
            out.push_sql(" NOT NULL,\n    ");
        }
        out.push_identifier(SHARD)?;
        out.push_sql(" INTEGER NOT NULL,\n    ");
        for column in names.fields {
            out.push_identifier(column.name)?;
            out.push_sql(" ");
            out.push_sql(sql_type(column, |column_type| {
                dialect.field_type(column_type)
            }));
            out.push_sql(" NOT NULL DEFAULT 0");
            if let Some(range) = dialect.range_check(column.column_type) {
                out.push_sql(" CHECK (");
                out.push_identifier(column.name)?;
                out.push_sql(range);
                out.push_sql(")");
            }
            out.push_sql(",\n    ");
        }
        out.push_sql("PRIMARY KEY ");
        push_unique_key_of(names.key, out.reborrow())?;
        out.push_sql(",\n    FOREIGN KEY (");
        push_key_names(names, out.reborrow())?;
        out.push_sql(") REFERENCES ");
        names.parent.walk_ast(out.reborrow())?;
        out.push_sql(" (");
        push_key_names(names, out.reborrow())?;
        out.push_sql(") ON UPDATE CASCADE ON DELETE CASCADE\n)");
        out.push_sql(dialect.table_options());
        Ok(())
    }
}

fn sql_type<'a>(
    column: &ShardsColumn,
    of_dialect: impl FnOnce(crate::dialect::ColumnType) -> &'a str,
) -> &'a str {
    column
        .sql_type
        .unwrap_or_else(|| of_dialect(column.column_type))
}

/// SQLite's stand-ins for a foreign key's actions; and a new row has no shards, also when it replaces another.
#[derive(Clone, Copy)]
enum Trigger {
    Delete,
    Update,
    Insert,
}

impl Trigger {
    const ALL: [Self; 3] = [Trigger::Delete, Trigger::Update, Trigger::Insert];

    fn push_name<DB: ShardedBackend>(
        self,
        names: Names<'_, DB>,
        mut out: AstPass<'_, '_, DB>,
    ) -> QueryResult<()> {
        let action = match self {
            Trigger::Delete => "delete",
            Trigger::Update => "update",
            Trigger::Insert => "insert",
        };
        out.push_identifier(&format!("{}_{action}", names.shards_table))
    }
}

struct CreateTrigger<'a, DB: Backend>(Trigger, Names<'a, DB>);

impl<DB: ShardedBackend> QueryFragment<DB> for CreateTrigger<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let names = self.1;
        out.push_sql("CREATE TRIGGER ");
        self.0.push_name(names, out.reborrow())?;
        match self.0 {
            Trigger::Delete => out.push_sql(" AFTER DELETE ON "),
            Trigger::Insert => out.push_sql(" AFTER INSERT ON "),
            Trigger::Update => {
                out.push_sql(" AFTER UPDATE OF ");
                push_key_names(names, out.reborrow())?;
                out.push_sql(" ON ");
            }
        }
        names.parent.walk_ast(out.reborrow())?;
        out.push_sql(" BEGIN ");
        match self.0 {
            Trigger::Delete | Trigger::Insert => {
                out.push_sql("DELETE FROM ");
                out.push_identifier(names.shards_table)?;
            }
            Trigger::Update => {
                out.push_sql("UPDATE ");
                out.push_identifier(names.shards_table)?;
                out.push_sql(" SET ");
                push_key_is_rows(names, ", ", "NEW", out.reborrow())?;
            }
        }
        out.push_sql(" WHERE ");
        let row = match self.0 {
            Trigger::Delete | Trigger::Update => "OLD",
            Trigger::Insert => "NEW",
        };
        push_key_is_rows(names, " AND ", row, out.reborrow())?;
        out.push_sql("; END");
        Ok(())
    }
}

/// `key = OLD.key` or `key = NEW.key`
fn push_key_is_rows<DB: ShardedBackend>(
    names: Names<'_, DB>,
    separator: &str,
    row: &str,
    out: AstPass<'_, '_, DB>,
) -> QueryResult<()> {
    push_each_key_of(names.key, separator, out, |_, name, mut out| {
        out.push_identifier(name)?;
        out.push_sql(" = ");
        out.push_sql(row);
        out.push_sql(".");
        out.push_identifier(name)
    })
}

struct DropTrigger<'a, DB: Backend>(Trigger, Names<'a, DB>);

impl<DB: ShardedBackend> QueryFragment<DB> for DropTrigger<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let names = self.1;
        out.push_sql("DROP TRIGGER IF EXISTS "); // rebuilding the parent's table drops them
        self.0.push_name(names, out)
    }
}

struct LockTables<'a, DB: Backend>(Names<'a, DB>);

impl<DB: ShardedBackend> QueryFragment<DB> for LockTables<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let names = self.0;
        if let Some((before, behind_each, behind)) = out.backend().dialect().exclusive().lock {
            out.push_sql(before);
            names.parent.walk_ast(out.reborrow())?;
            out.push_sql(behind_each);
            out.push_sql(", ");
            out.push_identifier(names.shards_table)?;
            out.push_sql(behind_each);
            out.push_sql(behind);
        }
        Ok(())
    }
}

/// Moves all shards of all parents into the bases; the shards themselves are about to be dropped.
///
/// MySQL's locked tables may stand only once in a statement, so the shards are summed up in one place there.
struct FoldAll<'a, DB: Backend>(Names<'a, DB>);

impl<DB: ShardedBackend> QueryFragment<DB> for FoldAll<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let names = self.0;
        let joins_before_set = out.backend().dialect().joins_before_set();
        out.push_sql("UPDATE ");
        names.parent.walk_ast(out.reborrow())?;
        if joins_before_set {
            out.push_sql(" JOIN ");
            push_folded(names, out.reborrow())?;
        }
        for (i, field) in names.fields.iter().enumerate() {
            out.push_sql(if i == 0 { " SET " } else { ", " });
            if joins_before_set {
                names.push_column(field.name, out.reborrow())?;
                out.push_sql(" = ");
                names.push_column(field.name, out.reborrow())?;
                out.push_sql(" + folded.");
                out.push_identifier(field.name)?;
            } else {
                out.push_identifier(field.name)?;
                out.push_sql(" = ");
                push_total_of(names, field, None, out.reborrow())?;
            }
        }
        if !joins_before_set {
            out.push_sql(" WHERE EXISTS (SELECT 1");
            names.push_from_shards(None, out.reborrow())?;
            out.push_sql(")");
        }
        Ok(())
    }
}

/// `(SELECT key, SUM(field) AS field FROM shards GROUP BY key) AS folded ON folded.key = parent.key`
fn push_folded<'b, DB: ShardedBackend>(
    names: Names<'b, DB>,
    mut out: AstPass<'_, 'b, DB>,
) -> QueryResult<()> {
    out.push_sql("(SELECT ");
    push_key_names(names, out.reborrow())?;
    for field in names.fields {
        out.push_sql(", SUM(");
        out.push_identifier(field.name)?;
        out.push_sql(") AS ");
        out.push_identifier(field.name)?;
    }
    out.push_sql(" FROM ");
    out.push_identifier(names.shards_table)?;
    out.push_sql(" GROUP BY ");
    push_key_names(names, out.reborrow())?;
    out.push_sql(") AS folded ON ");
    push_each_key_of(names.key, " AND ", out, |_, name, mut out| {
        out.push_sql("folded.");
        out.push_identifier(name)?;
        out.push_sql(" = ");
        names.push_column(name, out)
    })
}

struct Empty<'a, DB: Backend>(Names<'a, DB>);

impl<DB: ShardedBackend> QueryFragment<DB> for Empty<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let names = self.0;
        out.push_sql("DELETE FROM ");
        out.push_identifier(names.shards_table)
    }
}

struct DropTable<'a, DB: Backend>(Names<'a, DB>);

impl<DB: ShardedBackend> QueryFragment<DB> for DropTable<'_, DB> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let names = self.0;
        out.push_sql("DROP TABLE ");
        out.push_identifier(names.shards_table)
    }
}

/// `id`, or all columns of a composite key
fn push_key_names<DB: ShardedBackend>(
    names: Names<'_, DB>,
    out: AstPass<'_, '_, DB>,
) -> QueryResult<()> {
    push_each_key_of(names.key, ", ", out, |_, name, mut out| {
        out.push_identifier(name)
    })
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::{downloads, videos};
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
            "CREATE TABLE `videos_shards` (
    `id` BIGINT NOT NULL,
    `shard` INTEGER NOT NULL,
    `views` BIGINT NOT NULL DEFAULT 0 CHECK (`views` BETWEEN -9223372036854775807 AND 9223372036854775807),
    `likes` INTEGER NOT NULL DEFAULT 0 CHECK (`likes` BETWEEN -2147483648 AND 2147483647),
    PRIMARY KEY (`id`, `shard`),
    FOREIGN KEY (`id`) REFERENCES `videos` (`id`) ON UPDATE CASCADE ON DELETE CASCADE
) WITHOUT ROWID;
CREATE TRIGGER `videos_shards_delete` AFTER DELETE ON `videos` BEGIN DELETE FROM `videos_shards` WHERE `id` = OLD.`id`; END;
CREATE TRIGGER `videos_shards_update` AFTER UPDATE OF `id` ON `videos` BEGIN UPDATE `videos_shards` SET `id` = NEW.`id` WHERE `id` = OLD.`id`; END;
CREATE TRIGGER `videos_shards_insert` AFTER INSERT ON `videos` BEGIN DELETE FROM `videos_shards` WHERE `id` = NEW.`id`; END"
        );
    }

    #[test]
    fn drop_folds_first_under_a_lock() {
        assert_eq!(
            ShardsTable::of(downloads::table).drop_sql(&Pg).unwrap(),
            r#"LOCK TABLE "downloads", "download ""counts""" IN ACCESS EXCLUSIVE MODE;
UPDATE "downloads" SET "number" = ("downloads"."number" + COALESCE((SELECT SUM("download ""counts"""."number") FROM "download ""counts""" WHERE "download ""counts"""."version" = "downloads"."version" AND "download ""counts"""."day" = "downloads"."day"), 0)) WHERE EXISTS (SELECT 1 FROM "download ""counts""" WHERE "download ""counts"""."version" = "downloads"."version" AND "download ""counts"""."day" = "downloads"."day");
DROP TABLE "download ""counts""""#
        );
        assert_eq!(
            ShardsTable::of(videos::table).drop_sql(&Mysql).unwrap(),
            "SET @autocommit_before = @@autocommit, autocommit = 0;
LOCK TABLES `videos` WRITE, `videos_shards` WRITE;
UPDATE `videos` JOIN (SELECT `id`, SUM(`views`) AS `views`, SUM(`likes`) AS `likes` FROM `videos_shards` GROUP BY `id`) AS folded ON folded.`id` = `videos`.`id` SET `videos`.`views` = `videos`.`views` + folded.`views`, `videos`.`likes` = `videos`.`likes` + folded.`likes`;
DELETE FROM `videos_shards`;
COMMIT;
DROP TABLE `videos_shards`;
UNLOCK TABLES;
SET autocommit = @autocommit_before"
        );
    }
}
