//! Many writers: no loss, no double, no error.

use super::support::*;
use diesel_sharded_tests::schema::videos::dsl::*;

#[test]
fn sixty_four_threads_count_one_row() {
    let Connected { conn, database } = &mut set_up();
    on_threads(64, database, |_, conn| {
        for _ in 0..500 {
            assert_eq!(count(1, 1, conn), Ok(1));
        }
    });
    assert_eq!(totals(conn), [100 + 64 * 500, 200, 300]);
}

#[test]
fn overlapping_filters_never_deadlock() {
    let Connected { conn, database } = &mut set_up();
    on_threads(16, database, |number, conn| {
        for round in 0..30 {
            let counted = match (number + round) % 4 {
                0 => viewed!(videos).execute(conn),
                1 => viewed!(videos.filter(id.le(2))).execute(conn),
                2 => viewed!(videos.filter(id.ge(2))).execute(conn),
                _ => viewed!(videos.filter(id.eq_any([3, 1]))).execute(conn),
            };
            assert_matches!(counted, Ok(2 | 3));
        }
    });
    // Each kind ran 16 × 30 / 4 = 120 times; each video is in three of the four.
    assert_eq!(totals(conn), [460, 560, 660]);
}

#[test]
fn counts_race_inside_transactions() {
    let Connected { conn, database } = &mut set_up();
    // PostgreSQL, and MySQL without snapshot isolation, need no second attempt.
    let version = conn.version();
    let is_snapshot = version.contains("MariaDB") && !version.starts_with("10.");
    let policy = match is_snapshot || version.contains("SQLite") {
        true => RetryPolicy::default(),
        false => RetryPolicy::never(),
    };
    on_threads(16, database, |_, conn| {
        for _ in 0..10 {
            let counted: QueryResult<usize> =
                retry::transaction(conn, policy.clone(), |conn| count(1, 1, conn));
            assert_eq!(counted, Ok(1));
        }
    });
    assert_eq!(totals(conn), [260, 200, 300]);
}

#[test]
fn rows_given_back_under_contention_hold_their_own_count() {
    let Connected { conn, database } = &mut set_up();
    totals_rise(100, database, |_, conn| {
        let count = viewed!(videos.find(1)).returning(views);
        count.get_result(conn).unwrap()
    });
    assert_eq!(totals(conn), [260, 200, 300]);
}
