//! Counted rows come back with exact totals, also where the database has no RETURNING.

use super::support::*;
use diesel_sharded_tests::schema::PlainVideo;
use diesel_sharded_tests::schema::videos::dsl::*;

#[test]
fn without_a_selection_all_columns_come_back_with_totals() {
    let conn = &mut set_up().conn;
    for n in 1..=3 {
        let changes = (views.eq(views + 1), likes.eq(likes + 10));
        let video = update(videos.find(2)).set(changes).get_result(conn).done();
        let expected = WholeVideo {
            id: 2,
            slug: "b".into(),
            title: "B".into(),
            views: 200 + n,
            likes: 2 + 10 * n as i32,
            channel: Some("news".into()),
        };
        assert_eq!(video, Ok(expected));
    }
    let news = viewed!(videos.filter(channel.eq("news")));
    let mut counted: Vec<WholeVideo> = news.get_results(conn).unwrap();
    counted.sort_by_key(|video| video.id);
    let counted = counted.iter().map(|video| (video.id, video.views));
    assert_eq!(counted.collect::<Vec<_>>(), [(2, 204), (3, 301)]);
}

#[test]
fn a_row_that_the_count_moves_out_of_its_filter_comes_back_too() {
    let conn = &mut set_up().conn;
    for expected in [vec![(1_i64, 101_i64)], vec![]] {
        let count = viewed!(videos.filter(views.total().le(100)));
        let counted = count.returning((id, views)).get_results(conn).done();
        assert_eq!(counted, Ok(expected));
    }
}

#[test]
fn more_rows_than_one_statement_names() {
    let conn = &mut set_up().conn;
    let inserted: QueryResult<()> = conn.transaction(|conn| {
        for n in 4..=350_i64 {
            let video = (id.eq(n), slug.eq(n.to_string()), title.eq("many"));
            insert!(videos, video, conn);
        }
        Ok(())
    });
    inserted.unwrap();
    let count = viewed!(videos.filter(title.eq("many"))).returning(views);
    gives!(count.get_results(conn), vec![1_i64; 347]);
}

#[test]
fn returning_gives_totals_for_columns_and_models() {
    let conn = &mut set_up().conn;
    let count = || viewed!(videos.find(1));
    gives!(count().returning(views).get_result(conn), 101_i64);
    gives!(count().returning(views.total()).get_result(conn), 102_i64);
    let nested = count().returning((id, (views, title)));
    gives!(nested.get_result(conn), (1_i64, (103_i64, "A".to_owned())));
    let video = count().returning(Video::as_returning());
    assert_eq!(video.get_result(conn).unwrap().views, 104);
    let plain = count().returning(PlainVideo::as_select());
    gives!(plain.get_result(conn), PlainVideo { id: 1, views: 105 });
    let both = count().returning((PlainVideo::as_returning(), slug));
    let (plain, name): (PlainVideo, String) = both.get_result(conn).unwrap();
    assert_eq!((plain.views, &*name), (106, "a"));
}

#[test]
fn no_row_is_not_found() {
    let conn = &mut set_up().conn;
    let count = || viewed!(videos.find(4)).returning(views);
    let none = count().get_result::<i64>(conn).done();
    assert_eq!(none, Err(diesel::NotFound));
    assert_eq!(count().get_result::<i64>(conn).done().optional(), Ok(None));
    gives!(count().get_results::<i64>(conn), vec![]);
    let orphans = videos_shards::table.filter(videos_shards::id.eq(4)).count();
    assert_eq!(orphans.get_result(conn), Ok(0_i64));
}

#[test]
fn inside_a_transaction_too() {
    let conn = &mut set_up().conn;
    let read = conn.transaction(|conn| {
        count(1, 1, conn)?;
        let count = viewed!(videos.filter(slug.eq("a"))).returning(views);
        count.get_result::<i64>(conn).done()
    });
    assert_eq!(read, Ok(102));
}

/// Whether a shard is there or missing, the rows that come back are those that are counted, with the totals that a reader finds next.
#[test]
fn rows_come_back_whatever_shards_are_missing() {
    let conn = &mut set_up().conn;
    let mut expected = [100, 200, 300];
    for round in 0..24 {
        if round % 3 == 1 {
            let emptied = fold(videos).keep_shards(0).run(conn).unwrap();
            assert!(emptied.parents > 0);
            assert_eq!(count(2, 1, conn), Ok(1));
            expected[1] += 1;
        }
        let count = update(videos.filter(id.le(3))).set(views.eq(views + 2));
        let mut counted: Vec<(i64, i64)> = count.returning((id, views)).get_results(conn).unwrap();
        counted.sort_unstable();
        expected = expected.map(|total| total + 2);
        let [a, b, c] = expected;
        assert_eq!(counted, [(1, a), (2, b), (3, c)]);
        assert_eq!(totals(conn), expected);
        let count = update(videos.find(2)).set((views.eq(views - 1), likes.eq(likes + 1)));
        let count = count.returning((views, likes.total(), slug));
        gives!(count.get_result(conn), (b - 1, 3 + round, "b".to_owned()));
        gives!(viewed!(videos.filter(id.ne(2))).execute(conn), 2);
        expected = [a + 1, b - 1, c + 1];
        assert_eq!(totals(conn), expected);
    }
}
