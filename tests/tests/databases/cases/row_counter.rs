//! One field of one row as a value.

use super::support::*;
use diesel_sharded_tests::schema::measures;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::sent;

#[test]
fn adding_0_tells_whether_there_is_a_row_and_writes_nothing() {
    let conn = &mut set_up().conn;
    let (there, statements) = sent(conn, |conn| RowCounter::of(views, 1).add(0, conn).done());
    assert_eq!(there, Ok(1));
    assert_eq!(statements.len(), 1, "{statements:?}");
    assert!(statements[0].contains("SELECT 1 FROM"), "{statements:?}");
    gives!(RowCounter::of(views, 9).add(0, conn), 0);
    gives!(RowCounter::of(views, 1).add_and_get(0, conn), Some(100));
    gives!(RowCounter::of(views, 9).add_and_get(0, conn), None);
    let stock = |row| RowCounter::of(views, row).never_below(0);
    gives!(stock(1).add(0, conn), true);
    assert_eq!(stock(9).add(0, conn).done(), Err(DieselError::NotFound));
    assert_eq!(videos_shards::table.count().get_result(conn), Ok(0_i64));
}

#[test]
fn the_new_total_comes_back() {
    let conn = &mut set_up().conn;
    let of_1 = RowCounter::of(views, 1);
    gives!(of_1.add_and_get(5, conn), Some(105));
    gives!(of_1.add_and_get(-7, conn), Some(98));
    assert_eq!(fold(videos).run(conn).unwrap().parents, 1);
    gives!(of_1.add_and_get(2, conn), Some(100));
    gives!(RowCounter::of(likes, 3).add_and_get(1, conn), Some(4));
    gives!(RowCounter::of(views, 9).add_and_get(1, conn), None);
    let small = RowCounter::of(measures::small, 1_i16);
    gives!(small.add_and_get(i16::MAX.into(), conn), Some(32_767));
    assert!(small.add_and_get(1, conn).done().is_err());
    gives!(small.get(conn), Some(32_767));
}

#[test]
fn a_key_counts_once_and_stands_for_one_addition() {
    let conn = &mut set_up_with_counters().conn;
    let of = |row, key: &str| RowCounter::of(views, row).idempotency_key(key);
    for _ in 0..2 {
        gives!(of(1, "a").add(5, conn), 1);
        gives!(of(1, "b").add(0, conn), 1);
        gives!(of(9, "c").add(5, conn), 0);
        gives!(of(9, "d").add(0, conn), 0);
    }
    assert!(is_reused(of(1, "a").add(6, conn).done()));
    assert!(is_reused(of(1, "b").add(1, conn).done()));
    gives!(of(2, "c").add(1, conn), 1); // it was not used
    assert_eq!(totals(conn), [105, 201, 300]);
}

/// Each total holds the increments that this writer has read before, and its own.
#[test]
fn new_totals_of_8_writers_rise_beside_folds() {
    let Connected { conn, database } = &mut set_up();
    totals_rise(100, database, |writer, conn| {
        let total = RowCounter::of(views, 1).add_and_get(1, conn).unwrap();
        if writer == 0 {
            let _ = fold(videos.find(1)).run(conn).unwrap();
        }
        total.unwrap()
    });
    assert_eq!(total_of(1, conn), 260);
}
