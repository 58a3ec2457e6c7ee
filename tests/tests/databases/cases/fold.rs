//! Folding: by one row, by a filter, the whole table in batches; beside increments, from several processes at once.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::api::Unfit;
use super::api::operation::Amount;
use super::support::*;
use bigdecimal::BigDecimal;
use diesel_sharded_tests::schema::videos::dsl::*;

/// Ten views more and ten likes less for each of videos 1 to 3, on several shards.
fn counted() -> Connected<Conn> {
    let mut fixture = set_up();
    for _ in 0..10 {
        let changes = (views.eq(views + 1), likes.eq(likes - 1));
        count!(videos, changes, &mut fixture.conn);
    }
    fixture
}

fn bases(conn: &mut Conn) -> Vec<(i64, i64, i32)> {
    let bases = videos.select((id, views, likes)).order(id);
    bases.load(conn).unwrap()
}

fn totals(conn: &mut Conn) -> Vec<(i64, i64, i32)> {
    let totals = videos.select((id, views.total(), likes.total()));
    totals.order(id).load(conn).unwrap()
}

#[test]
fn one_row() {
    let conn = &mut counted().conn;
    let before = totals(conn);
    // Nothing is left for a second fold, and nothing is written again.
    for (video, parents) in [(2, 1), (2, 0), (99, 0)] {
        let folded = fold(videos.find(video)).run(conn).unwrap();
        assert_eq!((folded.parents, folded.finished), (parents, true));
        let moved = 10 * i128::from(parents);
        assert_eq!(folded.moved(views), Amount::Integer(moved));
        assert_eq!(folded.moved(likes), Amount::Integer(-moved));
        assert_eq!(bases(conn), [(1, 100, 1), (2, 210, -8), (3, 300, 3)]);
        assert_eq!(totals(conn), before);
    }
}

#[test]
fn by_a_filter_also_on_a_total() {
    let conn = &mut counted().conn;
    let folded = fold(videos.filter(views.total().ge(210)).filter(slug.ne("c")));
    assert_eq!(folded.run(conn).unwrap().parents, 1);
    let folded = fold(videos.filter(channel.eq("news"))).run(conn).unwrap();
    assert_eq!((folded.parents, folded.last), (1, Some(3))); // 2 was folded
    assert_eq!(bases(conn), [(1, 100, 1), (2, 210, -8), (3, 310, -7)]);
}

#[test]
fn a_model_and_composite_keys() {
    let conn = &mut counted().conn;
    let video = videos.find(1).select(Video::as_select()).first(conn);
    assert_eq!(fold(&video.unwrap()).run(conn).unwrap().parents, 1);
    for version in 1..=3 {
        for day in [30, 10, 20] {
            let row = (downloads::version.eq(version), downloads::day.eq(day));
            insert!(downloads::table, row, conn);
        }
    }
    let changes = downloads::number.eq(downloads::number + 7);
    count!(downloads::table, changes, conn);
    let mut seen = vec![];
    let batches = fold(downloads::table).batch(2);
    let folded = batches
        .run_with(conn, |so_far| {
            seen.extend(so_far.last);
            ControlFlow::Continue(())
        })
        .done();
    let last = [(1, 20), (2, 10), (2, 30), (3, 20), (3, 30)];
    assert_eq!(seen, last.map(|(version, day)| (version, Day(day))));
    let moved = folded.unwrap().moved(downloads::number);
    assert_eq!(moved, Amount::Integer(63));
    let bases = downloads::table.select(downloads::number);
    assert_eq!(bases.load(conn), Ok(vec![7; 9]));
    let changes = downloads::number.eq(downloads::number + 1);
    count!(downloads::table, changes, conn);
    let early = downloads::table.filter(downloads::day.lt(Day(20)));
    assert_eq!(fold(early).run(conn).unwrap().parents, 3);
    let bases = bases.order((downloads::day, downloads::version));
    let expected = [[8; 3], [7; 3], [7; 3]].concat();
    assert_eq!(bases.load(conn), Ok(expected));
}

#[test]
fn the_whole_table_in_batches_that_are_interrupted_and_resumed() {
    let conn = &mut set_up().conn;
    for key in 4..=25_i64 {
        let new = (id.eq(key), slug.eq(key.to_string()), title.eq(""));
        insert!(videos, new, conn);
    }
    count!(videos, views.eq(views + 1), conn);
    let before = totals(conn);
    let mut batches = 0;
    let first = fold(videos).batch(10).run_with(conn, |so_far| {
        batches += 1;
        assert_eq!(so_far.parents, 10);
        ControlFlow::Break(())
    });
    let first = first.unwrap();
    assert_eq!((batches, first.parents, first.finished), (1, 10, false));
    let untouched = videos.filter(views.ne(views.total())).count();
    assert_eq!(untouched.get_result(conn), Ok(15_i64));
    let rest = fold(videos).batch(10).after(first.last.unwrap());
    let rest = rest.run(conn).unwrap();
    let all_the_rest = (15, true, Some(25));
    assert_eq!((rest.parents, rest.finished, rest.last), all_the_rest);
    assert_eq!(totals(conn), before);
    assert_eq!(bases(conn), before);
}

#[test]
fn at_most_so_many_a_second() {
    let conn = &mut counted().conn;
    let started = Instant::now();
    let folded = fold(videos).batch(1).at_most_per_second(10);
    assert_eq!(folded.run(conn).unwrap().parents, 3);
    assert!(started.elapsed() >= Duration::from_millis(300));
}

