//! A view of a sharded table with totals, for readers that are not Diesel.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::QueryFragment;

use super::{CreatedBySql, ShardsTable, SqlMigration, install};
use crate::backend::{BackendOf, Dialect, ShardedBackend, quoted_on};
use crate::connection::{Blocking, paired};
use crate::counting::update::returning::AllWithTotals;
use crate::model::{ShardedTable, TableName, shows};
use crate::query_builder::{Names, id, sql, statements, text_of, walk};

/// A view of a sharded table with totals in place of bases; made by [`ShardsTable::view`].
///
/// It has the columns of the `table!`, in that order and under their names (at most 32, or 64 with the feature `64-column-tables`), and
/// each sharded one is its total. So a report, a spreadsheet or an old service reads exact numbers by `SELECT * FROM videos_totals`:
///
/// ```sql
/// CREATE VIEW "videos_totals" ("id", "title", "views") AS
/// SELECT "videos"."id", "videos"."title", total FROM (SELECT "videos"."id", "videos"."title", "videos"."views" FROM "videos") AS "videos"
/// ```
///
/// ```
/// # mod schema { diesel::table! { videos (id) { id -> BigInt, title -> Text, views -> BigInt, } } }
/// # use schema::videos::{self, dsl::{id, title, videos as all, views}};
/// # use diesel::prelude::*;
/// # use diesel::sql_types::BigInt;
/// # #[derive(diesel_sharded::ShardedField)]
/// # #[diesel(table_name = videos)]
/// # struct Video { id: i64, #[sharded] views: i64 }
/// # fn main() -> QueryResult<()> {
/// # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
/// # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, title TEXT NOT NULL, views BIGINT NOT NULL)").execute(conn)?;
/// # diesel::insert_into(all).values((id.eq(7), title.eq("zoo"), views.eq(100))).execute(conn)?;
/// # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
/// use diesel_sharded::{ShardsTable, update};
///
/// ShardsTable::of(videos::table).view("videos_totals").create(conn)?; // or as a migration
///
/// update(all.find(7)).set(views.eq(views + 1)).execute(conn)?;
/// let total = diesel::dsl::sql::<BigInt>("SELECT views FROM videos_totals WHERE id = 7");
/// assert_eq!(total.get_result::<i64>(conn)?, 101);
/// # Ok(())
/// # }
/// ```
///
/// On PostgreSQL and MySQL a reader needs the privilege to read the view, and none on the tables. The view reads both tables with
/// the rights of the role that created it, and row security is that role's too; [`security_invoker`](Self::security_invoker) leaves readers
/// their own. Nothing can be written through the view: the inner `SELECT` keeps a database from passing writes on to the table, with those
/// rights, and costs readers nothing. (MariaDB's `information_schema` calls the view updatable, and refuses each write.) If your view lacks
/// the inner `SELECT`, replace it: `CREATE OR REPLACE VIEW` with the rest of [`create_sql`](Self::create_sql) keeps its grants.
///
/// # When the tables change
///
/// A view keeps the columns that it was created with. Drop it before the change and create it again afterwards, in one migration:
///
/// | change | without that |
/// |---|---|
/// | a new column, or a new sharded field | the view does not have it, or shows its base |
/// | a column that is dropped, or gets another type | PostgreSQL and SQLite refuse a drop, PostgreSQL another type; on MySQL the view is invalid |
/// | a column that is renamed | PostgreSQL and SQLite keep the old name in the view; on MySQL the view is invalid |
/// | the shards table is dropped | PostgreSQL refuses it; elsewhere the view is invalid |
#[must_use = "a description of a view; `create` or `migration` makes one of it"]
pub struct TotalsView<T, Run = Blocking> {
    name: String,
    security_invoker: bool,
    types: PhantomData<fn() -> (T, Run)>,
}

impl<T: ShardedTable, Run> ShardsTable<T, Run> {
    /// A view with totals in place of bases, for readers that are not Diesel: `view("videos_totals")`. It is in the table's schema. See
    /// [`TotalsView`].
    pub fn view(&self, name: impl Into<String>) -> TotalsView<T, Run> {
        TotalsView {
            name: name.into(),
            security_invoker: false,
            types: PhantomData,
        }
    }
}

