//! MariaDB and MySQL without their strict mode cut a value to the range of its column. No shard is cut: an increment that would take one
//! out of its range fails, and changes nothing.

use std::fmt::Debug;

use bigdecimal::BigDecimal;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::{Counter, Error, MIGRATIONS, RowCounter, ShardsTable, update};
use diesel_sharded_tests::fixture::{Fixture, Run};
use diesel_sharded_tests::{Database, assert_matches, pool_with, texts};

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

fn database<const N: usize>() -> Fixture<MysqlConnection, N> {
    let mut own = Fixture::<_, N>::empty();
    let conn: &mut MysqlConnection = &mut own[0];
    conn.run(
        "CREATE TABLE meters (id BIGINT PRIMARY KEY, small SMALLINT NOT NULL DEFAULT 0, medium INT NOT NULL DEFAULT 0, \
             `large` BIGINT NOT NULL DEFAULT 0, unsigned_small SMALLINT UNSIGNED NOT NULL DEFAULT 0, \
             unsigned_medium INT UNSIGNED NOT NULL DEFAULT 0, unsigned_large BIGINT UNSIGNED NOT NULL DEFAULT 0, \
             exact DECIMAL(65, 20) NOT NULL DEFAULT 0, money DECIMAL(10, 2) NOT NULL DEFAULT 0); \
         INSERT INTO meters (id) VALUES (1)",
    );
    ShardsTable::of(meters::table).create(conn).unwrap();
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    conn.run(SETUP);
    own
}

/// Fills all shards of meter 1 up to two below the greatest value of each column (or above the least).
fn fill(conn: &mut MysqlConnection, sign: &str) {
    conn.run(&format!(
        "REPLACE INTO meters_shards (id, shard, small, medium, `large`, unsigned_small, unsigned_medium, unsigned_large, exact, money) \
         SELECT 1, shard, {sign}32765, {sign}2147483645, {sign}9223372036854775805, {sign}99999999999999999997, \
             {sign}99999999999999999997, {sign}99999999999999999997, {sign}999999999999999999999999999999999999999999997, \
             {sign}99999997 \
         FROM (SELECT 0 AS shard UNION ALL SELECT 1) AS shards"
    ));
}

fn shards(conn: &mut MysqlConnection) -> Vec<String> {
    let columns = "shard, small, medium, `large`, unsigned_small, unsigned_medium, unsigned_large, exact, money";
    let sql = format!("CONCAT_WS(' ', {columns}) FROM meters_shards ORDER BY shard");
    texts!(&sql, conn)
}

#[track_caller]
fn is_refused<T: Debug, E: Debug + Into<Error>>(counted: Result<T, E>) {
    let error = counted.expect_err("the value would be cut").into();
    assert_matches!(error, Error::Overflow { .. });
}

/// An increment on this column is refused in each form.
macro_rules! all_refused {
    ($operator:tt $amount:expr, $request:expr, $conn:expr => $($column:ident)+) => {{
        use meters::dsl::{id, meters as all};
        let conn: &mut MysqlConnection = &mut *$conn;
        $(
            let change = || meters::$column.eq(meters::$column $operator $amount);
            let by_key = || update(all.find(1)).set(change());
            is_refused(by_key().execute(conn));
            is_refused(update(all.filter(id.ge(1))).set(change()).execute(conn));
            is_refused(by_key().idempotency_key($request).execute(conn));
            is_refused(by_key().returning(id).get_results::<i64>(conn));
            is_refused(conn.transaction(|conn| by_key().execute(conn)));
        )+
    }};
}

fn coalescer(database: &Database) -> Coalescer<MysqlConnection> {
    Coalescer::new(pool_with(database.url(), &[SETUP])).unwrap()
}

#[test]
fn a_full_shard_is_not_cut() {
    let own = &mut database();
    let (database, [conn]) = own.parts();
    let ten = || BigDecimal::from(10);
    let coalescer = coalescer(database);
    for (sign, up) in [("", true), ("-", false)] {
        fill(conn, sign);
        let before = shards(conn);
        if up {
            all_refused!(+ 10, "up", conn => small medium large unsigned_small unsigned_medium unsigned_large);
            all_refused!(+ ten(), "up", conn => exact money);
            coalescer
                .add_later(&RowCounter::of(meters::small, 1), 10)
                .unwrap();
            coalescer
                .add_later(&RowCounter::of(meters::unsigned_medium, 1), 10)
                .unwrap();
        } else {
            all_refused!(- 10, "down", conn => small medium large unsigned_small unsigned_medium unsigned_large);
            all_refused!(- ten(), "down", conn => exact money);
            coalescer
                .add_later(&RowCounter::of(meters::medium, 1), -10)
                .unwrap();
        }
        coalescer.flush().unwrap();
        assert_eq!(shards(conn), before);
    }
    assert_eq!(coalescer.stats().losses, 3);
}

#[test]
fn a_bounded_counter_is_not_cut() {
    let [conn] = &mut *database();
    conn.run("REPLACE INTO meters_shards (id, shard, small) VALUES (1, 0, 32765)");
    let meter = || RowCounter::of(meters::small, 1);
    is_refused(meter().never_below(0).add(10, conn));
    is_refused(meter().never_below(0).add(3, conn));
    assert_eq!(meter().get(conn), Ok(Some(32765)));
    assert_eq!(meter().never_below(0).add(2, conn), Ok(true));
    assert_eq!(meter().get(conn), Ok(Some(32767)));
}

#[test]
fn a_named_counter_is_not_cut() {
    let own = &mut database();
    let (database, [conn]) = own.parts();
    let counter = Counter::named("full");
    counter.add(1, conn).unwrap();
    conn.run(
        "REPLACE INTO diesel_sharded_counter_shards (name, shard, value) \
         WITH RECURSIVE shards (shard) AS (SELECT 0 UNION ALL SELECT shard + 1 FROM shards WHERE shard < 127) \
         SELECT 'full', shard, 9223372036854775800 FROM shards",
    );
    is_refused(counter.add(100, conn));
    let coalescer = coalescer(database);
    coalescer.add_later(&counter, 100).unwrap();
    assert_matches!(coalescer.close(), Err(Error::NotFlushed { lost: 1, .. }));
    let values = "DISTINCT CONCAT(value) FROM diesel_sharded_counter_shards";
    let values = texts!(values, conn);
    assert_eq!(values, ["9223372036854775800"]);
}
