//! `total()` anywhere in a query.

use super::api::Total;
use super::support::*;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{self, videos as table};

/// Videos 1 to 3 have 150, 200 and 301 views; video 2 has no shard.
fn counted(conn: &mut Conn) {
    count(1, 20, conn).unwrap();
    count(1, 30, conn).unwrap();
    count(3, 1, conn).unwrap();
}

#[test]
fn select_filter_and_order() {
    let (_database, conn) = &mut database();
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
    count(1, 500, conn).unwrap();
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
fn joined_rows_do_not_multiply_it() {
    let (_database, conn) = &mut database();
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
    let (_database, conn) = &mut database();
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

/// Measure 1 has the totals 10 of `f` (base 3), 4 of `g` and 0 of `h`.
fn measured() -> (diesel_sharded_tests::Database, Conn) {
    use schema::measures::dsl::*;
    let (database, mut conn) = database();
    let base = diesel::update(measures.find(1)).set(f.eq(3));
    assert_eq!(base.execute(&mut conn), Ok(1));
    let changes = (f.eq(f + 7), g.eq(g + 4));
    assert_eq!(count!(measures.find(1), changes, &mut conn), 1);
    (database, conn)
}

#[test]
fn totals_are_numbers() {
    use schema::measures::dsl::*;
    let (_database, conn) = &mut measured();
    let numbers = (
        f.total() - g.total(),
        g.total() - f.total(),
        f.total() + 1,
        2_i64.into_sql::<diesel::sql_types::BigInt>() * f.total(),
        (f.total() + g.total()) * h.total(),
        f.total() + f,
    );
    assert_eq!(
        measures.select(numbers).first(conn),
        Ok((6_i64, -6_i64, 11_i64, 20_i64, 0_i64, 13_i64))
    );
    macro_rules! rows {
        ($filter:expr) => {
            measures.filter($filter).count().get_result::<i64>(conn)
        };
    }
    assert_eq!(rows!(f.total().gt(g.total())), Ok(1));
    assert_eq!(rows!(f.total().le(g.total())), Ok(0));
    assert_eq!(rows!(f.total().ne(f)), Ok(1));
    assert_eq!(rows!((f.total() - g.total()).eq(6)), Ok(1));
    assert_eq!(rows!((f.total() * 2).between(19, 21)), Ok(1));
    assert_eq!(rows!(h.total().eq(g.total())), Ok(0));
    let ordered = measures.order((g.total() - f.total()).desc()).select(id);
    assert_eq!(ordered.first(conn), Ok(1_i16));
}

#[test]
fn totals_by_group_and_their_sums() {
    use diesel::dsl::sum;
    let (_database, conn) = &mut database();
    counted(conn);
    let grouped = videos.group_by(id).select((id, views.total())).order(id);
    assert_eq!(
        grouped.load(conn),
        Ok(vec![(1_i64, 150_i64), (2, 200), (3, 301)])
    );
    let greatest = videos.select(diesel::dsl::max(views.total()));
    assert_eq!(greatest.first(conn), Ok(Some(301_i64)));
    let by_channel = videos
        .filter(channel.is_not_null())
        .group_by(channel)
        .select((channel, sum(views.total()), sum(likes.total() + 1)));
    assert_eq!(
        by_channel.load(conn),
        Ok(vec![(
            Some("news".to_owned()),
            Some(bigdecimal::BigDecimal::from(501)),
            Some(7_i64)
        )])
    );
    let difference = videos.select(sum(views.total() - views));
    assert_eq!(
        difference.first(conn),
        Ok(Some(bigdecimal::BigDecimal::from(51)))
    );
}

#[test]
fn totals_of_aliased_tables() {
    let (_database, conn) = &mut database();
    counted(conn);
    let other = diesel::alias!(table as other);
    let alone = other
        .filter(other.field(views).total().gt(180))
        .order(other.field(views).total().desc())
        .select((
            other.field(id),
            other.field(views).total(),
            other.field(views),
        ));
    assert_eq!(
        alone.load(conn),
        Ok(vec![(3_i64, 301_i64, 300_i64), (2, 200, 200)])
    );
    let more = table::table
        .inner_join(other.on(other.field(views).total().gt(views.total() + 100)))
        .select((
            id,
            other.field(id),
            other.field(views).total() - views.total(),
        ))
        .order(id);
    assert_eq!(
        more.load(conn),
        Ok(vec![(1_i64, 3_i64, 151_i64), (2, 3, 101)])
    );
    let left = table::table
        .left_join(other.on(other.field(likes).total().gt(likes.total() + 1)))
        .select((id, other.field(views).total().nullable()))
        .order(id);
    assert_eq!(
        left.load(conn),
        Ok(vec![(1_i64, Some(301_i64)), (2, None), (3, None)])
    );
}

/// A total that does not fit is an error, on the way up and on the way down, and is right up to the very edge.
#[test]
fn a_total_out_of_range_is_an_error_when_read() {
    let (_database, conn) = &mut database();
    macro_rules! edge {
        ($field:ident, $min:expr, $max:expr) => {
            for (base, towards, back) in [($max, 1, -1), ($min + 1, -2, 1)] {
                use schema::measures::dsl::*;
                delete!(diesel_sharded_tests::schema::measures_shards::table, conn);
                edit!(measures.find(1), $field.eq(base), conn);
                count!(measures.find(1), $field.eq($field + towards), conn);
                let read = measures.find(1).select($field.total());
                let result = read.first(conn);
                assert!(result.is_err(), "{} + {towards}: {result:?}", base);
                let _ = if false { Ok(base) } else { result }; // its type
                count!(measures.find(1), $field.eq($field + back), conn);
                let edge = if towards > 0 { $max } else { $min };
                assert_eq!(read.first(conn), Ok(edge));
            }
        };
    }
    edge!(small, i16::MIN, i16::MAX);
    edge!(medium, i32::MIN, i32::MAX);
    edge!(large, i64::MIN, i64::MAX);
}