impl<T: ShardedTable, Run> TotalsView<T, Run> {
    /// Lets the view read both tables with the rights of its reader, to whom row security then applies: PostgreSQL's
    /// `WITH (security_invoker)`, MySQL's `SQL SECURITY INVOKER`. A PostgreSQL before 15 refuses it ("unrecognized parameter"), and
    /// SQLite has no roles.
    ///
    /// ```
    /// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
    /// # use schema::videos;
    /// # #[derive(diesel_sharded::ShardedField)]
    /// # #[diesel(table_name = videos)]
    /// # struct Video { id: i64, #[sharded] views: i64 }
    /// use diesel_sharded::ShardsTable;
    ///
    /// let view = ShardsTable::of(videos::table).view("videos_totals").security_invoker();
    /// # let _ = view.create_sql(&diesel::sqlite::Sqlite).unwrap();
    /// ```
    pub fn security_invoker(mut self) -> Self {
        self.security_invoker = true;
        self
    }

    /// The statement that creates it.
    ///
    /// # Errors
    /// [`QueryBuilderError`](diesel::result::Error::QueryBuilderError) if a name cannot be quoted.
    pub fn create_sql<DB>(&self, backend: &DB) -> QueryResult<String>
    where
        DB: ShardedBackend,
        T: Table<AllColumns: AllWithTotals> + QueryFragment<DB>,
    {
        let columns = <T::AllColumns as AllWithTotals>::names();
        let view = (&*self.name, self.security_invoker);
        create_view_sql(Names::of::<T>(), view, &columns, backend)
    }

    /// The statement that removes it.
    ///
    /// # Errors
    /// As [`create_sql`](Self::create_sql).
    pub fn drop_sql<DB>(&self, backend: &DB) -> QueryResult<String>
    where
        DB: ShardedBackend,
        T: QueryFragment<DB>,
    {
        let dialect = backend.dialect();
        Ok(drop_view_sql(T::SHARDS_TABLE, &self.name, dialect))
    }

    /// A migration that creates the view, and removes it when reverted. Its `version` comes after that of the
    /// [shards table's](crate::ShardsTable::migration), so that it is reverted first.
    pub fn migration(&self, version: impl Into<String>) -> SqlMigration<Self> {
        let does = format!("create_{}", self.name);
        SqlMigration::new(version.into(), &does, self.clone())
    }
}

paired! {
    impl<T: ShardedTable> TotalsView<T, Run>
    where
        T: Table<AllColumns: AllWithTotals>,
        T: QueryFragment<DB>,
        DB: BackendOf<Conn>,
    {
        /// Creates it. The shards table has to be there.
        ///
        /// # Errors
        /// The database's, also if a table or view of this name already exists.
        /// [`AlreadyInTransaction`](diesel::result::Error::AlreadyInTransaction) inside a transaction on MySQL, which would commit it.
        pub fn create(&self, link: Link) -> QueryResult<()> {
            let sql = self.create_sql(&link.backend())?;
            install(link, &sql, None, None).await
        }

        /// Removes it.
        ///
        /// # Errors
        /// As [`create`](Self::create)'s.
        pub fn drop(&self, link: Link) -> QueryResult<()> {
            let sql = self.drop_sql(&link.backend())?;
            install(link, &sql, None, None).await
        }
    }
}

impl<T, Run, DB> CreatedBySql<DB> for TotalsView<T, Run>
where
    T: ShardedTable + Table<AllColumns: AllWithTotals> + QueryFragment<DB>,
    DB: ShardedBackend,
{
    fn up(&self, backend: &DB) -> QueryResult<Vec<String>> {
        Ok(vec![self.create_sql(backend)?])
    }

    fn down(&self, backend: &DB) -> QueryResult<Vec<String>> {
        Ok(vec![self.drop_sql(backend)?])
    }
}

impl<T, Run> Clone for TotalsView<T, Run> {
    fn clone(&self) -> Self {
        TotalsView {
            name: self.name.clone(),
            security_invoker: self.security_invoker,
            types: PhantomData,
        }
    }
}

shows!([T, Run] TotalsView<T, Run>: |self| TotalsView { name: self.name } finish_non_exhaustive);

/// See [`TotalsView::drop_sql`].
pub fn drop_view_sql(shards_table: TableName<'_>, view: &str, dialect: Dialect) -> String {
    let quoted = |name: &str| quoted_on(dialect, name);
    let schema = shards_table.schema().map(|schema| quoted(schema) + ".");
    format!("DROP VIEW {}{}", schema.unwrap_or_default(), quoted(view))
}

/// See [`TotalsView::create_sql`]; of these columns.
pub fn create_view_sql<DB: ShardedBackend>(
    names: Names<'_, DB>,
    (view, security_invoker): (&str, bool),
    columns: &[&str],
    backend: &DB,
) -> QueryResult<String> {
    let create = CreateView {
        names,
        view,
        security_invoker,
        columns,
    };
    text_of(&create, backend)
}

