//! MariaDB and MySQL without their strict mode cut a value to the range of its column. No shard is cut: a count that would take one
//! out of its range fails, and changes nothing.

use std::fmt::Debug;

use bigdecimal::BigDecimal;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Pool};
use diesel_migrations::MigrationHarness;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::{Counter, Error, MIGRATIONS, RowCounter, ShardsTable, update};
use diesel_sharded_tests::{Database, TestConnection, assert_matches};

diesel_sharded_tests::counted_table! {
    #[sharded(shards = 2)]
    Meter of meters (id) {
        id -> BigInt = i64,
        #[sharded] small -> SmallInt = i16,
        #[sharded] medium -> Integer = i32,
        #[sharded] large -> BigInt = i64,
        #[sharded] unsigned_small -> Unsigned<SmallInt> = u16,
        #[sharded] unsigned_medium -> Unsigned<Integer> = u32,
        #[sharded] unsigned_large -> Unsigned<BigInt> = u64,
        #[sharded] exact -> Numeric = BigDecimal,
        #[sharded] #[sharded(sql_type = "DECIMAL(10, 2)")] money -> Numeric = BigDecimal,
    }
}

const SETUP: &str = "SET sql_mode = ''";

fn database() -> (Database, MysqlConnection) {
    let database = MysqlConnection::database();
    let mut conn = MysqlConnection::connect(&database);
    conn.batch_execute(
        "CREATE TABLE meters (id BIGINT PRIMARY KEY, small SMALLINT NOT NULL DEFAULT 0, medium INT NOT NULL DEFAULT 0, \
             `large` BIGINT NOT NULL DEFAULT 0, unsigned_small SMALLINT UNSIGNED NOT NULL DEFAULT 0, \
             unsigned_medium INT UNSIGNED NOT NULL DEFAULT 0, unsigned_large BIGINT UNSIGNED NOT NULL DEFAULT 0, \
             exact DECIMAL(65, 20) NOT NULL DEFAULT 0, money DECIMAL(10, 2) NOT NULL DEFAULT 0); \
         INSERT INTO meters (id) VALUES (1)",
    )
    .unwrap();
    ShardsTable::of(meters::table).create(&mut conn).unwrap();
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    conn.batch_execute(SETUP).unwrap();
    (database, conn)
}

/// Fills all shards of meter 1 up to two below the greatest value of each column (or above the least).
fn fill(conn: &mut MysqlConnection, sign: &str) {
    conn.batch_execute(&format!(
        "REPLACE INTO meters_shards (id, shard, small, medium, `large`, unsigned_small, unsigned_medium, unsigned_large, exact, money) \
         SELECT 1, shard, {sign}32765, {sign}2147483645, {sign}9223372036854775805, {sign}99999999999999999997, \
             {sign}99999999999999999997, {sign}99999999999999999997, {sign}999999999999999999999999999999999999999999997, \
             {sign}99999997 \
         FROM (SELECT 0 AS shard UNION ALL SELECT 1) AS shards"
    ))
    .unwrap();
}

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = diesel::sql_types::Text)]
    text: String,
}

fn shards(conn: &mut MysqlConnection) -> Vec<String> {
    let rows = diesel::sql_query(
        "SELECT CONCAT_WS(' ', shard, small, medium, `large`, unsigned_small, unsigned_medium, unsigned_large, exact, money) \
             AS `text` FROM meters_shards ORDER BY shard",
    );
    let rows = rows.load::<Row>(conn).unwrap();
    rows.into_iter().map(|row| row.text).collect()
}

#[track_caller]
fn is_refused<T: Debug, E: Debug + Into<Error>>(counted: Result<T, E>) {
    let error = counted.expect_err("the value would be cut").into();
    assert_matches!(error, Error::Overflow { .. });
}

macro_rules! counts_on {
    ($conn:expr, $request:expr, $($column:ident $operator:tt $amount:expr),+) => {{
        use meters::dsl::{id, meters as all};
        let conn: &mut MysqlConnection = &mut *$conn;
        $(
            let by_key = || update(all.find(1)).set(meters::$column.eq(meters::$column $operator $amount));
            is_refused(by_key().execute(conn));
            let by_filter = update(all.filter(id.ge(1))).set(meters::$column.eq(meters::$column $operator $amount));
            is_refused(by_filter.execute(conn));
            is_refused(by_key().idempotency_key($request).execute(conn));
            is_refused(by_key().returning(id).get_results::<i64>(conn));
            is_refused(conn.transaction(|conn| by_key().execute(conn)));
        )+
    }};
}

