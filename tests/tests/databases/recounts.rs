//! Recounts: keys of texts, which each database compares by its collations, and numbers of every type.

use bigdecimal::BigDecimal;
use diesel::dsl::count_star;
use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::{CounterCache, Error, ShardsTable, verify};
use diesel_sharded_tests::edit;
use diesel_sharded_tests::fixture::{Fixture, Run};

diesel_sharded_tests::counted_table! {
    Tag of tags (name) {
        #[sharded(sql_type = "VARCHAR(20)")] name -> Text = String,
        #[sharded] uses -> BigInt = i64,
    }
}
diesel::table! { taggings (id) { id -> BigInt, tag -> Text, } }

diesel_sharded_tests::counted_table! {
    Shop of shops (id) {
        id -> BigInt = i64,
        #[sharded] items -> BigInt = i64,
        #[sharded] sales -> SmallInt = i16,
        #[sharded] spent -> Numeric = BigDecimal,
        #[sharded] weight -> Double = f64,
        #[sharded] sales_n -> Numeric = BigDecimal,
        #[sharded] sales_d -> Double = f64,
    }
}

diesel::table! {
    orders (id) {
        id -> BigInt,
        shop_id -> BigInt,
        items -> Integer,
        spent -> Nullable<Numeric>,
        weight -> Double,
    }
}

macro_rules! on {
    ($database:ident, $conn:ty, $ignores_case:literal, $before:literal) => {
        mod $database {
            use super::*;

            type Conn = $conn;

            fn totals(conn: &mut Conn) -> Vec<(String, i64)> {
                let totals = tags::table.select((tags::name, tags::uses.total()));
                totals.order(tags::name).load(conn).unwrap()
            }

            /// Three rows name the tag `Rust`, none of them as another does.
            #[test]
            fn keys_compare_as_the_parents_column_does() {
                let [conn] = &mut *Fixture::<Conn, _>::empty();
                conn.run($before);
                let table = ShardsTable::of(tags::table);
                let table = table.create_sql(&<Conn as Connection>::Backend::default());
                for sql in [
                    concat!("CREATE TABLE tags (name ", $ignores_case, " PRIMARY KEY, uses BIGINT NOT NULL DEFAULT 0)"),
                    &table.unwrap().replace("VARCHAR(20)", $ignores_case),
                    concat!("CREATE TABLE taggings (id BIGINT PRIMARY KEY, tag ", $ignores_case, " NOT NULL)"),
                    "INSERT INTO tags (name) VALUES ('Rust'), ('go')",
                ] {
                    conn.run(sql);
                }
                let cache = CounterCache::of(tags::uses).counts(taggings::tag);
                cache.create(conn).unwrap();
                conn.run("INSERT INTO taggings VALUES (0, 'rust'), (1, 'RUST'), (2, 'rUST'), (3, 'GO'), (4, 'none')");
                let right = [("go".to_owned(), 1), ("Rust".to_owned(), 3)];
                assert_eq!(totals(conn), right);
                assert_eq!(cache.verify().drifts(conn), Ok(vec![]));
                assert_eq!(cache.verify().repair(conn), Ok(vec![]));
                // A recount that tells more keys apart than the parent.
                let recount = || {
                    let lower = diesel::dsl::sql::<diesel::sql_types::Text>("LOWER(tag)");
                    let each = taggings::table.group_by((taggings::id, taggings::tag));
                    (each.select((taggings::tag, count_star())), taggings::table.select((lower, taggings::id)))
                };
                for number in [5, 7] {
                    edit!(tags::table, tags::uses.eq(number), conn);
                    let drifts = match number {
                        5 => cache.verify().repair(conn),
                        _ => verify(tags::table.filter(tags::name.eq("RUST")), tags::uses, recount().0).repair(conn),
                    };
                    let drifts = drifts.unwrap();
                    assert!(drifts.iter().any(|drift| drift.key == "Rust" && drift.expected == 3), "{drifts:?}");
                    let found = totals(conn);
                    assert_eq!(found[1], right[1]);
                    assert_eq!(found[0].1, if number == 5 { 1 } else { 8 });
                }
                // Two numbers for one and the same key are a mistake still.
                let refused = verify(tags::table, tags::uses, recount().1).drifts(conn);
                let refused = Error::from(refused.unwrap_err()).to_string();
                assert!(refused.contains("this one gave two"), "{refused}");
            }

            /// Numbers and sums of rows are those of the field's own type.
            #[test]
            fn caches_of_every_type_are_repaired_exactly() {
                let [conn] = &mut *Fixture::<Conn, _>::empty();
                for sql in [
                    "CREATE TABLE shops (id BIGINT PRIMARY KEY, items BIGINT NOT NULL DEFAULT 0, sales SMALLINT NOT NULL DEFAULT 0, \
                         spent DECIMAL(20, 4) NOT NULL DEFAULT 0, weight DOUBLE PRECISION NOT NULL DEFAULT 0, \
                         sales_n DECIMAL(20, 4) NOT NULL DEFAULT 0, sales_d DOUBLE PRECISION NOT NULL DEFAULT 0)",
                    "CREATE TABLE orders (id BIGINT PRIMARY KEY, shop_id BIGINT NOT NULL, items INTEGER NOT NULL, \
                         spent DECIMAL(20, 4), weight DOUBLE PRECISION NOT NULL)",
                    "INSERT INTO shops (id) VALUES (1), (2), (3)",
                    "INSERT INTO orders VALUES (1, 1, 3, 9.30, 0.75), (2, 2, 4, 100.75, 0.1), (3, 2, 4, NULL, 0.2)",
                ] {
                    conn.run(sql);
                }
                ShardsTable::of(shops::table).create(conn).unwrap();
                macro_rules! repaired {
                    ($field:ident, $cache:expr, $expected:expr) => {
                        $cache.create(conn).unwrap();
                        let drifts = $cache.verify().repair(conn).unwrap();
                        assert_eq!(drifts.len(), 2, "{drifts:?}");
                        assert_eq!($cache.verify().drifts(conn), Ok(vec![]));
                        let totals = shops::table.order(shops::id).select(shops::$field.total());
                        assert_eq!(totals.load(conn), Ok($expected.to_vec()));
                    };
                }
                macro_rules! of {
                    ($field:ident) => {
                        CounterCache::of(shops::$field).counts(orders::shop_id)
                    };
                }
                let decimals = |numbers: [&str; 3]| numbers.map(|n| n.parse::<BigDecimal>().unwrap());
                repaired!(items, of!(items).sums(orders::items), [3_i64, 8, 0]);
                repaired!(sales, of!(sales), [1_i16, 2, 0]);
                repaired!(sales_n, of!(sales_n), decimals(["1", "2", "0"]));
                repaired!(sales_d, of!(sales_d), [1.0_f64, 2.0, 0.0]);
                repaired!(weight, of!(weight).sums(orders::weight), [0.75, 0.1 + 0.2, 0.0]);
                let spent = match stringify!($database) {
                    // Which keeps doubles: Diesel reads them with all their digits.
                    "sqlite" => [9.3, 100.75, 0.0].map(|n| BigDecimal::try_from(n).unwrap()),
                    _ => decimals(["9.30", "100.75", "0"]),
                };
                repaired!(spent, of!(spent).sums(orders::spent), spent);
            }
        }
    };
}

