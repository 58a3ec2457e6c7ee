//! Totals beside a recount.

use super::api::operation::Drift;
use super::support::*;
use bigdecimal::{BigDecimal, ToPrimitive};
use diesel::dsl::{count_star, sum};
use diesel::sql_types::Double;
use diesel_sharded_tests::schema::videos::dsl::*;

macro_rules! recount {
    () => {
        comments::table
            .group_by(comments::video_id)
            .select((comments::video_id, count_star()))
    };
}

fn totals(conn: &mut Conn) -> Vec<i32> {
    videos.select(likes.total()).order(id).load(conn).unwrap()
}

/// Keys with totals and expected totals, in key order.
fn sorted(drifts: Vec<Drift<i64>>) -> Vec<(i64, i64, i64)> {
    let mut drifts: Vec<_> = drifts
        .into_iter()
        .map(|drift| (drift.key, drift.total, drift.expected))
        .collect();
    drifts.sort();
    drifts
}

/// Likes are 1, 2 and 3; comments are 0, 0 and 2.
#[test]
fn finds_and_repairs_what_has_drifted() {
    let (_database, conn) = &mut database();
    for _ in 0..4 {
        count!(videos.find(2), likes.eq(likes - 1), conn);
    }
    let expected = [(1, 1, 0), (2, -2, 0), (3, 3, 2)];
    let found = verify(videos, likes, recount!()).drifts(conn).unwrap();
    assert_eq!(sorted(found), expected);
    assert_eq!(totals(conn), [1, -2, 3]); // looked only
    let some = videos.filter(id.le(2));
    let repaired = verify(some, likes, recount!()).repair(conn).unwrap();
    assert_eq!(sorted(repaired), expected[..2]);
    assert_eq!(totals(conn), [0, 0, 3]);
    let repaired = verify(videos, likes, recount!()).repair(conn).unwrap();
    assert_eq!(sorted(repaired), expected[2..]);
    let again = verify(videos, likes, recount!()).repair(conn).unwrap();
    assert_eq!((again, totals(conn)), (vec![], vec![0, 0, 2]));
}

#[test]
fn two_numbers_for_one_key_are_refused() {
    let (_database, mut conn) = database();
    let by_too_much = comments::table
        .group_by((comments::video_id, comments::id))
        .select((comments::video_id, count_star()));
    let error = verify(videos, likes, by_too_much).repair(&mut conn);
    let error = Error::from(error.unwrap_err());
    assert!(error.to_string().contains("two"), "{error}");
    assert_eq!(totals(&mut conn), [1, 2, 3]);
}

/// A sum of no rows is NULL, and that of a `BigInt` is a decimal.
#[test]
fn sums_are_taken_as_diesel_gives_them() {
    let (_database, conn) = &mut database();
    let sums = || {
        videos
            .left_join(comments::table)
            .group_by(id)
            .select((id, sum(comments::id.nullable())))
    };
    let found = verify(videos, views, sums()).drifts(conn).unwrap();
    assert_eq!(sorted(found), [(1, 100, 0), (2, 200, 0), (3, 300, 3)]);
    let repaired = verify(videos, views, sums()).repair(conn).unwrap();
    assert_eq!(repaired.len(), 3);
    let read = videos.select(views.total()).order(id).load::<i64>(conn);
    assert_eq!(read, Ok(vec![0, 0, 3]));
    // Of an `Integer` it is a `BigInt`.
    let likes_of = || videos.group_by(id).select((id, sum(likes)));
    let expected = [(1, 0, 1), (2, 0, 2), (3, 3, 3)];
    let found = verify(videos, views, likes_of()).drifts(conn).unwrap();
    assert_eq!(sorted(found), expected[..2]);
    let fractions = || videos.select((id, 0.5.into_sql::<Double>()));
    let refused = verify(videos, views, fractions()).drifts(conn);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("`views` is never 0.5"), "{refused}");
}

#[test]
fn several_fields_are_compared_with_one_recount() {
    let (_database, conn) = &mut database();
    let recount = || {
        comments::table.group_by(comments::video_id).select((
            comments::video_id,
            sum(comments::id),
            count_star(),
        ))
    };
    let both = || verify(videos.filter(id.ge(2)), (views, likes), recount());
    let mut found = both().drifts(conn).unwrap();
    found.sort_by_key(|drift| drift.key);
    let found: Vec<_> = found
        .iter()
        .map(|drift| (drift.key, drift.total, drift.expected))
        .collect();
    assert_eq!(found, [(2, (200, 2), (0, 0)), (3, (300, 3), (3, 2))]);
    let repaired = both().repair(conn).unwrap();
    assert_eq!(repaired.len(), 2);
    let read = videos.select((views.total(), likes.total())).order(id);
    assert_eq!(
        read.load::<(i64, i32)>(conn),
        Ok(vec![(100, 1), (0, 0), (3, 2)])
    );
    assert_eq!(both().drifts(conn), Ok(vec![]));
    let one_number = verify(videos, (views, likes), recount!()).drifts(conn);
    let refused = one_number.unwrap_err().to_string();
    assert!(refused.contains("gives 1 for 2"), "{refused}");
}

