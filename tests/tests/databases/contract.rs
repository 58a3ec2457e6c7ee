//! What every connection has to do: each operation of the library once, its errors, and writers beside folds. The cases in `cases/` say what
//! each operation does beside others, and when it fails.

use std::thread;

use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded_tests::awaited::Done;
use diesel_sharded_tests::fixture::Fixture;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{Video, comments, measures, videos_shards};
use diesel_sharded_tests::{assert_matches, gives, patient, players};

use super::Conn;
use super::api::{self, Counter, Error, ShardsTable, count_many, fold, update};

#[path = "../operations/mod.rs"]
#[expect(dead_code, reason = "what other programs use")]
mod operations;

/// Adds to the views of video 1.
fn count(n: i64, conn: &mut Conn) -> QueryResult<usize> {
    let count = update(videos.find(1)).set(views.eq(views + n));
    count.execute(conn).done()
}

#[test]
fn each_operation_adds_what_it_says() {
    let [conn] = &mut *Fixture::<Conn, _>::with_counters();
    for (video, &(name, before, work)) in (1000..).zip(operations::ALL) {
        operations::arrange(name, before, video, conn);
        let was = operations::totals(video, conn);
        let added = work(conn, video).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(operations::totals(video, conn) - was, added, "{name}");
    }
}

#[test]
fn keeps_greatest_and_least_values() {
    use players::players::dsl::{best_score, fastest, games, players as table};
    let [conn] = &mut *Fixture::<Conn, _>::empty();
    players::create(conn);
    for (score, seconds) in [(40, 9.5), (90, 7.25), (70, 8.0)] {
        let played = (
            games.eq(games + 1),
            best_score.raise_to(score),
            fastest.lower_to(seconds),
        );
        gives!(update(table.find(1)).set(played).execute(conn), 1);
    }
    let of_all = table.select((games.total(), best_score.total(), fastest.total()));
    assert_eq!(of_all.first(conn), Ok((3_i64, Some(90), Some(7.25))));
}

#[test]
fn models_joins_and_lists_have_totals() {
    let [conn] = &mut *Fixture::<Conn, _>::with_counters();
    let count = update(videos.find(3)).set(views.eq(views + 5));
    let video = count.returning(Video::as_select()).get_result(conn).done();
    assert_eq!(video.unwrap().views, 305);
    let joined = videos.inner_join(comments::table).select(views.total());
    assert_eq!(joined.load(conn), Ok(vec![305_i64; 2]));
    for name in ["page:a", "page:b", "other"] {
        Counter::named(name).increment(conn).unwrap();
    }
    let listed = Counter::list("page:").after("page:a").load(conn).done();
    assert_eq!(listed, Ok(vec![("page:b".to_owned(), 1)]));
    let many = Counter::get_many(&["other", "none"], conn).done();
    assert_eq!(many, Ok(vec![1, 0]));
}

#[test]
fn errors_are_told_apart() {
    let [conn] = &mut *Fixture::<Conn, _>::with_tables();
    let add = |n: i16| update(measures::table.find(1)).set(measures::small.eq(measures::small + n));
    gives!(add(i16::MAX).execute(conn), 1);
    let beyond = count_many(measures::small, [(1, i64::from(i16::MAX) + 1)]);
    let beyond = Error::from(beyond.run(conn).unwrap_err());
    assert_matches!(beyond, Error::Overflow { .. });
    let shards = ShardsTable::of(videos);
    assert_eq!(count(5, conn), Ok(1));
    shards.drop(conn).unwrap();
    let error = Error::from(count(1, conn).unwrap_err());
    assert_matches!(&error, Error::MissingShardsTable { table, .. } if table == "videos_shards");
    assert_eq!(videos.find(1).select(views).first(conn), Ok(105_i64));
}

#[test]
fn shards_go_with_their_row() {
    let [conn] = &mut *Fixture::<Conn, _>::with_tables();
    assert_eq!(count(5, conn), Ok(1));
    let deleted = diesel::delete(videos.find(1)).execute(conn);
    let left = videos_shards::table.count().get_result(conn);
    assert_eq!((deleted, left), (Ok(1), Ok(0_i64)));
}

#[test]
fn eight_writers_beside_folds_lose_nothing() {
    let conns = &mut *Fixture::<Conn, 8>::with_tables();
    thread::scope(|scope| {
        for (writer, conn) in conns.iter_mut().enumerate() {
            scope.spawn(move || {
                for _ in 0..20 {
                    let count = update(videos.find(1)).set(views.eq(views + 1));
                    gives!(count.retry(patient()).execute(conn), 1);
                    if writer == 0 {
                        let _ = fold(videos).retry(patient()).run(conn).unwrap();
                    }
                }
            });
        }
    });
    let total = videos.find(1).select(views.total());
    assert_eq!(total.first(&mut conns[0]), Ok(260_i64));
}