#[test]
fn shards_beyond_the_wished_number_are_removed() {
    let conn = &mut set_up().conn;
    count_on_any_shard(60, conn);
    let of_1 = videos_shards::table.filter(videos_shards::id.eq(1));
    let of_1 = of_1.select(videos_shards::shard);
    let shards = |conn: &mut Conn| of_1.order(videos_shards::shard).load::<i32>(conn);
    for (keep_shards, removed, left) in [(128, 0, 4), (1, 3, 1), (0, 1, 0)] {
        let folding = fold(videos.find(1)).keep_shards(keep_shards);
        assert_eq!(folding.run(conn).unwrap().shards_removed, removed);
        assert_eq!(shards(conn), Ok((0..left).collect()));
    }
    for _ in 0..10 {
        count(1, 1, conn).unwrap();
    }
    assert_eq!(totals(conn)[0], (1, 170, 1));
}

#[test]
fn every_type_of_field() {
    use diesel_sharded_tests::schema::measures::dsl::*;
    let conn = &mut set_up().conn;
    let half = "0.500001".parse::<BigDecimal>().unwrap();
    for _ in 0..4 {
        let changes = (
            small.eq(small - 1),
            medium.eq(medium + 2),
            large.eq(large + i64::from(i32::MAX)),
            real.eq(real + 0.25),
            exact.eq(exact + &half),
            f.eq(f + 1),
            g.eq(g - 1),
            h.eq(h + 1 + 1),
        );
        count!(measures.find(1), changes, conn);
    }
    let most = 4 * i64::from(i32::MAX);
    let totals = measures.select((small.total(), medium.total(), large.total()));
    assert_eq!(totals.first(conn), Ok((-4_i16, 8, most)));
    let totals = measures.select((real.total(), f.total(), g.total(), h.total()));
    assert_eq!(totals.first(conn), Ok((1.0_f64, 4_i64, -4_i64, 8_i64)));
    let folded = fold(measures).run(conn).unwrap();
    assert_eq!(folded.moved(small), Amount::Integer(-4));
    assert_eq!(folded.moved(medium), Amount::Integer(8));
    assert_eq!(folded.moved(large), Amount::Integer(most.into()));
    assert_eq!(folded.moved(real), Amount::Double(1.0));
    let exactly = "2.000004".parse::<BigDecimal>().unwrap();
    assert_matches!(folded.moved(exact), Amount::Numeric(moved) if *moved == exactly);
    let row = measures.select((small, medium, large, real)).first(conn);
    assert_eq!(row, Ok((-4_i16, 8, most, 1.0_f64)));
}

/// A total that does not fit its column cannot be folded, but does not stop anyone else's fold.
#[test]
fn a_total_that_does_not_fit_stays_on_its_shards() {
    let conn = &mut set_up().conn;
    edit!(videos.find(2), likes.eq(i32::MAX), conn);
    for _ in 0..2 {
        count!(videos, (views.eq(views + 1), likes.eq(likes + 1)), conn);
    }
    let fold_all = |conn: &mut Conn| fold(videos).run(conn).done();
    let folded = [fold_all(conn), conn.transaction(fold_all)];
    for folded in folded.map(Result::unwrap) {
        let unfit = [(2, Unfit::OutOfRange)];
        assert_eq!((folded.finished, &folded.unfit[..]), (true, &unfit[..]));
    }
    let left = videos.select((views, views.total(), likes)).order(id);
    let expected = vec![(102_i64, 102_i64, 3), (200, 202, i32::MAX), (302, 302, 5)];
    assert_eq!(left.load(conn), Ok(expected));
}

#[test]
fn inside_a_callers_transaction() {
    let conn = &mut counted().conn;
    let result: QueryResult<_> = conn.transaction(|conn| {
        count(1, 5, conn)?;
        fold(videos).run(conn).done()
    });
    // MySQL's default isolation reads the rows as they were at the first read, but moves them as they are now.
    assert_eq!(result.unwrap().moved(views), Amount::Integer(35));
    assert_eq!(bases(conn)[0], (1, 115, -9));
}

/// Another connection reads the base as soon as it is reported, while the batches that follow are not folded yet.
#[test]
fn bases_are_reported_after_their_commit() {
    let Connected { conn, database } = &mut counted();
    let url = database.url().to_owned();
    let reported = Arc::new(Mutex::new(vec![]));
    let (of_views, of_likes) = (Arc::clone(&reported), Arc::clone(&reported));
    let folding = fold(videos)
        .batch(1)
        .on_folded(views, move |rows: &[(i64, i64)]| {
            let other = &mut Conn::establish(&url).unwrap();
            let bases = bases(other);
            for (video, base) in rows {
                assert!(bases.iter().any(|row| (row.0, row.1) == (*video, *base)));
                let is_done = |row: &(i64, i64, i32)| row.0 <= *video || row.1 == 100 * row.0;
                assert!(bases.iter().all(is_done));
                of_views.lock().unwrap().push((*video, *base));
            }
        })
        .on_folded(likes, move |rows| of_likes.lock().unwrap().extend(rows));
    folding.run(conn).unwrap();
    let expected = [(1, 110), (1, -9), (2, 210), (2, -8), (3, 310), (3, -7)];
    assert_eq!(*reported.lock().unwrap(), expected);
    assert_eq!(bases(conn), [(1, 110, -9), (2, 210, -8), (3, 310, -7)]);
}

#[test]
fn nothing_is_reported_inside_a_transaction() {
    let conn = &mut counted().conn;
    let folded: QueryResult<_> = conn.transaction(|conn| {
        let folding = fold(videos).on_folded(views, |_| panic!("it is not committed"));
        folding.run(conn).done()
    });
    assert_eq!(folded.unwrap().parents, 3);
}