statements! {
    /// Creates a view of these columns of the parent, with totals in place of bases. A view whose `FROM` has a subquery accepts no writes,
    /// and planners merge the subquery.
    struct CreateView<'a> {
        names: Names<'a, DB>,
        view: &'a str,
        security_invoker: bool,
        columns: &'a [&'a str],
    };
    |self, out| {
        let (parent, table) = (self.names, self.names.under_alias());
        let field = |name: &str| table.fields.iter().find(|field| field.name == name);
        let [security, options] = match self.security_invoker {
            true => out.backend().dialect().security_invoker(),
            false => [""; 2],
        };
        sql!(out;
            "CREATE ", security, "VIEW ", if let Some(schema) = table.shards_table.schema() { id(schema), "." }, id(self.view),
            " (", for column in (self.columns, ", ") { id(column) }, ")", options, " AS\nSELECT ",
            for column in (self.columns, ", ") {
                if let Some(field) = field(column) { table.total(field, None) } else { table.column(column) }
            },
            "\nFROM (SELECT ", for column in (self.columns, ", ") { parent.column(column) }, " FROM ", walk(parent.parent),
            ") AS ", walk(table.parent))
    }
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use crate::ShardsTable;
    use crate::test_schema::videos;
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::sqlite::Sqlite;

    #[test]
    fn create_and_drop() {
        let view = ShardsTable::of(videos::table).view("videos \"totals\"");
        let total = |field: &str| {
            format!(
                r#"("videos"."{field}" + (SELECT COALESCE(SUM("videos_shards"."{field}"), 0) FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id"))"#
            )
        };
        let (views, likes) = (total("views"), total("likes"));
        assert_eq!(
            view.create_sql(&Pg).unwrap(),
            format!(
                r#"CREATE VIEW "videos ""totals""" ("id", "slug", "views", "likes") AS
SELECT "videos"."id", "videos"."slug", CAST({views} AS bigint), CAST({likes} AS integer)
FROM (SELECT "videos"."id", "videos"."slug", "videos"."views", "videos"."likes" FROM "videos") AS "videos""#
            )
        );
        let (views, likes) = (views.replace('"', "`"), likes.replace('"', "`"));
        assert_eq!(
            view.create_sql(&Mysql).unwrap(),
            format!(
                r#"CREATE VIEW `videos "totals"` (`id`, `slug`, `views`, `likes`) AS
SELECT `videos`.`id`, `videos`.`slug`, {views}, {likes}
FROM (SELECT `videos`.`id`, `videos`.`slug`, `videos`.`views`, `videos`.`likes` FROM `videos`) AS `videos`"#
            )
        );
        let checked = |field: &str, range: &str| {
            format!(
                "(SELECT CASE WHEN total IS NULL OR {range} THEN total ELSE abs(-9223372036854775807 - 1) END FROM (SELECT `videos`.`{field}` + COALESCE(SUM(`videos_shards`.`{field}`), 0) AS total FROM `videos_shards` WHERE `videos_shards`.`id` = `videos`.`id`))"
            )
        };
        let views = checked("views", "typeof(total) = 'integer'");
        let likes = checked("likes", "total BETWEEN -2147483648 AND 2147483647");
        assert_eq!(
            view.create_sql(&Sqlite).unwrap(),
            format!(
                r#"CREATE VIEW `videos "totals"` (`id`, `slug`, `views`, `likes`) AS
SELECT `videos`.`id`, `videos`.`slug`, {views}, {likes}
FROM (SELECT `videos`.`id`, `videos`.`slug`, `videos`.`views`, `videos`.`likes` FROM `videos`) AS `videos`"#
            )
        );
        let invoker = view.clone().security_invoker();
        let on_postgres = invoker.create_sql(&Pg).unwrap();
        assert!(on_postgres.contains(r#""likes") WITH (security_invoker) AS"#));
        let on_mysql = invoker.create_sql(&Mysql).unwrap();
        assert!(on_mysql.starts_with("CREATE SQL SECURITY INVOKER VIEW `videos"));
        assert_eq!(invoker.create_sql(&Sqlite), view.create_sql(&Sqlite));
        assert_eq!(
            view.drop_sql(&Pg).unwrap(),
            r#"DROP VIEW "videos ""totals""""#
        );
        assert_eq!(
            view.drop_sql(&Mysql).unwrap(),
            r#"DROP VIEW `videos "totals"`"#
        );
        assert_eq!(
            view.drop_sql(&Sqlite).unwrap(),
            r#"DROP VIEW `videos "totals"`"#
        );
    }
}