on!(
    postgres,
    PgConnection,
    "VARCHAR(20) COLLATE ignores_case",
    "CREATE COLLATION ignores_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
);
on!(mysql, MysqlConnection, "VARCHAR(20)", "DO 0");
on!(
    sqlite,
    SqliteConnection,
    "VARCHAR(20) COLLATE NOCASE",
    "PRAGMA user_version"
);

diesel_sharded_tests::counted_table! {
    File of files (id) {
        id -> BigInt = i64,
        #[sharded] reads_of -> Unsigned<BigInt> = u64,
    }
}
diesel::table! { reads (id) { id -> BigInt, file_id -> BigInt, bytes -> Unsigned<BigInt>, } }

/// Beyond every `i64`, as the total and as what it lacks.
#[test]
fn a_cache_of_a_large_unsigned_field() {
    let [conn] = &mut *Fixture::<MysqlConnection, _>::empty();
    conn.run(
        "CREATE TABLE files (id BIGINT PRIMARY KEY, reads_of BIGINT UNSIGNED NOT NULL DEFAULT 0);
         CREATE TABLE `reads` (id BIGINT PRIMARY KEY, file_id BIGINT NOT NULL, bytes BIGINT UNSIGNED NOT NULL);
         INSERT INTO files (id) VALUES (1), (2);
         INSERT INTO `reads` VALUES (1, 1, 18446744073709551610), (2, 1, 5), (3, 2, 7)",
    );
    ShardsTable::of(files::table).create(conn).unwrap();
    let cache = CounterCache::of(files::reads_of).counts(reads::file_id);
    let cache = cache.sums(reads::bytes);
    cache.create(conn).unwrap();
    let repaired = cache.verify().repair(conn).unwrap();
    let mut expected: Vec<_> = repaired.iter().map(|drift| drift.expected).collect();
    expected.sort();
    assert_eq!(expected, [7, i128::from(u64::MAX)]);
    assert_eq!(cache.verify().drifts(conn), Ok(vec![]));
    let totals = files::table.select(files::reads_of.total());
    let totals = totals.order(files::id).load::<u64>(conn);
    assert_eq!(totals, Ok(vec![u64::MAX, 7]));
}