/// Sums of doubles depend on their order: 0.1 + 0.2 is not 0.3.
#[test]
fn doubles_are_compared_within_a_tolerance_and_decimals_exactly() {
    use diesel_sharded_tests::schema::measures::dsl::*;
    let (_database, conn) = &mut database();
    for n in [0.1, 0.2] {
        count!(measures, real.eq(real + n), conn);
    }
    let of = |n: f64| measures.select((id, n.into_sql::<Double>()));
    assert_eq!(verify(measures, real, of(0.3)).drifts(conn), Ok(vec![]));
    let repaired = verify(measures, real, of(0.300_000_001))
        .repair(conn)
        .unwrap();
    assert_eq!(repaired.len(), 1);
    assert_eq!(repaired[0].expected, 0.300_000_001);
    assert_eq!(
        verify(measures, real, of(0.300_000_001)).drifts(conn),
        Ok(vec![])
    );
    let price = |text: &str| -> BigDecimal { text.parse().unwrap() };
    count!(measures, exact.eq(exact + price("0.1")), conn);
    edit!(measures, large.eq(-12), conn);
    let sums = || measures.group_by(id).select((id, sum(large)));
    let repaired = verify(measures, exact, sums()).repair(conn).unwrap();
    // SQLite keeps doubles.
    let is = |number: &BigDecimal, n: f64| (number.to_f64().unwrap() - n).abs() < 1e-9;
    assert!(is(&repaired[0].total, 0.1) && is(&repaired[0].expected, -12.0));
    assert_eq!(verify(measures, exact, sums()).drifts(conn), Ok(vec![]));
    // An integer, beside a double.
    let both = measures.select((id, small, real.total()));
    assert_eq!(
        verify(measures, (small, real), both).drifts(conn),
        Ok(vec![])
    );
}

#[test]
fn needs_a_snapshot_of_its_own() {
    let (_database, mut conn) = database();
    let inside = conn.transaction(|conn| verify(videos, likes, recount!()).drifts(conn));
    assert_eq!(inside, Err(diesel::result::Error::AlreadyInTransaction));
}

/// A new counter is brought up to date while the application writes and counts, and others repair and fold it.
#[test]
fn backfill_while_the_application_runs() {
    let (database, mut conn) = database();
    for key in 10..60_i64 {
        let row = (comments::id.eq(key), comments::video_id.eq(key % 3 + 1));
        insert!(comments::table, row, &mut conn);
    }
    let writing = AtomicI64::new(4);
    on_threads(8, &database, |number, conn| match number {
        0..4 => {
            for round in 0..25 {
                let key = 1000 + number * 100 + round;
                let video = key % 3 + 1;
                let written: QueryResult<usize> =
                    retry::transaction(conn, RetryPolicy::default(), |conn| {
                        diesel::insert_into(comments::table)
                            .values((comments::id.eq(key), comments::video_id.eq(video)))
                            .execute(conn)?;
                        update(videos.find(video))
                            .set(likes.eq(likes + 1))
                            .execute(conn)
                    });
                assert_eq!(written, Ok(1));
            }
            writing.fetch_sub(1, Ordering::SeqCst);
        }
        4 => {
            while writing.load(Ordering::SeqCst) > 0 {
                let _ = fold(videos).keep_shards(2).run(conn).unwrap();
            }
        }
        _ => loop {
            let last = writing.load(Ordering::SeqCst) == 0;
            let repaired = verify(videos, likes, recount!()).repair(conn);
            assert!(repaired.is_ok(), "{repaired:?}");
            if last {
                break;
            }
        },
    });
    let conn = &mut conn;
    // A whole repair has run since the old rows existed, so that a count that was lost or doubled beside it shows now.
    assert_eq!(verify(videos, likes, recount!()).drifts(conn), Ok(vec![]));
    let counted = |video: i64, conn: &mut Conn| {
        let of = comments::table.filter(comments::video_id.eq(video));
        of.count().get_result::<i64>(conn).unwrap()
    };
    let expected: Vec<i32> = (1..=3).map(|video| counted(video, conn) as i32).collect();
    assert_eq!(totals(conn), expected);
}
