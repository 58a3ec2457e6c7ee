//! The deploys of the guide's chapter on adopting and leaving: while an old binary and a new one run side by side, nothing is
//! lost, and no reader sees too little.

use diesel::prelude::*;
use diesel_sharded::{ShardsTable, fold};
use diesel_sharded_tests::fixture::Fixture;
use diesel_sharded_tests::schema::videos as table;
use diesel_sharded_tests::schema::videos::dsl::*;

use super::{Conn, count, on_threads, on_threads_beside, total_of};

const COUNTS: i64 = 60;

fn count_on_the_base(conn: &mut Conn) -> QueryResult<usize> {
    let count = diesel::update(videos.find(1)).set(views.eq(views + 1));
    count.execute(conn)
}

fn base(conn: &mut Conn) -> i64 {
    videos.find(1).select(views).first(conn).unwrap()
}

fn count_often(mut count: impl FnMut() -> QueryResult<usize>) {
    (0..COUNTS).for_each(|_| assert_eq!(count(), Ok(1)));
}

/// Not less than the total before, which it becomes.
fn rises(last: &mut i64, now: i64) {
    assert!(now >= *last, "{now} after {last}");
    *last = now;
}

/// Deploys 2 and 3: some processes still count on the base, others on shards, one folds already; all read totals.
#[test]
fn base_and_shards_are_counted_on_beside_folds() {
    let own = &mut Fixture::with_tables();
    let (database, [conn]) = own.parts();
    let counting = |number, conn: &mut Conn| match number % 2 {
        0 => count_often(|| count_on_the_base(conn)),
        _ => count_often(|| count(1, 1, conn)),
    };
    on_threads_beside(6, database, counting, 2, |number, rounds, conn| {
        let mut last = 100;
        rounds.for_each(|_| match number {
            0 => drop(fold(videos).run(conn).unwrap()),
            _ => rises(&mut last, total_of(1, conn)),
        });
    });
    assert_eq!(total_of(1, conn), 100 + 6 * COUNTS);
    let folded = fold(videos).run(conn).unwrap();
    assert!(folded.busy.is_empty() && folded.unfit.is_empty());
    assert_eq!(base(conn), 100 + 6 * COUNTS);
}

/// Leaving: once nobody counts on shards and they are folded, readers use the base alone and the table is dropped, beside increments
/// on the base.
#[test]
fn the_shards_table_is_left_under_counts_on_the_base() {
    let own = &mut Fixture::with_tables();
    let (database, [conn]) = own.parts();
    on_threads(3, database, |_, conn| assert_eq!(count(1, 1, conn), Ok(1)));
    assert_eq!((base(conn), total_of(1, conn)), (100, 103));

    let folded = fold(videos).keep_shards(0).run(conn).unwrap();
    assert!(folded.finished && folded.busy.is_empty() && folded.unfit.is_empty());
    assert_eq!(base(conn), 103);
    let counting = |number, conn: &mut Conn| match number {
        0 => ShardsTable::of(table::table).drop(conn).unwrap(),
        _ => count_often(|| count_on_the_base(conn)),
    };
    on_threads_beside(4, database, counting, 1, |_, rounds, conn| {
        let mut last = 103; // from now on a reader of the base reads no less
        rounds.for_each(|_| rises(&mut last, base(conn)));
    });
    assert_eq!(base(conn), 103 + 3 * COUNTS);
}
