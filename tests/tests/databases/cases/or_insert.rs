//! Increments on rows that may not exist yet.

use super::support::*;
use diesel::result::DatabaseErrorKind::UniqueViolation;
use diesel_sharded_tests::schema::downloads::dsl::{day, downloads, number, version};
use diesel_sharded_tests::schema::videos::dsl::*;

/// Counts a download, whose row is inserted if it is not there.
macro_rules! download {
    ($version:expr, $day:expr) => {
        update(downloads.find(($version, Day($day))))
            .set(number.eq(number + 1))
            .or_insert((version.eq($version), day.eq($day)))
    };
}

fn number_of(of: i32, on: i32, conn: &mut Conn) -> Option<i32> {
    let total = downloads.find((of, Day(on))).select(number.total());
    total.first(conn).optional().unwrap()
}

#[test]
fn the_row_is_inserted_once_and_counted_always() {
    let conn = &mut set_up().conn;
    assert_eq!(number_of(1, 1, conn), None);
    for _ in 0..3 {
        gives!(download!(1, 1).execute(conn), 1);
    }
    assert_eq!(number_of(1, 1, conn), Some(3));
    // The increment adds to the value that the inserted row brings.
    for _ in 0..2 {
        let count = update(downloads.find((2, Day(2)))).set(number.eq(number - 1));
        let count = count.or_insert((version.eq(2), day.eq(2), number.eq(50)));
        gives!(count.execute(conn), 1);
    }
    assert_eq!(number_of(2, 2, conn), Some(48));
}

#[test]
fn by_a_filter_and_with_the_row_given_back() {
    let conn = &mut set_up().conn;
    let new = (id.eq(10), slug.eq("new"), title.eq("New"));
    for total in 1..=3_i64 {
        let count = viewed!(videos.filter(slug.eq("new"))).or_insert(new);
        let counted = count.returning((id, views)).get_result(conn).done();
        assert_eq!(counted, Ok((10_i64, total)));
    }
    let count = viewed!(videos.filter(title.eq("New"))).or_insert(new);
    gives!(count.execute(conn), 1);
    let row = |key: i64, name: &'static str| (id.eq(key), slug.eq(name), title.eq(""));
    let by_key = viewed!(videos.find(11)).or_insert(row(11, "eleven"));
    let by_key = by_key.returning(views.total()).get_results(conn).done();
    assert_eq!(by_key, Ok(vec![1_i64]));
    let missing = videos.filter(slug.eq("twelve"));
    let missing = viewed!(missing).or_insert(row(12, "twelve"));
    gives!(missing.execute(conn), 1);
}

/// A column that counts what its row stands for has `DEFAULT 1`: the first count is 1, and not 2.
#[test]
fn a_default_is_not_counted() {
    let conn = &mut set_up_with_counters().conn;
    conn.batch_execute("ALTER TABLE downloads ALTER COLUMN number SET DEFAULT 1")
        .or_else(|_| {
            conn.batch_execute(
                "PRAGMA writable_schema = ON;
                 UPDATE sqlite_schema SET sql = replace(sql, 'DEFAULT 0', 'DEFAULT 1') WHERE name = 'downloads';
                 PRAGMA writable_schema = RESET;",
            )
        })
        .unwrap();
    insert!(downloads, (version.eq(0), day.eq(0)), conn);
    assert_eq!(number_of(0, 0, conn), Some(1));

    gives!(download!(1, 1).execute(conn), 1);
    gives!(download!(2, 1).returning(number).get_result(conn), 1);
    let row = |of: i32| (version.eq(of), day.eq(1));
    let filter = update(downloads.filter(version.eq(3))).set(number.eq(number + 1));
    gives!(filter.or_insert(row(3)).execute(conn), 1);
    let keyed = download!(4, 1).idempotency_key("4");
    gives!(keyed.execute(conn), 1);
    let counted = count_many(number, [((5, Day(1)), 1), ((6, Day(1)), 1)]);
    let counted = counted.or_insert(|key: &(i32, Day)| row(key.0));
    assert_eq!(counted.run(conn).unwrap().rows, 2);
    for of in 1..=6 {
        assert_eq!(number_of(of, 1, conn), Some(1), "{of}");
    }
    // What the caller names is the base.
    let named = update(downloads.find((7, Day(1)))).set(number.eq(number + 1));
    let named = named.or_insert((row(7), number.eq(50)));
    gives!(named.execute(conn), 1);
    assert_eq!(number_of(7, 1, conn), Some(51));
}

#[test]
fn in_the_callers_transaction() {
    let conn = &mut set_up().conn;
    let download_twice = |conn: &mut Conn| {
        for _ in 0..2 {
            gives!(download!(1, 1).execute(conn), 1);
        }
        QueryResult::Ok(())
    };
    rolled_back(conn, |conn| download_twice(conn).unwrap());
    for _ in 0..2 {
        assert_eq!(conn.transaction(download_twice), Ok(()));
    }
    assert_eq!(number_of(1, 1, conn), Some(4));
}

/// Also inside the caller's transaction, which goes on.
#[test]
fn a_row_that_is_another_is_refused_and_taken_back() {
    let conn = &mut set_up().conn;
    let other = |conn: &mut Conn| {
        let row = (id.eq(21), slug.eq("other"), title.eq(""));
        let counted = viewed!(videos.find(20)).or_insert(row).execute(conn).done();
        refused!(counted, Error::InsertedOther);
        QueryResult::Ok(())
    };
    other(conn).unwrap();
    assert_eq!(conn.transaction(other), Ok(()));
    assert_eq!(videos.count().get_result(conn), Ok(3_i64));
}

/// A unique key other than the parent's is violated: the error is returned as it is, and the caller's transaction goes on.
#[test]
fn another_unique_key_is_told() {
    let conn = &mut set_up().conn;
    let taken = |conn: &mut Conn| {
        let row = (id.eq(20), slug.eq("a"), title.eq(""));
        let counted = viewed!(videos.find(20)).or_insert(row).execute(conn).done();
        assert_matches!(counted, Err(DieselError::DatabaseError(UniqueViolation, _)));
        count(1, 1, conn)
    };
    assert_eq!(taken(conn), Ok(1));
    assert_eq!(conn.transaction(taken), Ok(1));
    assert_eq!(total_of(1, conn), 102);
}

#[test]
fn racing_callers_lose_nothing() {
    let Connected { conn, database } = &mut set_up();
    on_threads(64, database, |thread, conn| {
        for on in 0..5 {
            let counted = match thread % 4 {
                0 => in_transaction(conn, |conn| download!(7, on).execute(conn).done()),
                _ => download!(7, on).execute(conn).done(),
            };
            assert_eq!(counted, Ok(1));
        }
    });
    for on in 0..5 {
        assert_eq!(number_of(7, on, conn), Some(64));
    }
}
