//! Totals beside a recount.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::api::operation::Drift;
use crate::api::retry::{self, RetryPolicy};
use crate::api::{Error, fold, update, verify};
use diesel::dsl::count_star;
use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded_tests::schema::comments;
use diesel_sharded_tests::schema::videos::dsl::*;

use super::{Conn, database, on_threads};

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
    let (_database, mut conn) = database();
    let conn = &mut conn;
    for _ in 0..4 {
        update(videos.find(2))
            .set(likes.eq(likes - 1))
            .execute(conn)
            .unwrap();
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
        diesel::insert_into(comments::table)
            .values(row)
            .execute(&mut conn)
            .unwrap();
    }
    let writing = AtomicI64::new(4);
    on_threads(8, &database, |number, conn| match number {
        0..4 => {
            for round in 0..25 {
                let key = 1000 + number * 100 + round;
                let video = key % 3 + 1;
                let written: QueryResult<usize> =
                    retry::transaction(conn, RetryPolicy::new(), |conn| {
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
                let folded = fold(videos).keep_shards(2).run(conn);
                assert!(folded.is_ok(), "{folded:?}");
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
