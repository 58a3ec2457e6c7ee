//! The tables of the test cases, and their models.

use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel::query_builder::QueryFragment;
use diesel_migrations::MigrationHarness;
use diesel_sharded::backend::{BackendOf, Dialect, ShardedBackend};
use diesel_sharded::model::ShardedTable;
use diesel_sharded::prelude::*;
use diesel_sharded::{MIGRATIONS, ShardsTable};

use crate::{Database, TestConnection};

diesel::table! {
    videos (id) {
        id -> BigInt,
        slug -> Text,
        title -> Text,
        views -> BigInt,
        likes -> Integer,
        channel -> Nullable<Text>,
    }
}

diesel::table! {
    videos_shards (id, shard) {
        id -> BigInt,
        shard -> Integer,
        views -> BigInt,
        likes -> Integer,
    }
}

diesel::table! {
    comments (id) {
        id -> BigInt,
        video_id -> BigInt,
    }
}

diesel::joinable!(comments -> videos (video_id));
diesel::allow_tables_to_appear_in_same_query!(videos, comments);

#[derive(Debug, Clone, PartialEq, ShardedSelectable, Identifiable, ShardedField)]
#[diesel(table_name = videos)]
#[sharded(table_name = videos_shards, shards = 4)]
pub struct Video {
    pub id: i64,
    pub slug: String,
    #[sharded]
    pub views: i64,
    #[sharded]
    pub likes: i32,
}

/// All columns, in the table's order.
#[derive(Debug, Clone, PartialEq, Queryable)]
pub struct WholeVideo {
    pub id: i64,
    pub slug: String,
    pub title: String,
    pub views: i64,
    pub likes: i32,
    pub channel: Option<String>,
}

/// A model that selects plain columns: after an increment it must read totals all the same.
#[derive(Debug, Clone, PartialEq, Queryable, Selectable)]
#[diesel(table_name = videos)]
pub struct PlainVideo {
    pub id: i64,
    pub views: i64,
}

diesel::table! {
    #[sql_name = "Watch \"li`sts\"' \\ -- $1 ?"]
    watchlists (name) {
        #[max_length = 100]
        name -> Text,
        #[sql_name = "or\"d`er' \\"]
        entries -> Integer,
    }
}

#[derive(Debug, ShardedSelectable, Identifiable, ShardedField)]
#[diesel(primary_key(name), table_name = watchlists)]
#[sharded(table_name = "watch \"list`s\"' \\ shards")]
pub struct Watchlist {
    #[sharded(sql_type = "VARCHAR(100)")]
    pub name: String,
    #[sharded]
    #[diesel(column_name = entries)]
    pub number_of_entries: i32,
}

diesel::table! {
    downloads (version, day) {
        version -> Integer,
        day -> Integer,
        number -> Integer,
    }
}

#[derive(Debug, PartialEq, ShardedSelectable, ShardedField)]
#[diesel(primary_key(version, day))]
#[diesel(table_name = downloads)]
pub struct Download {
    pub version: i32,
    pub day: Day,
    #[sharded]
    pub number: i32,
}

pub use self::day::Day;

mod day {
    use diesel::backend::Backend;
    use diesel::deserialize::{self, FromSql, FromSqlRow};
    use diesel::expression::AsExpression;
    use diesel::serialize::{self, Output, ToSql};
    use diesel::sql_types::Integer;

    /// Days since some day, kept as an integer: a key type of the application's own.
    #[derive(
        Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, AsExpression, FromSqlRow,
    )]
    #[diesel(sql_type = Integer)]
    pub struct Day(pub i32);

    impl<DB: Backend> ToSql<Integer, DB> for Day
    where
        i32: ToSql<Integer, DB>,
    {
        fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, DB>) -> serialize::Result {
            self.0.to_sql(out)
        }
    }

    impl<DB: Backend> FromSql<Integer, DB> for Day
    where
        i32: FromSql<Integer, DB>,
    {
        fn from_sql(bytes: DB::RawValue<'_>) -> deserialize::Result<Self> {
            i32::from_sql(bytes).map(Day)
        }
    }
}

crate::counted_table! {
    #[derive(Debug)]
    #[sharded(shards = 2)]
    pub Measure of measures (id) {
        id -> SmallInt = i16,
        #[sharded] small -> SmallInt = i16,
        #[sharded] medium -> Integer = i32,
        #[sharded] large -> BigInt = i64,
        #[sharded] real -> Double = f64,
        #[sharded] exact -> Numeric = bigdecimal::BigDecimal,
        #[sharded] f -> BigInt = i64,
        #[sharded] g -> BigInt = i64,
        #[sharded] h -> BigInt = i64,
    }
}

diesel::table! {
    measures_shards (id, shard) {
        id -> SmallInt,
        shard -> Integer,
        small -> SmallInt,
        medium -> Integer,
        large -> BigInt,
        real -> Double,
        exact -> Numeric,
    }
}

