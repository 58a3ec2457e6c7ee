//! `total()` anywhere in a query.

use crate::api::{Total, update};
use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{self, Video, comments, videos as table};

use super::{Conn, database};

/// Videos 1 to 3 have 150, 200 and 301 views; video 2 has no shard.
fn counted(conn: &mut Conn) {
    update(videos.find(1))
        .set(views.eq(views + 20))
        .execute(conn)
        .unwrap();
    update(videos.find(1))
        .set(views.eq(views + 30))
        .execute(conn)
        .unwrap();
    update(videos.find(3))
        .set(views.eq(views + 1))
        .execute(conn)
        .unwrap();
}

#[test]
fn select_filter_and_order() {
    let (_database, mut conn) = database();
    let conn = &mut conn;
    counted(conn);
    let totals = videos
        .select((id, views.total()))
        .order(views.total().desc());
    assert_eq!(
        totals.load(conn),
        Ok(vec![(3_i64, 301_i64), (2, 200), (1, 150)])
    );
    let few = videos.filter(views.total().lt(200)).select(id);
    assert_eq!(few.load(conn), Ok(vec![1_i64]));
    let between = videos.filter(views.total().between(200, 300)).select(id);
    assert_eq!(between.load(conn), Ok(vec![2_i64]));
    update(videos.find(1))
        .set(views.eq(views + 500))
        .execute(conn)
        .unwrap();
    let top = videos
        .select(Video::as_select())
        .order(views.total().desc())
        .limit(1);
    assert_eq!(
        top.first(conn).map(|video| (video.id, video.views)),
        Ok((1, 650))
    );
}

#[test]
fn in_the_models_that_select_it() {
    let (_database, mut conn) = database();
    counted(&mut conn);
    let video: Video = videos
        .find(1)
        .select(Video::as_select())
        .first(&mut conn)
        .unwrap();
    assert_eq!((video.views, video.likes), (150, 1));
}

#[test]
fn joined_rows_do_not_multiply_it() {
    let (_database, mut conn) = database();
    let conn = &mut conn;
    counted(conn);
    let joined = comments::table
        .inner_join(table::table)
        .select((comments::id, views.total()))
        .order(comments::id);
    assert_eq!(joined.load(conn), Ok(vec![(1_i64, 301_i64), (2, 301)]));
    let left = table::table
        .left_join(comments::table)
        .select((id, views.total(), comments::id.nullable()))
        .order((id, comments::id))
        .load::<(i64, i64, Option<i64>)>(conn);
    assert_eq!(
        left,
        Ok(vec![
            (1, 150, None),
            (2, 200, None),
            (3, 301, Some(1)),
            (3, 301, Some(2))
        ])
    );
    let nullable = comments::table
        .left_join(table::table)
        .select(views.total().nullable())
        .load::<Option<i64>>(conn);
    assert_eq!(nullable, Ok(vec![Some(301), Some(301)]));
    diesel::delete(videos.find(3)).execute(conn).unwrap();
    let unmatched = comments::table
        .left_join(table::table)
        .select((views.total().nullable(), likes.total().nullable()))
        .load::<(Option<i64>, Option<i32>)>(conn);
    assert_eq!(unmatched, Ok(vec![(None, None), (None, None)]));
}

#[test]
fn boxed_queries_and_subqueries() {
    let (_database, mut conn) = database();
    let conn = &mut conn;
    counted(conn);
    let mut boxed = videos.select((id, views.total())).into_boxed();
    boxed = boxed
        .filter(views.total().gt(180))
        .order(views.total().asc());
    assert_eq!(boxed.load(conn), Ok(vec![(2_i64, 200_i64), (3, 301)]));
    let popular = videos.filter(views.total().gt(300)).select(id);
    let said = comments::table
        .filter(comments::video_id.eq_any(popular))
        .count();
    assert_eq!(said.get_result(conn), Ok(2_i64));
}

#[test]
fn its_type_can_be_named() {
    type IdAndViews = (table::id, Total<table::views>);
    fn columns() -> IdAndViews {
        (id, views.total())
    }
    let (_database, mut conn) = database();
    assert_eq!(
        videos.find(1).select(columns()).first(&mut conn),
        Ok((1_i64, 100_i64))
    );
}

#[test]
fn grouped_by_the_key() {
    let (_database, mut conn) = database();
    counted(&mut conn);
    let grouped = videos.group_by(id).select((id, views.total())).order(id);
    assert_eq!(
        grouped.load(&mut conn),
        Ok(vec![(1_i64, 150_i64), (2, 200), (3, 301)])
    );
}

#[test]
fn aggregates_of_totals() {
    let (_database, mut conn) = database();
    counted(&mut conn);
    let greatest = videos.select(diesel::dsl::max(views.total()));
    assert_eq!(greatest.first(&mut conn), Ok(Some(301_i64)));
}

/// A total that does not fit is an error, on the way up and on the way down, and is right up to the very edge.
#[test]
fn a_total_out_of_range_is_an_error_when_read() {
    let (_database, mut conn) = database();
    let conn = &mut conn;
    macro_rules! edge {
        ($field:ident, $min:expr, $max:expr) => {
            for (base, towards, back) in [($max, 1, -1), ($min + 1, -2, 1)] {
                use schema::measures::dsl::*;
                diesel::delete(diesel_sharded_tests::schema::measures_shards::table)
                    .execute(conn)
                    .unwrap();
                diesel::update(measures.find(1))
                    .set($field.eq(base))
                    .execute(conn)
                    .unwrap();
                update(measures.find(1))
                    .set($field.eq($field + towards))
                    .execute(conn)
                    .unwrap();
                let read = measures.find(1).select($field.total());
                let result = read.first(conn);
                assert!(result.is_err(), "{} + {towards}: {result:?}", base);
                let _ = if false { Ok(base) } else { result }; // its type
                update(measures.find(1))
                    .set($field.eq($field + back))
                    .execute(conn)
                    .unwrap();
                let edge = if towards > 0 { $max } else { $min };
                assert_eq!(read.first(conn), Ok(edge));
            }
        };
    }
    edge!(small, i16::MIN, i16::MAX);
    edge!(medium, i32::MIN, i32::MAX);
    edge!(large, i64::MIN, i64::MAX);
}
