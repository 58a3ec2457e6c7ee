//! Many writers: no loss, no double, no error.

use std::sync::LazyLock;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use super::support::*;
use diesel_sharded_tests::conflict;
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
                0 => viewed!(videos).execute(conn).done(),
                1 => viewed!(videos.filter(id.le(2))).execute(conn).done(),
                2 => viewed!(videos.filter(id.ge(2))).execute(conn).done(),
                _ => viewed!(videos.filter(id.eq_any([3, 1])))
                    .execute(conn)
                    .done(),
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

/// Each reading of the clock is centuries from the one before, forwards and backwards.
#[test]
fn clocks_that_jump_lose_no_count_and_prolong_no_pause() {
    const CENTURIES: Duration = Duration::from_secs(500 * 365 * 24 * 3600);
    const CAP: Duration = Duration::from_millis(20);
    fn clock() -> Instant {
        static BEGAN: LazyLock<Instant> = LazyLock::new(|| Instant::now() + 2 * CENTURIES);
        static READS: AtomicU64 = AtomicU64::new(0);
        match READS.fetch_add(1, Ordering::Relaxed) % 4 {
            0 => *BEGAN + CENTURIES,
            2 => *BEGAN - CENTURIES,
            _ => *BEGAN,
        }
    }
    let policy = RetryPolicy::new()
        .with_max_delay(CAP)
        .with_clock(clock)
        .with_sleep(|delay| assert!(delay <= CAP, "{delay:?}"));
    let Connected { conn, database } = &mut set_up();
    let counted = AtomicI64::new(0);
    on_threads(4, database, |_, conn| {
        for _ in 0..20 {
            let begun = Instant::now();
            let count_1 = viewed!(videos.find(1)).retry(policy.clone());
            let count_1 = count_1.execute(conn).done();
            let mut attempts = 0;
            let both: QueryResult<usize> = retry::transaction(conn, policy.clone(), |conn| {
                attempts += 1;
                let counted = count(1, 1, conn)?;
                if attempts < 3 {
                    Err(conflict())
                } else {
                    Ok(counted)
                }
            });
            // By the clock, the deadline may have passed.
            let rows = count_1.unwrap_or(0) + both.unwrap_or(0);
            counted.fetch_add(rows as i64, Ordering::Relaxed);
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
    });
    let counted = counted.into_inner();
    assert!(counted > 20, "{counted}");
    assert_eq!(total_of(1, conn), 100 + counted);
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