#[derive(Debug)]
struct Lax;

impl CustomizeConnection<MysqlConnection, diesel::r2d2::Error> for Lax {
    fn on_acquire(&self, conn: &mut MysqlConnection) -> Result<(), diesel::r2d2::Error> {
        conn.batch_execute(SETUP)
            .map_err(diesel::r2d2::Error::QueryError)
    }
}

fn coalescer(database: &Database) -> Coalescer<MysqlConnection> {
    let pool = Pool::builder()
        .max_size(2)
        .connection_customizer(Box::new(Lax));
    Coalescer::new(pool.build(ConnectionManager::new(database.url())).unwrap()).unwrap()
}

#[test]
fn a_full_shard_is_not_cut() {
    let (database, conn) = &mut database();
    fill(conn, "");
    let before = shards(conn);
    let ten = BigDecimal::from(10);
    counts_on!(
        conn,
        "up",
        small + 10,
        medium + 10,
        large + 10,
        unsigned_small + 10,
        unsigned_medium + 10,
        unsigned_large + 10,
        exact + ten.clone(),
        money + ten.clone()
    );
    let coalescer = coalescer(database);
    let (small_1, medium_1) = (
        RowCounter::of(meters::small, 1),
        RowCounter::of(meters::medium, 1),
    );
    coalescer.add_later(&small_1, 10).unwrap();
    coalescer
        .add_later(&RowCounter::of(meters::unsigned_medium, 1), 10)
        .unwrap();
    coalescer.flush().unwrap();
    assert_eq!(coalescer.stats().losses, 2);
    assert_eq!(shards(conn), before);
    fill(conn, "-");
    let before = shards(conn);
    counts_on!(
        conn,
        "down",
        small - 10,
        medium - 10,
        large - 10,
        unsigned_small - 10,
        unsigned_medium - 10,
        unsigned_large - 10,
        exact - ten.clone(),
        money - ten.clone()
    );
    coalescer.add_later(&medium_1, -10).unwrap();
    assert_matches!(coalescer.close(), Err(Error::NotFlushed { lost: 1, .. }));
    assert_eq!(shards(conn), before);
}

#[test]
fn a_bounded_counter_is_not_cut() {
    let (_database, conn) = &mut database();
    conn.batch_execute("REPLACE INTO meters_shards (id, shard, small) VALUES (1, 0, 32765)")
        .unwrap();
    let meter = || RowCounter::of(meters::small, 1);
    is_refused(meter().never_below(0).add(10, conn));
    is_refused(meter().never_below(0).add(3, conn));
    assert_eq!(meter().get(conn), Ok(Some(32765)));
    assert_eq!(meter().never_below(0).add(2, conn), Ok(true));
    assert_eq!(meter().get(conn), Ok(Some(32767)));
}

#[test]
fn a_named_counter_is_not_cut() {
    let (database, mut conn) = database();
    let (conn, counter) = (&mut conn, Counter::named("full"));
    counter.add(1, conn).unwrap();
    conn.batch_execute(
        "REPLACE INTO diesel_sharded_counter_shards (name, shard, value) \
         WITH RECURSIVE shards (shard) AS (SELECT 0 UNION ALL SELECT shard + 1 FROM shards WHERE shard < 127) \
         SELECT 'full', shard, 9223372036854775800 FROM shards",
    )
    .unwrap();
    is_refused(counter.add(100, conn));
    let coalescer = coalescer(&database);
    coalescer.add_later(&counter, 100).unwrap();
    assert_matches!(coalescer.close(), Err(Error::NotFlushed { lost: 1, .. }));
    let rows = diesel::sql_query(
        "SELECT DISTINCT CONCAT(value) AS `text` FROM diesel_sharded_counter_shards",
    );
    let values: Vec<Row> = rows.load(conn).unwrap();
    assert_eq!(values.len(), 1);
    assert_eq!(values[0].text, "9223372036854775800");
}
