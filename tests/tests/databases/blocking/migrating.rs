//! The deploys of the guide's chapter on adopting and leaving: while an old binary and a new one run side by side, nothing is
//! lost, and no reader sees too little.

use std::sync::atomic::{AtomicI64, Ordering};

use diesel::prelude::*;
use diesel_sharded::{ShardsTable, fold};
use diesel_sharded_tests::fixture::Fixture;
use diesel_sharded_tests::schema::videos as table;
use diesel_sharded_tests::schema::videos::dsl::*;

use super::{Conn, count, on_threads, total_of};

const COUNTS: i64 = 60;

fn count_on_the_base(conn: &mut Conn) -> QueryResult<usize> {
    let count = diesel::update(videos.find(1)).set(views.eq(views + 1));
    count.execute(conn)
}

fn base(conn: &mut Conn) -> i64 {
    videos.find(1).select(views).first(conn).unwrap()
}

/// Threads that count, the others do something else meanwhile.
struct Counting(AtomicI64);

impl Counting {
    fn count(&self, mut count: impl FnMut() -> QueryResult<usize>) {
        for _ in 0..COUNTS {
            assert_eq!(count(), Ok(1));
        }
        self.0.fetch_sub(1, Ordering::SeqCst);
    }

    fn goes_on(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }

    /// The total never falls, nor is it less than at first.
    fn watch(&self, at_first: i64, mut read: impl FnMut() -> i64) {
        let mut last = at_first;
        while self.goes_on() {
            let now = read();
            assert!(now >= last, "{now} after {last}");
            last = now;
        }
    }
}

/// Deploys 2 and 3: some processes still count on the base, others on shards, one folds already; all read totals.
#[test]
fn base_and_shards_are_counted_on_beside_folds() {
    let own = &mut Fixture::with_tables();
    let (database, [conn]) = own.parts();
    let counting = Counting(AtomicI64::new(6));
    on_threads(8, database, |number, conn| match number {
        0 | 2 | 4 => counting.count(|| count_on_the_base(conn)),
        1 | 3 | 5 => counting.count(|| count(1, 1, conn)),
        6 => {
            while counting.goes_on() {
                let _ = fold(videos).run(conn).unwrap();
            }
        }
        _ => counting.watch(100, || total_of(1, conn)),
    });
    assert_eq!(total_of(1, conn), 100 + 6 * COUNTS);
    let folded = fold(videos).run(conn).unwrap();
    assert!(folded.busy.is_empty() && folded.unfit.is_empty());
    assert_eq!(base(conn), 100 + 6 * COUNTS);
}

/// Leaving: once nobody counts on shards and they are folded, readers use the base alone and the table is dropped, beside counts
/// on the base.
#[test]
fn the_shards_table_is_left_under_counts_on_the_base() {
    let own = &mut Fixture::with_tables();
    let (database, [conn]) = own.parts();
    on_threads(3, database, |_, conn| assert_eq!(count(1, 1, conn), Ok(1)));
    assert_eq!((base(conn), total_of(1, conn)), (100, 103));

    let folded = fold(videos).keep_shards(0).run(conn).unwrap();
    assert!(folded.finished && folded.busy.is_empty() && folded.unfit.is_empty());
    assert_eq!(base(conn), 103); // whoever reads the base from now on reads no less
    let counting = Counting(AtomicI64::new(3));
    on_threads(5, database, |number, conn| match number {
        0..3 => counting.count(|| count_on_the_base(conn)),
        3 => ShardsTable::of(table::table).drop(conn).unwrap(),
        _ => counting.watch(103, || base(conn)),
    });
    assert_eq!(base(conn), 103 + 3 * COUNTS);
}
