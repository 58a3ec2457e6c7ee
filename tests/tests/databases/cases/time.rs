//! Buckets of time: windows, what is trending, retention, and rate limits, as the guide's chapters on reading and on limits have them.

use super::support::*;
use diesel::dsl::sum;
use diesel_sharded::top;
use diesel_sharded_tests::schema::downloads as table;
use diesel_sharded_tests::schema::downloads::dsl::*;

/// A download of a version, counted on its day.
fn download(of: i32, on: i32, conn: &mut Conn) {
    let counted = update(downloads.find((of, Day(on))))
        .set(number.eq(number + 1))
        .or_insert((version.eq(of), day.eq(on)))
        .execute(conn);
    assert_eq!(counted, Ok(1));
}

fn by_version(since: i32, conn: &mut Conn) -> Vec<(i32, Option<i64>)> {
    downloads
        .filter(day.gt(since))
        .group_by(version)
        .select((version, sum(number.total())))
        .order((sum(number.total()).desc(), version))
        .limit(10)
        .load(conn)
        .unwrap()
}

#[test]
fn windows_are_sums_over_buckets() {
    let (_database, conn) = &mut database();
    for (of, on) in [
        (1, 10),
        (1, 10),
        (1, 7),
        (2, 9),
        (2, 8),
        (2, 8),
        (2, 8),
        (3, 1),
    ] {
        download(of, on, conn);
    }
    assert_eq!(by_version(7, conn), [(2, Some(4)), (1, Some(2))]);
    assert_eq!(
        by_version(0, conn),
        [(2, Some(4)), (1, Some(3)), (3, Some(1))]
    );
    let hot = top(downloads.filter(day.eq(8)), number, 10).select((version, number));
    assert_eq!(hot.load::<(i32, i32)>(conn), Ok(vec![(2, 3)]));
    // A bucket that is over is folded, and goes in the end; nothing else changes.
    assert_eq!(
        fold(downloads.filter(day.lt(10)))
            .run(conn)
            .unwrap()
            .parents,
        4
    );
    assert_eq!(by_version(7, conn), [(2, Some(4)), (1, Some(2))]);
    let old = diesel::delete(downloads.filter(day.lt(8))).execute(conn);
    assert_eq!(old, Ok(2));
    assert_eq!(by_version(0, conn), [(2, Some(4)), (1, Some(2))]);
    download(1, 7, conn); // begins at 0
    let again = downloads.find((1, Day(7))).select(number.total());
    assert_eq!(again.first::<i32>(conn), Ok(1));
}

fn is_allowed(of: i32, on: i32, conn: &mut Conn) -> bool {
    let window = RowCounter::of(table::number, (of, Day(on))).never_above(30);
    match window.add(1, conn) {
        Err(DieselError::NotFound) => {
            let created = update(downloads.find((of, Day(on))))
                .set(number.eq(number + 0))
                .or_insert((version.eq(of), day.eq(on)))
                .execute(conn);
            assert_eq!(created, Ok(1));
            window.add(1, conn).unwrap()
        }
        counted => counted.unwrap(),
    }
}

#[test]
fn a_window_allows_no_more_than_its_bound() {
    let (database, mut conn) = database();
    let allowed = AtomicI64::new(0);
    on_threads(8, &database, |_, conn| {
        for on in [1, 2] {
            for _ in 0..10 {
                allowed.fetch_add(is_allowed(1, on, conn).into(), Ordering::Relaxed);
            }
        }
    });
    assert_eq!(allowed.into_inner(), 60);
    assert_eq!(by_version(0, &mut conn), [(1, Some(60))]);
}
