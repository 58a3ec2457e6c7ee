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
fn sorted<N>(drifts: QueryResult<Vec<Drift<i64, N>>>) -> Vec<(i64, N, N)> {
    let drifts = drifts.unwrap().into_iter();
    let mut drifts: Vec<_> = drifts.map(|d| (d.key, d.total, d.expected)).collect();
    drifts.sort_by_key(|drift| drift.0);
    drifts
}

/// Likes are 1, 2 and 3; comments are 0, 0 and 2.
#[test]
fn finds_and_repairs_what_has_drifted() {
    let conn = &mut set_up().conn;
    count!(videos.find(2), likes.eq(likes - 4), conn);
    let expected = [(1, 1, 0), (2, -2, 0), (3, 3, 2)];
    let all = || verify(videos, likes, recount!());
    assert_eq!(sorted(all().drifts(conn).done()), expected);
    assert_eq!(totals(conn), [1, -2, 3]); // looked only
    let some = verify(videos.filter(id.le(2)), likes, recount!());
    assert_eq!(sorted(some.repair(conn).done()), expected[..2]);
    assert_eq!(totals(conn), [0, 0, 3]);
    assert_eq!(sorted(all().repair(conn).done()), expected[2..]);
    gives!(all().repair(conn), vec![]);
    assert_eq!(totals(conn), [0, 0, 2]);
}

/// Videos 1 and 2 have no comments.
#[test]
fn a_key_that_is_null_is_no_row_s() {
    let conn = &mut set_up().conn;
    let joined = videos.left_join(comments::table);
    let recount = joined
        .group_by(comments::video_id)
        .select((comments::video_id.nullable(), count_star()));
    assert_eq!(recount.load::<(Option<i64>, i64)>(conn).unwrap().len(), 2);
    let drifts = verify(videos, likes, recount).drifts(conn).done();
    assert_eq!(sorted(drifts), [(1, 1, 0), (2, 2, 0), (3, 3, 2)]);
}

#[test]
fn two_numbers_for_one_key_are_refused() {
    let conn = &mut set_up().conn;
    let by_too_much = comments::table.group_by((comments::video_id, comments::id));
    let by_too_much = by_too_much.select((comments::video_id, count_star()));
    let refused = verify(videos, likes, by_too_much).repair(conn).done();
    let refused = Error::from(refused.unwrap_err()).to_string();
    assert!(refused.contains("two"), "{refused}");
    assert_eq!(totals(conn), [1, 2, 3]);
}

/// A sum of no rows is NULL, and that of a `BigInt` is a decimal.
#[test]
fn sums_are_taken_as_diesel_gives_them() {
    let conn = &mut set_up().conn;
    let sums = || {
        let joined = videos.left_join(comments::table).group_by(id);
        joined.select((id, sum(comments::id.nullable())))
    };
    let expected = [(1, 100, 0), (2, 200, 0), (3, 300, 3)];
    let found = verify(videos, views, sums()).drifts(conn).done();
    assert_eq!(sorted(found), expected);
    let repaired = verify(videos, views, sums()).repair(conn).done();
    assert_eq!(sorted(repaired), expected);
    assert_eq!(super::totals(conn), [0, 0, 3]);
    // Of an `Integer` it is a `BigInt`.
    let likes_of = videos.group_by(id).select((id, sum(likes)));
    let found = verify(videos, views, likes_of).drifts(conn).done();
    assert_eq!(sorted(found), [(1, 0, 1), (2, 0, 2)]);
    let fractions = videos.select((id, 0.5.into_sql::<Double>()));
    let refused = verify(videos, views, fractions).drifts(conn).done();
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("`views` is never 0.5"), "{refused}");
}

/// Sums of doubles depend on their order: 0.1 + 0.2 is not 0.3.
#[test]
fn doubles_are_compared_within_a_tolerance_and_decimals_exactly() {
    use diesel_sharded_tests::schema::measures::dsl::*;
    let conn = &mut set_up().conn;
    for n in [0.1, 0.2] {
        count!(measures, real.eq(real + n), conn);
    }
    let of = |n: f64| {
        let recount = measures.select((id, n.into_sql::<Double>()));
        verify(measures, real, recount)
    };
    gives!(of(0.3).drifts(conn), vec![]);
    let repaired = of(0.300_000_001).repair(conn).unwrap();
    assert_eq!(repaired.len(), 1);
    assert_eq!(repaired[0].expected, 0.300_000_001);
    gives!(of(0.300_000_001).drifts(conn), vec![]);
    let price: BigDecimal = "0.1".parse().unwrap();
    count!(measures, exact.eq(exact + price), conn);
    edit!(measures, large.eq(-12), conn);
    let sums = || {
        let recount = measures.group_by(id).select((id, sum(large)));
        verify(measures, exact, recount)
    };
    let repaired = sums().repair(conn).unwrap();
    // SQLite keeps doubles.
    let is = |number: &BigDecimal, n: f64| (number.to_f64().unwrap() - n).abs() < 1e-9;
    assert!(is(&repaired[0].total, 0.1) && is(&repaired[0].expected, -12.0));
    gives!(sums().drifts(conn), vec![]);
    let itself = measures.select((id, real.total()));
    gives!(verify(measures, real, itself).drifts(conn), vec![]);
}

#[test]
fn needs_a_snapshot_of_its_own() {
    let conn = &mut set_up().conn;
    let inside = conn.transaction(|conn| verify(videos, likes, recount!()).drifts(conn).done());
    assert_eq!(inside, Err(DieselError::AlreadyInTransaction));
}

/// A new counter is brought up to date while the application writes and counts, and others repair and fold it.
#[test]
fn backfill_while_the_application_runs() {
    let Connected { conn, database } = &mut set_up();
    let of_video = |key: i64| (comments::id.eq(key), comments::video_id.eq(key % 3 + 1));
    for key in 10..60 {
        insert!(comments::table, of_video(key), conn);
    }
    let repair = |conn: &mut Conn| {
        let repaired = verify(videos, likes, recount!()).repair(conn).done();
        assert!(repaired.is_ok(), "{repaired:?}");
    };
    let write = |number, conn: &mut Conn| {
        for round in 0..25 {
            let key = 1000 + number * 100 + round;
            let written = in_transaction(conn, |conn| {
                let comment = diesel::insert_into(comments::table).values(of_video(key));
                comment.execute(conn)?;
                let count = update(videos.find(key % 3 + 1)).set(likes.eq(likes + 1));
                count.execute(conn).done()
            });
            assert_eq!(written, Ok(1));
        }
    };
    on_threads_beside(4, database, write, 4, |number, rounds, conn| {
        for _ in rounds {
            match number {
                0 => drop(fold(videos).keep_shards(2).run(conn).unwrap()),
                _ => repair(conn),
            }
        }
        repair(conn);
    });
    // A whole repair has run since the old rows existed, so that an increment that was lost or doubled beside it shows now.
    gives!(verify(videos, likes, recount!()).drifts(conn), vec![]);
    let counted = |video: i64| comments::table.filter(comments::video_id.eq(video)).count();
    let expected = [1, 2, 3].map(|video| counted(video).get_result::<i64>(conn).unwrap() as i32);
    assert_eq!(totals(conn), expected);
}
