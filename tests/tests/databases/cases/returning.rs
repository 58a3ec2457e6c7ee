//! Counted rows come back with exact totals, also where the database has no RETURNING.

use super::support::*;
use diesel_sharded_tests::schema::PlainVideo;
use diesel_sharded_tests::schema::videos::dsl::*;

#[test]
fn without_a_selection_all_columns_come_back_with_totals() {
    let (_database, mut conn) = database();
    for n in 1..=3 {
        let video: WholeVideo = update(videos.find(2))
            .set((views.eq(views + 1), likes.eq(likes + 10)))
            .get_result(&mut conn)
            .unwrap();
        let expected = WholeVideo {
            id: 2,
            slug: "b".into(),
            title: "B".into(),
            views: 200 + n,
            likes: 2 + 10 * n as i32,
            channel: Some("news".into()),
        };
        assert_eq!(video, expected);
    }
    let news = update(videos.filter(channel.eq("news"))).set(views.eq(views + 1));
    let mut counted: Vec<WholeVideo> = news.get_results(&mut conn).unwrap();
    counted.sort_by_key(|video| video.id);
    let counted = counted.iter().map(|video| (video.id, video.views));
    assert_eq!(counted.collect::<Vec<_>>(), [(2, 204), (3, 301)]);
}

#[test]
fn a_row_that_the_count_moves_out_of_its_filter_comes_back_too() {
    let (_database, mut conn) = database();
    let counted: Vec<(i64, i64)> = update(videos.filter(views.total().le(100)))
        .set(views.eq(views + 1))
        .returning((id, views))
        .get_results(&mut conn)
        .unwrap();
    assert_eq!(counted, [(1, 101)]);
    let counted: Vec<i64> = update(videos.filter(views.total().le(100)))
        .set(views.eq(views + 1))
        .returning(id)
        .get_results(&mut conn)
        .unwrap();
    assert_eq!(counted, [0; 0]);
}

#[test]
fn more_rows_than_one_statement_names() {
    let (_database, mut conn) = database();
    conn.transaction(|conn| {
        (4..=350_i64).try_for_each(|n| {
            let video = (id.eq(n), slug.eq(n.to_string()), title.eq("many"));
            diesel::insert_into(videos)
                .values(video)
                .execute(conn)
                .map(drop)
        })
    })
    .unwrap();
    let counted: Vec<i64> = update(videos.filter(title.eq("many")))
        .set(views.eq(views + 1))
        .returning(views)
        .get_results(&mut conn)
        .unwrap();
    assert_eq!(counted, [1; 347]);
}

#[test]
fn returning_gives_totals_for_columns_and_models() {
    let (_database, mut conn) = database();
    let count = || update(videos.find(1)).set(views.eq(views + 1));
    assert_eq!(count().returning(views).get_result(&mut conn), Ok(101_i64));
    assert_eq!(
        count().returning(views.total()).get_result(&mut conn),
        Ok(102_i64)
    );
    assert_eq!(
        count()
            .returning((id, (views, title)))
            .get_result(&mut conn),
        Ok((1_i64, (103_i64, "A".to_owned())))
    );
    let video = count()
        .returning(Video::as_returning())
        .get_result(&mut conn)
        .unwrap();
    assert_eq!(video.views, 104);
    let plain = count()
        .returning(PlainVideo::as_select())
        .get_result(&mut conn)
        .unwrap();
    assert_eq!(plain, PlainVideo { id: 1, views: 105 });
    let (plain, name) = count()
        .returning((PlainVideo::as_returning(), slug))
        .get_result::<(PlainVideo, String)>(&mut conn)
        .unwrap();
    assert_eq!((plain.views, name.as_str()), (106, "a"));
}

#[test]
fn no_row_is_not_found() {
    let (_database, mut conn) = database();
    let count = || {
        update(videos.find(4))
            .set(views.eq(views + 1))
            .returning(views)
    };
    assert_eq!(count().get_result::<i64>(&mut conn), Err(diesel::NotFound));
    assert_eq!(count().get_result::<i64>(&mut conn).optional(), Ok(None));
    assert_eq!(count().get_results::<i64>(&mut conn), Ok(vec![]));
    let orphans = videos_shards::table.filter(videos_shards::id.eq(4)).count();
    assert_eq!(orphans.get_result(&mut conn), Ok(0));
}

#[test]
fn inside_a_transaction_too() {
    let (_database, mut conn) = database();
    let read = conn.transaction(|conn| {
        count(1, 1, conn)?;
        update(videos.filter(slug.eq("a")))
            .set(views.eq(views + 1))
            .returning(views)
            .get_result::<i64>(conn)
    });
    assert_eq!(read, Ok(102));
}

/// Whether a shard is there or missing, the rows that come back are those that are counted, with the totals that a reader finds next.
#[test]
fn rows_come_back_whatever_shards_are_missing() {
    let (_database, conn) = &mut database();
    let mut expected = totals(conn);
    for round in 0..24 {
        if round % 3 == 1 {
            let emptied = fold(videos).keep_shards(0).run(conn).unwrap();
            assert!(emptied.parents > 0);
            assert_eq!(count(1 + round % 3, 1, conn), Ok(1));
            expected[(round % 3) as usize] += 1;
        }
        let counting = update(videos.filter(id.le(3))).set(views.eq(views + 2));
        let counted = counting.returning((id, views));
        let mut counted: Vec<(i64, i64)> = counted.get_results(conn).unwrap();
        counted.sort_unstable();
        for (number, expected) in expected.iter_mut().take(3).enumerate() {
            *expected += 2;
            assert_eq!(counted[number], (number as i64 + 1, *expected));
        }
        assert_eq!(totals(conn), expected);
        let counting = update(videos.find(2)).set((views.eq(views - 1), likes.eq(likes + 1)));
        let counted = counting.returning((views, likes.total(), slug));
        let (shown, liked, slugged): (i64, i32, String) = counted.get_result(conn).unwrap();
        expected[1] -= 1;
        assert_eq!((shown, liked), (expected[1], 3 + round as i32));
        assert_eq!(slugged, "b");
        let several = update(videos.filter(id.ne(2))).set(views.eq(views + 1));
        let matched = several.execute(conn).unwrap();
        for (number, expected) in expected.iter_mut().enumerate() {
            *expected += i64::from(number != 1);
        }
        assert_eq!(
            (matched, totals(conn)),
            (expected.len() - 1, expected.clone())
        );
    }
}
