//! Buckets of time: windows, what is trending, retention, and rate limits, as the guide's chapters on reading and on limits have them.

use super::support::*;
use diesel::dsl::sum;
use diesel_sharded::top;
use diesel_sharded_tests::schema::downloads::dsl::*;

/// A download of a version, counted on its day.
fn download(of: i32, on: i32, conn: &mut Conn) {
    let count = update(downloads.find((of, Day(on)))).set(number.eq(number + 1));
    let count = count.or_insert((version.eq(of), day.eq(on)));
    assert_eq!(count.execute(conn), Ok(1));
}

/// Versions with their downloads since a day, the most downloaded first.
fn by_version(since: i32, conn: &mut Conn) -> Vec<(i32, i64)> {
    let total = sum(number.total());
    let grouped = downloads.filter(day.gt(since)).group_by(version);
    let sorted = grouped.select((version, total.assume_not_null()));
    let sorted = sorted.order((total.desc(), version)).limit(10);
    sorted.load(conn).unwrap()
}

#[test]
fn windows_are_sums_over_buckets() {
    let conn = &mut set_up().conn;
    for (of, on, times) in [(1, 10, 2), (1, 7, 1), (2, 9, 1), (2, 8, 3), (3, 1, 1)] {
        (0..times).for_each(|_| download(of, on, conn));
    }
    assert_eq!(by_version(7, conn), [(2, 4), (1, 2)]);
    assert_eq!(by_version(0, conn), [(2, 4), (1, 3), (3, 1)]);
    let hot = top(downloads.filter(day.eq(8)), number, 10).select((version, number));
    assert_eq!(hot.load::<(i32, i32)>(conn), Ok(vec![(2, 3)]));
    // A bucket that is over is folded, and goes in the end; nothing else changes.
    let folded = fold(downloads.filter(day.lt(10))).run(conn).unwrap();
    assert_eq!(folded.parents, 4);
    assert_eq!(by_version(7, conn), [(2, 4), (1, 2)]);
    assert_eq!(delete!(downloads.filter(day.lt(8)), conn), 2);
    assert_eq!(by_version(0, conn), [(2, 4), (1, 2)]);
    download(1, 7, conn); // begins at 0
    let again = downloads.find((1, Day(7))).select(number.total());
    assert_eq!(again.first::<i32>(conn), Ok(1));
}

fn is_allowed(of: i32, on: i32, conn: &mut Conn) -> bool {
    let window = RowCounter::of(number, (of, Day(on))).never_above(30);
    match window.add(1, conn) {
        Err(DieselError::NotFound) => {
            let create = update(downloads.find((of, Day(on)))).set(number.eq(number + 0));
            let create = create.or_insert((version.eq(of), day.eq(on)));
            assert_eq!(create.execute(conn), Ok(1));
            window.add(1, conn).unwrap()
        }
        counted => counted.unwrap(),
    }
}

#[test]
fn a_window_allows_no_more_than_its_bound() {
    let Connected { conn, database } = &mut set_up();
    let allowed = AtomicI64::new(0);
    on_threads(8, database, |_, conn| {
        for on in [1, 2] {
            for _ in 0..10 {
                allowed.fetch_add(is_allowed(1, on, conn).into(), Ordering::Relaxed);
            }
        }
    });
    assert_eq!(allowed.into_inner(), 60);
    assert_eq!(by_version(0, conn), [(1, 60)]);
}
