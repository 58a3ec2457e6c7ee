//! Keys of sharded tables.

use std::cell::RefCell;
use std::collections::BTreeMap;

use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_sharded::backend::Dialect;
use diesel_sharded::{RowCounter, ShardsTable, fold, update};
use diesel_sharded_tests::fixture::Run;
use diesel_sharded_tests::{Database, TestConnection, number};
use proptest::prelude::*;

use super::{Conn, dialect, for_all, texts};

mod schema {
    diesel_sharded_tests::counted_table! {
        #[sharded(shards = 4)]
        Word of words (word) {
            word -> Text = String,
            #[sharded] hits -> BigInt = i64,
        }
    }
    diesel_sharded_tests::counted_table! {
        #[sharded(shards = 4)]
        Pair of pairs (word, bytes) {
            word -> Text = String,
            bytes -> Binary = Vec<u8>,
            #[sharded] hits -> BigInt = i64,
        }
    }
}
use schema::{pairs, words};

/// Two tables whose texts are the same only if their bytes are.
fn database() -> (Database, Conn) {
    let database = Conn::database();
    let mut conn = Conn::connect(&database);
    let bytes = match dialect(&conn) {
        Dialect::Postgres => "BYTEA",
        Dialect::Mysql => "VARBINARY(255)",
        _ => "BLOB",
    };
    if dialect(&conn) == Dialect::Mysql {
        let collation = match conn.version().contains("MariaDB") {
            true => "utf8mb4_nopad_bin",
            false => "utf8mb4_0900_bin",
        };
        let name = database.url().rsplit('/').next().unwrap();
        conn.run(&format!(
            "ALTER DATABASE {name} CHARACTER SET utf8mb4 COLLATE {collation}"
        ));
    }
    conn.run("CREATE TABLE words (word VARCHAR(255) PRIMARY KEY, hits BIGINT NOT NULL DEFAULT 0)");
    conn.run(&format!(
        "CREATE TABLE pairs (word VARCHAR(255) NOT NULL, bytes {bytes} NOT NULL, hits BIGINT NOT NULL DEFAULT 0, \
             PRIMARY KEY (word, bytes))"
    ));
    ShardsTable::of(words::table).create(&mut conn).unwrap();
    ShardsTable::of(pairs::table).create(&mut conn).unwrap();
    (database, conn)
}

/// A fold goes through all keys in their order, some at a time, and leaves these bases.
macro_rules! folds {
    ($table:expr, $key:expr, $hits:expr, $conn:expr) => {{
        let folded = fold($table).batch(7).keep_shards(0).run($conn).unwrap();
        let all = folded.unfit.is_empty() && folded.busy.is_empty();
        assert!(all, "{folded:?}");
        let bases: Vec<(_, i64)> = $table.select(($key, $hits)).load($conn).unwrap();
        bases.into_iter().collect::<BTreeMap<_, _>>()
    }};
}

#[test]
fn hostile_keys_name_exactly_one_row() {
    let (_database, conn) = database();
    let dialect = dialect(&conn);
    let state = RefCell::new((conn, BTreeMap::<String, i64>::new()));
    let cases = (texts(9), -9..9i64, texts(3));
    for_all(150, cases, |(key, n, absent)| {
        let (conn, model) = &mut *state.borrow_mut();
        let inserted = diesel::insert_into(words::table)
            .values(words::word.eq(&key))
            .execute(conn);
        let add = || words::hits.eq(words::hits + n);
        let count = |key: &str, conn: &mut Conn| {
            let rows = words::table.find(key.to_owned());
            update(rows).set(add()).execute(conn)
        };
        let counted = count(&key, conn);
        if dialect == Dialect::Postgres && key.contains('\0') {
            // Its texts cannot hold a NUL, and it returns an error.
            let is_told = matches!(&counted, Err(DieselError::DatabaseError(DatabaseErrorKind::Unknown, text)) if text.message().contains("0x00"));
            prop_assert!(is_told && inserted.is_err(), "{:?}", counted);
        } else {
            let is_there = model.contains_key(&key);
            prop_assert_eq!(inserted.is_ok(), !is_there, "{:?}", inserted);
            prop_assert_eq!(counted, Ok(1));
            let rows = words::table.filter(words::word.eq_any([&key]));
            let filtered = update(rows)
                .set(add())
                .returning((words::word, words::hits));
            let filtered = filtered.get_result::<(String, i64)>(conn);
            let by_key = RowCounter::of(words::hits, key.clone());
            prop_assert_eq!(by_key.add(n, conn), Ok(1));
            let total = model.entry(key.clone()).or_insert(0);
            *total += 3 * n;
            prop_assert_eq!(filtered, Ok((key.clone(), *total - n)));
            prop_assert_eq!(by_key.get(conn), Ok(Some(*total)));
        }
        // A key without a row is not counted, and gets no shard.
        let absent = format!("absent {absent}");
        let is_text = dialect != Dialect::Postgres || !absent.contains('\0');
        if is_text && !model.contains_key(&absent) {
            prop_assert_eq!(count(&absent, conn), Ok(0));
        }
        let rows: i64 = words::table.count().get_result(conn).unwrap();
        prop_assert_eq!(rows, model.len() as i64);
        Ok(())
    });
    let (conn, model) = &mut *state.borrow_mut();
    let bases = folds!(words::table, words::word, words::hits, conn);
    assert_eq!(bases, *model);
    assert_eq!(number!("(SELECT COUNT(*) FROM words_shards)", conn), 0);
}

/// Texts, and bytes that are no text.
#[test]
fn hostile_composite_keys_name_exactly_one_row() {
    let (_database, conn) = database();
    let dialect = dialect(&conn);
    let state = RefCell::new((conn, BTreeMap::<(String, Vec<u8>), i64>::new()));
    let bytes = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..9),
        texts(3).prop_map(String::into_bytes),
        Just(vec![0xC3, 0x28, 0, 0xFF]), // no UTF-8
    ];
    for_all(100, (texts(4), bytes, -9..9i64), |(text, bytes, n)| {
        if dialect == Dialect::Postgres && text.contains('\0') {
            return Ok(());
        }
        let (conn, model) = &mut *state.borrow_mut();
        let key = (text.clone(), bytes.clone());
        let counted = update(pairs::table.find(key.clone()))
            .set(pairs::hits.eq(pairs::hits + n))
            .or_insert((pairs::word.eq(&text), pairs::bytes.eq(&bytes)))
            .execute(conn);
        prop_assert_eq!(counted, Ok(1));
        let total = model.entry(key.clone()).or_insert(0);
        *total += n;
        prop_assert_eq!(RowCounter::of(pairs::hits, key).get(conn), Ok(Some(*total)));
        let rows: i64 = pairs::table.count().get_result(conn).unwrap();
        prop_assert_eq!(rows, model.len() as i64);
        Ok(())
    });
    let (conn, model) = &mut *state.borrow_mut();
    let key = (pairs::word, pairs::bytes);
    assert_eq!(folds!(pairs::table, key, pairs::hits, conn), *model);
}