/// A connection that can create these tables.
pub trait Creates {
    fn create_tables(&mut self, without_foreign_keys: bool);
}

impl<Conn> Creates for Conn
where
    Conn: LoadConnection<Backend: BackendOf<Conn>>,
    videos::table: QueryFragment<Conn::Backend>,
    watchlists::table: QueryFragment<Conn::Backend>,
    downloads::table: QueryFragment<Conn::Backend>,
    measures::table: QueryFragment<Conn::Backend>,
{
    fn create_tables(&mut self, without_foreign_keys: bool) {
        macro_rules! create_shards_of {
            ($($table:ident)+) => {$(
                let shards_table = ShardsTable::of($table::table);
                create_shards(self, match without_foreign_keys {
                    true => shards_table.without_foreign_key(),
                    false => shards_table,
                });
            )+};
        }
        create_parents(self);
        create_shards_of!(videos watchlists downloads measures);
    }
}

/// Creates the tables and three videos: ids 1 to 3, slugs "a" to "c", views 100, 200, 300, likes 1, 2, 3; two
/// comments on video 3; measure 1, all zero.
pub fn create(conn: &mut impl Creates) {
    conn.create_tables(false);
}

/// The same with triggers in place of foreign keys.
pub fn create_without_foreign_keys(conn: &mut impl Creates) {
    conn.create_tables(true);
}

/// A database with these tables.
pub fn database<Conn: TestConnection + Creates>() -> (Database, Conn) {
    let database = Conn::database();
    let mut conn = Conn::connect(&database);
    create(&mut conn);
    (database, conn)
}

/// A database with these tables and the library's own.
pub fn database_with_counters<Conn>() -> (Database, Conn)
where
    Conn: TestConnection + Creates + MigrationHarness<Conn::Backend>,
    Conn::Backend: ShardedBackend,
{
    let (database, mut conn) = database::<Conn>();
    let migrated = conn.run_pending_migrations(MIGRATIONS);
    migrated.unwrap_or_else(|e| panic!("{e}"));
    (database, conn)
}

fn create_parents<Conn>(conn: &mut Conn)
where
    Conn: LoadConnection<Backend: BackendOf<Conn>>,
{
    let dialect = Conn::Backend::backend_of(conn).dialect();
    let (double, watchlists, order) = match dialect {
        Dialect::Mysql => (
            "DOUBLE",
            r#"`Watch "li``sts"' \ -- $1 ?`"#,
            r#"`or"d``er' \`"#,
        ),
        _ => (
            "DOUBLE PRECISION",
            r#""Watch ""li`sts""' \ -- $1 ?""#,
            r#""or""d`er' \""#,
        ),
    };
    let sql = format!(
        "CREATE TABLE videos (id BIGINT PRIMARY KEY, slug VARCHAR(100) NOT NULL UNIQUE, title VARCHAR(100) NOT NULL, \
             views BIGINT NOT NULL DEFAULT 0, likes INTEGER NOT NULL DEFAULT 0, channel VARCHAR(100));
         CREATE TABLE comments (id BIGINT PRIMARY KEY, video_id BIGINT NOT NULL);
         CREATE TABLE {watchlists} (name VARCHAR(100) PRIMARY KEY, {order} INTEGER NOT NULL DEFAULT 0);
         CREATE TABLE downloads (version INTEGER, day INTEGER, number INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (version, day));
         CREATE TABLE measures (id SMALLINT PRIMARY KEY, small SMALLINT NOT NULL DEFAULT 0, medium INTEGER NOT NULL DEFAULT 0, \
             large BIGINT NOT NULL DEFAULT 0, {real} {double} NOT NULL DEFAULT 0, exact DECIMAL(30, 6) NOT NULL DEFAULT 0, \
             f BIGINT NOT NULL DEFAULT 0, g BIGINT NOT NULL DEFAULT 0, h BIGINT NOT NULL DEFAULT 0);
         INSERT INTO videos VALUES (1, 'a', 'A', 100, 1, NULL), (2, 'b', 'B', 200, 2, 'news'), (3, 'c', 'C', 300, 3, 'news');
         INSERT INTO comments VALUES (1, 3), (2, 3);
         INSERT INTO measures (id) VALUES (1)",
        real = if dialect == Dialect::Mysql { "`real`" } else { "\"real\"" },
    );
    for statement in sql.split(";\n") {
        conn.batch_execute(statement)
            .unwrap_or_else(|e| panic!("{statement}: {e}"));
    }
}

pub(crate) fn create_shards<T, Conn>(conn: &mut Conn, shards_table: ShardsTable<T>)
where
    T: ShardedTable + QueryFragment<Conn::Backend>,
    Conn: LoadConnection<Backend: BackendOf<Conn>>,
{
    let created = shards_table.create(conn);
    created.unwrap_or_else(|e| panic!("{shards_table:?}: {e}"));
}
