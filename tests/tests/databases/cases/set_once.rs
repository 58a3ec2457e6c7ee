//! Totals that are set, reset and deleted under an idempotency key.

use super::set_total::totals;
use super::support::*;
use diesel_sharded_tests::schema::videos::dsl::*;

#[test]
fn rows_are_set_and_reset_once() {
    let conn = &mut set_up_with_counters().conn;
    for repeat in 0..3 {
        let set = set_total(videos.filter(id.le(2)), views, 7).idempotency_key("a");
        gives!(set.execute(conn), 2);
        let (set, other) = (7 + repeat, 300 + repeat);
        assert_eq!(totals(conn), [(set, 1), (set, 2), (other, 3)]);
        count!(videos, views.eq(views + 1), conn);
    }
    for repeat in 0..2 {
        let reset = reset(videos.find(3)).idempotency_key("b");
        gives!(reset.execute(conn), 1);
        assert_eq!(totals(conn)[2], (repeat, 0));
        count(3, 1, conn).unwrap();
    }
}

#[test]
fn a_key_stands_for_one_set() {
    let conn = &mut set_up_with_counters().conn;
    let set = |row: i64, total: i64| set_total(videos.find(row), views, total).idempotency_key("a");
    gives!(set(1, 7).execute(conn), 1);
    assert!(is_reused(set(1, 8).execute(conn).done()));
    assert!(is_reused(set(2, 7).execute(conn).done()));
    let other_field = set_total(videos.find(1), likes, 7).idempotency_key("a");
    assert!(is_reused(other_field.execute(conn).done()));
    let reset = reset(videos.find(1)).idempotency_key("a");
    assert!(is_reused(reset.execute(conn).done()));
    let count = update(videos.find(1)).set(views.eq(views + 7));
    assert!(is_reused(count.idempotency_key("a").execute(conn).done()));
    let named = Counter::named("x").idempotency_key("a");
    assert!(is_reused(named.set(7, conn).done()));
    assert_eq!(totals(conn), [(7, 1), (200, 2), (300, 3)]);
}

#[test]
fn a_set_that_fails_or_meets_no_row_leaves_no_key() {
    let conn = &mut set_up_with_counters().conn;
    let none = set_total(videos.find(9), views, 7).idempotency_key("a");
    gives!(none.execute(conn), 0);
    let counter = Counter::named("x");
    gives!(counter.idempotency_key("a").delete(conn), false);
    rolled_back(conn, |conn| {
        let set = set_total(videos.find(1), views, 7).idempotency_key("a");
        gives!(set.execute(conn), 1);
        counter.idempotency_key("b").set(7, conn).unwrap();
    });
    assert_eq!(number_of_keys(conn), 0);
    assert_eq!(totals(conn)[0], (100, 1));
    gives!(counter.get(conn), 0);
}

#[test]
fn named_counters_are_set_reset_and_deleted_once() {
    let conn = &mut set_up_with_counters().conn;
    let counter = Counter::named("x");
    for total in [7, 8] {
        counter.idempotency_key("set").set(7, conn).unwrap();
        gives!(counter.get(conn), total);
        counter.increment(conn).unwrap();
    }
    for total in [0, 1] {
        counter.idempotency_key("reset").reset(conn).unwrap();
        gives!(counter.get(conn), total);
        counter.increment(conn).unwrap();
    }
    for total in [0, 1] {
        gives!(counter.idempotency_key("delete").delete(conn), true);
        gives!(counter.get(conn), total);
        counter.increment(conn).unwrap();
    }
    let keyed = counter.idempotency_key("set");
    assert!(is_reused(keyed.set(8, conn).done()));
    assert!(is_reused(keyed.add(7, conn).done()));
    assert!(is_reused(keyed.delete(conn).done()));
    gives!(counter.get(conn), 2);
}

/// Eight connections ask for the same beside increments: each set is done once, and no increment that follows it is lost.
#[test]
fn racing_repeats_set_once() {
    let Connected { conn, database } = &mut set_up_with_counters();
    let counter = Counter::named("x");
    on_threads(8, database, |_, conn| {
        for round in 1..=5 {
            let key = format!("round {round}");
            let set = set_total(videos.find(1), views, 1_000 * round);
            gives!(set.idempotency_key(&key).execute(conn), 1);
            let named = counter.idempotency_key(key + " of x");
            named.set(1_000 * round, conn).unwrap();
            count(1, 1, conn).unwrap();
            counter.increment(conn).unwrap();
        }
    });
    // The first to come to the last round sets, and at least its own increment follows; the others may be rounds behind.
    for total in [totals(conn)[0].0, counter.get(conn).unwrap()] {
        assert!((5_001..=5_040).contains(&total), "{total}");
    }
    assert_eq!(number_of_keys(conn), 10);
}
