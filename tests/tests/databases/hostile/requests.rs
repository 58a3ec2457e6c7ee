//! Idempotency keys.

use std::cell::RefCell;
use std::collections::HashMap;

use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::{Error, RowCounter};
use diesel_sharded_tests::fixture::Fixture;
use diesel_sharded_tests::schema::videos::dsl::*;
use proptest::prelude::*;

use super::{Conn, database, for_all, texts};

diesel::table! {
    #[sql_name = "diesel_sharded_idempotency_keys"]
    stored_keys (key) {
        key -> Binary,
        counted -> BigInt,
    }
}

/// Any bytes, few or many, and fragments that have a meaning as text.
fn keys() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => proptest::collection::vec(any::<u8>(), 0..4),
        2 => proptest::collection::vec(any::<u8>(), 250..260),
        4 => texts(6).prop_map(String::into_bytes),
    ]
}

#[test]
fn hostile_keys_are_known_by_their_bytes() {
    let (_database, conn) = database();
    // The amounts requested under each key, and the total.
    let conn = RefCell::new((conn, HashMap::<Vec<u8>, i64>::new(), 100));
    for_all(250, (keys(), -2..3_i64), |(key, n)| {
        let (conn, asked, total) = &mut *conn.borrow_mut();
        for _ in 0..2 {
            let counted = RowCounter::of(views, 1).idempotency_key(&key).add(n, conn);
            if !(1..=255).contains(&key.len()) {
                let error = Error::from(counted.unwrap_err());
                let bytes = key.len();
                let is_refused =
                    matches!(error, Error::InvalidIdempotencyKey { bytes: told } if told == bytes);
                prop_assert!(is_refused, "{:?}", error);
            } else if *asked.entry(key.clone()).or_insert(n) == n {
                prop_assert_eq!(counted, Ok(1));
            } else {
                let error = Error::from(counted.unwrap_err());
                let is_reused = matches!(error, Error::IdempotencyKeyReused);
                prop_assert!(is_reused, "{:?}", error);
            }
        }
        *total = 100 + asked.values().sum::<i64>();
        let read = videos.find(1).select(views.total()).first::<i64>(conn);
        prop_assert_eq!(read, Ok(*total));
        let stored = stored_keys::table.count().get_result::<i64>(conn);
        prop_assert_eq!(stored, Ok(asked.len() as i64));
        Ok(())
    });
}

/// A number of rows that another writer stored there is returned as far as a `usize` can hold it.
#[test]
fn hostile_numbers_of_rows_are_told_as_far_as_they_go() {
    let [conn] = &mut *Fixture::<Conn, _>::with_counters();
    let count = |conn: &mut Conn| RowCounter::of(views, 1).idempotency_key("a").add(1, conn);
    assert_eq!(count(conn), Ok(1));
    let (most, beyond) = (i64::MAX as usize, usize::MAX);
    for (written, told) in [(0, 0), (i64::MAX, most), (-1, beyond), (i64::MIN, beyond)] {
        let changed = diesel::update(stored_keys::table).set(stored_keys::counted.eq(written));
        assert_eq!(changed.execute(conn), Ok(1));
        assert_eq!(count(conn), Ok(told));
    }
    let read = videos.find(1).select(views.total()).first::<i64>(conn);
    assert_eq!(read, Ok(101));
}
