//! `total()` anywhere in a query.

use super::support::*;
use bigdecimal::BigDecimal;
use diesel::dsl::{max, sum};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{self, videos as table};

/// Videos 1 to 3 have 150, 200 and 301 views; video 2 has no shard.
fn counted() -> Connected<Conn> {
    let mut fixture = set_up();
    for (video, n) in [(1, 20), (1, 30), (3, 1)] {
        assert_eq!(count(video, n, &mut fixture.conn), Ok(1));
    }
    fixture
}

#[test]
fn select_filter_and_order() {
    let conn = &mut counted().conn;
    let totals = videos.select((id, views.total()));
    let totals = totals.order(views.total().desc()).load(conn);
    assert_eq!(totals, Ok(vec![(3_i64, 301_i64), (2, 200), (1, 150)]));
    let few = videos.filter(views.total().lt(200)).select(id);
    assert_eq!(few.load(conn), Ok(vec![1_i64]));
    let between = videos.filter(views.total().between(200, 300)).select(id);
    assert_eq!(between.load(conn), Ok(vec![2_i64]));
    count(1, 500, conn).unwrap();
    let top = videos.select(Video::as_select());
    let top = top.order(views.total().desc()).first(conn).unwrap();
    assert_eq!((top.id, top.views), (1, 650));
}

#[test]
fn joined_rows_do_not_multiply_it() {
    let conn = &mut counted().conn;
    let joined = comments::table.inner_join(table::table);
    let joined = joined.select((comments::id, views.total()));
    let joined = joined.order(comments::id).load(conn);
    assert_eq!(joined, Ok(vec![(1_i64, 301_i64), (2, 301)]));
    let left = table::table.left_join(comments::table);
    let left = left.select((id, views.total(), comments::id.nullable()));
    let left = left.order((id, comments::id)).load(conn);
    let of_3 = |comment| (3, 301, Some(comment));
    let expected = vec![(1_i64, 150_i64, None), (2, 200, None), of_3(1_i64), of_3(2)];
    assert_eq!(left, Ok(expected));
    let nullable = comments::table.left_join(table::table);
    let nullable = nullable.select((views.total().nullable(), likes.total().nullable()));
    assert_eq!(nullable.load(conn), Ok(vec![(Some(301_i64), Some(3)); 2]));
    delete!(videos.find(3), conn);
    let unmatched = nullable.load::<(Option<i64>, Option<i32>)>(conn);
    assert_eq!(unmatched, Ok(vec![(None, None); 2]));
}

#[test]
fn boxed_queries_and_subqueries() {
    let conn = &mut counted().conn;
    let boxed = videos.select((id, views.total())).into_boxed();
    let boxed = boxed.filter(views.total().gt(180)).order(views.total());
    assert_eq!(boxed.load(conn), Ok(vec![(2_i64, 200_i64), (3, 301)]));
    let popular = videos.filter(views.total().gt(300)).select(id);
    let said = comments::table.filter(comments::video_id.eq_any(popular));
    assert_eq!(said.count().get_result(conn), Ok(2_i64));
}

#[test]
fn totals_are_numbers() {
    use schema::measures::dsl::*;
    let conn = &mut set_up().conn;
    edit!(measures.find(1), f.eq(3), conn);
    count!(measures.find(1), (f.eq(f + 7), g.eq(g + 4)), conn);
    let numbers = (
        f.total() - g.total(),
        g.total() - f.total(),
        f.total() + 1,
        2_i64.into_sql::<diesel::sql_types::BigInt>() * f.total(),
        (f.total() + g.total()) * h.total(),
        f.total() + f,
    );
    let numbers = measures.select(numbers).first(conn);
    assert_eq!(numbers, Ok((6_i64, -6_i64, 11_i64, 20_i64, 0_i64, 13_i64)));
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
    let conn = &mut counted().conn;
    let grouped = videos.group_by(id).select((id, views.total()));
    let grouped = grouped.order(id).load(conn);
    assert_eq!(grouped, Ok(vec![(1_i64, 150_i64), (2, 200), (3, 301)]));
    let greatest = videos.select(max(views.total())).first(conn);
    assert_eq!(greatest, Ok(Some(301_i64)));
    let by_channel = videos.filter(channel.is_not_null()).group_by(channel);
    let sums = (channel, sum(views.total()), sum(likes.total() + 1));
    let news = Some("news".to_owned());
    let expected = (news, Some(BigDecimal::from(501)), Some(7_i64));
    assert_eq!(by_channel.select(sums).load(conn), Ok(vec![expected]));
    let difference = videos.select(sum(views.total() - views)).first(conn);
    assert_eq!(difference, Ok(Some(BigDecimal::from(51))));
    // The greatest sums first, as the guide has it for buckets of time.
    let liked = sum(likes.total()).assume_not_null();
    let by_channel = videos.group_by(channel).select((channel, liked));
    let greatest = by_channel.order((liked.desc(), channel)).limit(1);
    let news = Some("news".to_owned());
    assert_eq!(greatest.load(conn), Ok(vec![(news, 5_i64)]));
}

#[test]
fn totals_of_aliased_tables() {
    let conn = &mut counted().conn;
    let other = diesel::alias!(table as other);
    let (other_id, other_views) = (other.field(id), other.field(views));
    let alone = other.filter(other_views.total().gt(180));
    let alone = alone.order(other_views.total().desc());
    let alone = alone.select((other_id, other_views.total(), other_views));
    let expected = vec![(3_i64, 301_i64, 300_i64), (2, 200, 200)];
    assert_eq!(alone.load(conn), Ok(expected));
    let more = other.on(other_views.total().gt(views.total() + 100));
    let more = table::table.inner_join(more).order(id);
    let more = more.select((id, other_id, other_views.total() - views.total()));
    let expected = vec![(1_i64, 3_i64, 151_i64), (2, 3, 101)];
    assert_eq!(more.load(conn), Ok(expected));
    let left = other.on(other.field(likes).total().gt(likes.total() + 1));
    let left = table::table.left_join(left).order(id);
    let left = left.select((id, other_views.total().nullable()));
    let expected = vec![(1_i64, Some(301_i64)), (2, None), (3, None)];
    assert_eq!(left.load(conn), Ok(expected));
    let by_key = other
        .group_by(other_id)
        .select((other_id, other_views.total()));
    let by_key = by_key.filter(other_views.total().gt(180)).order(other_id);
    assert_eq!(by_key.load(conn), Ok(vec![(2_i64, 200_i64), (3, 301)]));
    // MariaDB's `HAVING` knows a column that is neither grouped nor aggregated only if it is selected.
    let having = other.group_by(other_id).having(other_views.total().gt(180));
    let having = having.select((other_id, other_views, other_views.total()));
    let expected = vec![(2_i64, 200_i64, 200_i64), (3, 300, 301)];
    assert_eq!(having.order(other_id).load(conn), Ok(expected));
}
