//! The deploys of the guide's chapter on adopting and leaving: while an old binary and a new one run side by side, nothing is
//! lost, and no reader sees too little.

use std::sync::atomic::{AtomicI64, Ordering};

use diesel::prelude::*;
use diesel_sharded::{ShardsTable, fold, update};
use diesel_sharded_tests::count;
use diesel_sharded_tests::schema::videos as table;
use diesel_sharded_tests::schema::videos::dsl::*;

use super::{Conn, database, on_threads, total_of};

const COUNTS: i64 = 60;

fn count_on_the_base(conn: &mut Conn) {
    let counted = diesel::update(videos.find(1)).set(views.eq(views + 1));
    assert_eq!(counted.execute(conn), Ok(1));
}

fn count_on_shards(conn: &mut Conn) {
    assert_eq!(count!(videos.find(1), views.eq(views + 1), conn), 1);
}

fn total(conn: &mut Conn) -> i64 {
    total_of(1, conn)
}

fn base(conn: &mut Conn) -> i64 {
    videos.find(1).select(views).first(conn).unwrap()
}

/// Reads until nobody counts any more; the total never falls, nor is it less than at first.
fn watch(counting: &AtomicI64, at_first: i64, mut read: impl FnMut() -> i64) {
    let mut last = at_first;
    while counting.load(Ordering::SeqCst) > 0 {
        let now = read();
        assert!(now >= last, "{now} after {last}");
        last = now;
    }
}

/// Deploys 2 and 3: some processes still count on the base, others on shards, one folds already; all read totals.
#[test]
fn base_and_shards_are_counted_on_beside_folds() {
    let (database, mut conn) = database();
    let counting = AtomicI64::new(6);
    on_threads(8, &database, |number, conn| match number {
        0..6 => {
            for _ in 0..COUNTS {
                match number % 2 {
                    0 => count_on_the_base(conn),
                    _ => count_on_shards(conn),
                }
            }
            counting.fetch_sub(1, Ordering::SeqCst);
        }
        6 => {
            while counting.load(Ordering::SeqCst) > 0 {
                let _ = fold(videos).run(conn).unwrap();
            }
        }
        _ => watch(&counting, 100, || total(conn)),
    });
    assert_eq!(total(&mut conn), 100 + 6 * COUNTS);
    let folded = fold(videos).run(&mut conn).unwrap();
    assert!(folded.busy.is_empty() && folded.unfit.is_empty());
    assert_eq!(base(&mut conn), 100 + 6 * COUNTS);
}

/// Leaving: once nobody counts on shards and they are folded, readers use the base alone and the table is dropped, beside counts
/// on the base.
#[test]
fn the_shards_table_is_left_under_counts_on_the_base() {
    let (database, mut conn) = database();
    on_threads(3, &database, |_, conn| count_on_shards(conn));
    assert_eq!((base(&mut conn), total(&mut conn)), (100, 103));

    let folded = fold(videos).keep_shards(0).run(&mut conn).unwrap();
    assert!(folded.finished && folded.busy.is_empty() && folded.unfit.is_empty());
    assert_eq!(base(&mut conn), 103); // whoever reads the base from now on reads no less
    let counting = AtomicI64::new(3);
    on_threads(5, &database, |number, conn| match number {
        0..3 => {
            for _ in 0..COUNTS {
                count_on_the_base(conn);
            }
            counting.fetch_sub(1, Ordering::SeqCst);
        }
        3 => ShardsTable::of(table::table).drop(conn).unwrap(),
        _ => watch(&counting, 103, || base(conn)),
    });
    assert_eq!(base(&mut conn), 103 + 3 * COUNTS);
}
