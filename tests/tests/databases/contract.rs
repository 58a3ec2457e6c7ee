//! What every connection has to do: each operation once. The cases in `cases/` say what each does beside others, and when it fails.

use std::thread;
use std::time::Duration;

use diesel::dsl::count_star;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_migrations::MigrationHarness;
use diesel_sharded::prelude::*;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{self, Video, comments, measures, videos_shards};
use diesel_sharded_tests::{
    Database, TestConnection, assert_matches, conflict, count, patient, players, rolled_back,
};

use super::Conn;
use super::api::retry::{self, Isolation, RetryPolicy, Transaction};
use super::api::shard_counts::{self, ShardCount};
use super::api::{
    Counter, CounterCache, Error, RowCounter, ShardsTable, count_many, fold, idempotency, reset,
    set_total, top, update, verify,
};

/// Three videos with 100, 200 and 300 views and with 1, 2 and 3 likes, the last of them with two comments.
fn database() -> (Database, Conn) {
    schema::database_with_counters()
}

fn totals(conn: &mut Conn) -> Vec<i64> {
    videos.order(id).select(views.total()).load(conn).unwrap()
}

/// Adds 5 to video 1, on a shard.
fn counted() -> (Database, Conn) {
    let (database, mut conn) = database();
    assert_eq!(count!(videos.find(1), views.eq(views + 5), &mut conn), 1);
    (database, conn)
}

#[test]
fn counts_by_key() {
    let (_database, mut conn) = counted();
    let base = videos.find(1).select(views).first(&mut conn);
    assert_eq!((base, totals(&mut conn)[0]), (Ok(100_i64), 105));
    assert_eq!(count!(videos.find(9), views.eq(views + 1), &mut conn), 0);
}

#[test]
fn counts_by_a_filter() {
    let (_database, mut conn) = database();
    let news = videos.filter(channel.eq("news").and(views.total().ge(200)));
    assert_eq!(count!(news, views.eq(views - 1), &mut conn), 2);
    assert_eq!(totals(&mut conn), [100, 199, 299]);
}

#[test]
fn counts_several_fields() {
    let (_database, mut conn) = database();
    let no_likes = (false).then(|| likes.eq(likes + 1));
    let changes = (views.eq(views + 1), no_likes);
    assert_eq!(count!(videos, changes, &mut conn), 3);
    let changes = (views.eq(views + 1), likes.eq(likes - 2));
    assert_eq!(count!(videos, changes, &mut conn), 3);
    let sums = videos.order(id).select((views.total(), likes.total()));
    let sums = sums.load::<(i64, i32)>(&mut conn);
    assert_eq!(sums, Ok(vec![(102, -1), (202, 0), (302, 1)]));
}

#[test]
fn returns_a_row() {
    let (_database, mut conn) = counted();
    let count = update(videos.find(1)).set(views.eq(views + 1));
    let back = count.returning((slug, views)).get_result(&mut conn);
    assert_eq!(back, Ok(("a".to_owned(), 106_i64)));
    let count = update(videos.find(2)).set(views.eq(views + 1));
    let video = count.returning(Video::as_select()).get_result(&mut conn);
    assert_eq!(video.unwrap().views, 201);
    let missing = update(videos.find(9)).set(views.eq(views + 1));
    let missing = missing.returning(views).get_result::<i64>(&mut conn);
    assert_eq!(missing, Err(DieselError::NotFound));
}

#[test]
fn returns_rows() {
    let (_database, mut conn) = counted();
    let count = update(videos.filter(id.le(2))).set(views.eq(views + 1));
    let back = count.returning((id, views)).get_results(&mut conn);
    let mut back: Vec<(i64, i64)> = back.unwrap();
    back.sort_unstable();
    assert_eq!(back, [(1, 106), (2, 201)]);
}

#[test]
fn inserts_a_missing_row() {
    let (_database, mut conn) = database();
    for total in [1, 2] {
        let count = update(videos.find(4)).set(views.eq(views + 1));
        let count = count.or_insert((id.eq(4), slug.eq("d"), title.eq("D")));
        assert_eq!(count.execute(&mut conn), Ok(1));
        assert_eq!(totals(&mut conn)[3], total);
    }
}

#[test]
fn counts_once_by_a_key() {
    let (_database, mut conn) = database();
    for _ in 0..2 {
        let count = update(videos.find(1)).set(views.eq(views + 1));
        assert_eq!(count.idempotency_key("a").execute(&mut conn), Ok(1));
        let of_2 = RowCounter::of(views, 2).idempotency_key("b");
        assert_eq!(of_2.add(1, &mut conn), Ok(1));
    }
    assert_eq!(totals(&mut conn), [101, 201, 300]);
    let all = idempotency::remove_older_than(Duration::from_secs(3600), &mut conn);
    assert_eq!(all, Ok(0));
}

#[test]
fn counts_many_keys() {
    let (_database, mut conn) = database();
    let many = count_many(views, [(1, 1), (3, 2), (1, 3), (9, 1)]).run(&mut conn);
    let many = many.unwrap();
    assert_eq!((many.rows, many.missing), (2, vec![9]));
    assert_eq!(totals(&mut conn), [104, 200, 302]);
}

#[test]
fn keeps_greatest_and_least_values() {
    use players::players::dsl::{best_score, fastest, games, players as table};
    let database = Conn::database();
    let conn = &mut Conn::connect(&database);
    players::create(conn);
    for (score, seconds) in [(40, 9.5), (90, 7.25), (70, 8.0)] {
        let played = (
            games.eq(games + 1),
            best_score.max(score),
            fastest.min(seconds),
        );
        assert_eq!(update(table.find(1)).set(played).execute(conn), Ok(1));
    }
    let of_all = table.select((games.total(), best_score.total(), fastest.total()));
    assert_eq!(of_all.first(conn), Ok((3_i64, Some(90), Some(7.25))));
}

#[test]
fn a_row_is_a_counter() {
    let (_database, mut conn) = database();
    let of_1 = RowCounter::of(views, 1);
    assert_eq!(of_1.add(3, &mut conn), Ok(1));
    assert_eq!(of_1.add_and_get(-1, &mut conn), Ok(Some(102)));
    assert_eq!(of_1.get(&mut conn), Ok(Some(102)));
    assert_eq!(RowCounter::of(views, 9).get(&mut conn), Ok(None));
}

#[test]
fn a_counter_keeps_its_bounds() {
    let (_database, mut conn) = database();
    let row = RowCounter::of(likes, 3).never_below(0).never_above(5);
    let named = Counter::named("seats").never_below(0).never_above(2);
    let row = [3, -3, -1].map(|n| row.add(n, &mut conn));
    assert_eq!(row, [Ok(false), Ok(true), Ok(false)]);
    let named = [1, 2, 1, -3].map(|n| named.add(n, &mut conn));
    assert_eq!(named, [Ok(true), Ok(false), Ok(true), Ok(false)]);
}

#[test]
fn a_counter_has_a_name() {
    let (_database, conn) = &mut database();
    let counter = Counter::named("signups");
    counter.increment(conn).unwrap();
    counter.add(41, conn).unwrap();
    assert_eq!((counter.get(conn), counter.estimate(conn)), (Ok(42), Ok(0)));
    assert_eq!(counter.fold(conn).unwrap().parents, 1);
    assert_eq!(counter.estimate(conn), Ok(42));
    assert_eq!(counter.add_and_get(-2, conn), Ok(40));
    counter.set(7, conn).unwrap();
    counter.decrement(conn).unwrap();
    assert_eq!(counter.get(conn), Ok(6));
    counter.reset(conn).unwrap();
    assert_eq!((counter.get(conn), counter.delete(conn)), (Ok(0), Ok(true)));
}

#[test]
fn counters_are_listed() {
    let (_database, mut conn) = database();
    for name in ["page:a", "page:b", "other"] {
        Counter::named(name).increment(&mut conn).unwrap();
    }
    let listed = Counter::list("page:").after("page:a").load(&mut conn);
    assert_eq!(listed, Ok(vec![("page:b".to_owned(), 1)]));
    let many = Counter::get_many(&["other", "none"], &mut conn);
    assert_eq!(many, Ok(vec![1, 0]));
}

#[test]
fn numbers_of_shards_change() {
    let (_database, conn) = &mut database();
    let counter = Counter::named("resized");
    assert_eq!(counter.increase_shards(200, conn), Ok(200));
    counter.resize(2, conn).unwrap();
    assert_eq!(counter.shards(conn), Ok(2));
    let of_views = ShardCount::of(views);
    assert_eq!(of_views.increase(8, conn), Ok(8));
    of_views.resize(2, conn).unwrap();
    shard_counts::refresh(conn).unwrap();
    assert_eq!(of_views.get(conn), Ok(2));
    of_views.resize(4, conn).unwrap(); // a process remembers it
}

#[test]
fn folds() {
    let (_database, conn) = &mut counted();
    assert_eq!(fold(videos.find(2)).run(conn).unwrap().parents, 0);
    assert_eq!(fold(videos).run(conn).unwrap().parents, 1);
    let base = videos.find(1).select(views).first(conn);
    assert_eq!((base, totals(conn)), (Ok(105_i64), vec![105, 200, 300]));
}

#[test]
fn sets_and_resets() {
    let (_database, conn) = &mut counted();
    assert_eq!(set_total(videos.find(1), views, 7).execute(conn), Ok(1));
    assert_eq!(totals(conn), [7, 200, 300]);
    for _ in 0..2 {
        let once = reset(videos.filter(id.ge(2))).idempotency_key("a");
        assert_eq!(once.execute(conn), Ok(2));
    }
    assert_eq!(totals(conn), [7, 0, 0]);
}

#[test]
fn verifies_and_repairs() {
    let (_database, mut conn) = database();
    let recount = comments::table
        .group_by(comments::video_id)
        .select((comments::video_id, count_star()));
    let drifts = verify(videos, likes, recount).drifts(&mut conn).unwrap();
    assert_eq!(drifts.len(), 3);
    let drifts = verify(videos, likes, recount).repair(&mut conn).unwrap();
    assert_eq!(drifts.len(), 3);
    let repaired = videos.order(id).select(likes.total()).load(&mut conn);
    assert_eq!(repaired, Ok(vec![0, 0, 2]));
}

#[test]
fn lists_the_first_rows() {
    let (_database, mut conn) = database();
    assert_eq!(count!(videos.find(1), views.eq(views + 150), &mut conn), 1);
    let first = top(videos, views, 2).select((id, views)).load(&mut conn);
    assert_eq!(first, Ok(vec![(3_i64, 300_i64), (1, 250)]));
}

#[test]
fn queries_read_totals() {
    let (_database, conn) = &mut counted();
    let filtered = videos.filter(views.total().gt(104)).select(id);
    let filtered = filtered.order(views.total().desc()).load(conn);
    assert_eq!(filtered, Ok(vec![3_i64, 2, 1]));
    let boxed = videos.select(views.total()).into_boxed().filter(id.eq(1));
    assert_eq!(boxed.first(conn), Ok(105_i64));
    let joined = videos.inner_join(comments::table).select(views.total());
    assert_eq!(joined.load(conn), Ok(vec![300_i64; 2]));
    let models = videos.select(Video::as_select()).order(id).load(conn);
    assert_eq!(models.unwrap()[0].views, 105);
}

#[test]
fn triggers_count_rows() {
    let (_database, conn) = &mut database();
    let cache = CounterCache::of(likes).counts(comments::video_id);
    cache.create(conn).unwrap();
    assert_eq!(cache.verify().repair(conn).unwrap().len(), 3);
    let new = (comments::id.eq(3), comments::video_id.eq(1));
    let inserted = diesel::insert_into(comments::table).values(new);
    assert_eq!(inserted.execute(conn), Ok(1));
    let counts = videos.order(id).select(likes.total());
    assert_eq!(counts.load(conn), Ok(vec![1, 0, 2]));
    cache.drop(conn).unwrap();
}

#[test]
fn belongs_to_the_callers_transaction() {
    let (_database, mut conn) = database();
    rolled_back(&mut conn, |conn| {
        assert_eq!(count!(videos, views.eq(views + 1), conn), 3);
        assert_eq!(totals(conn), [101, 201, 301]);
        Counter::named("undone").increment(conn).unwrap();
    });
    assert_eq!(totals(&mut conn), [100, 200, 300]);
    assert_eq!(Counter::named("undone").get(&mut conn), Ok(0));
}

#[test]
fn retries_a_whole_transaction() {
    let (_database, mut conn) = database();
    let count = |conn: &mut Conn| {
        let count = update(videos.find(1)).set(views.eq(views + 1));
        count.execute(conn)
    };
    let mut attempts = 0;
    let counted: QueryResult<usize> = retry::transaction(&mut conn, RetryPolicy::new(), |conn| {
        attempts += 1;
        let counted = count(conn)?;
        match attempts {
            1 => Err(conflict()),
            _ => Ok(counted),
        }
    });
    assert_eq!((counted, attempts, totals(&mut conn)[0]), (Ok(1), 2, 101));
    let isolated = Transaction::new().isolation(Isolation::Serializable);
    assert_eq!(isolated.run(&mut conn, count), Ok(1));
    assert_eq!(totals(&mut conn)[0], 102);
}

#[test]
fn an_overflow_is_an_error() {
    let (_database, mut conn) = database();
    let add = |n: i16| update(measures::table.find(1)).set(measures::small.eq(measures::small + n));
    assert_eq!(add(i16::MAX).execute(&mut conn), Ok(1));
    let beyond = count_many(measures::small, [(1, i64::from(i16::MAX) + 1)]).run(&mut conn);
    let beyond = Error::from(beyond.unwrap_err());
    assert_matches!(beyond, Error::Overflow { .. });
    let total = measures::table.select(measures::small.total());
    assert_eq!(total.first(&mut conn), Ok(i16::MAX));
}

#[test]
fn a_missing_table_is_named() {
    let (_database, mut conn) = database();
    ShardsTable::of(videos).drop(&mut conn).unwrap();
    let count = update(videos.find(1)).set(views.eq(views + 1));
    let error = Error::from(count.execute(&mut conn).unwrap_err());
    assert_matches!(&error, Error::MissingShardsTable { table, .. } if table == "videos_shards");
}

#[test]
fn leaving_loses_nothing() {
    let (_database, conn) = &mut counted();
    let shards = ShardsTable::of(videos);
    shards.drop(conn).unwrap();
    let base = videos.find(1).select(views);
    assert_eq!(base.first(conn), Ok(105_i64));
    conn.run_pending_migrations(shards.migration("1")).unwrap();
    assert_eq!(count!(videos.find(1), views.eq(views + 1), conn), 1);
    conn.revert_migration(&shards.migration("1")).unwrap();
    assert_eq!(base.first(conn), Ok(106_i64));
}

#[test]
fn a_view_shows_totals() {
    let (_database, mut conn) = counted();
    let view = ShardsTable::of(videos).view("videos_totals");
    view.create(&mut conn).unwrap();
    let total = diesel::dsl::sql::<diesel::sql_types::BigInt>(
        "(SELECT views FROM videos_totals WHERE id = 1)",
    );
    assert_eq!(diesel::select(total).get_result(&mut conn), Ok(105_i64));
    view.drop(&mut conn).unwrap();
}

#[test]
fn shards_go_with_their_row() {
    let (_database, mut conn) = counted();
    let deleted = diesel::delete(videos.find(1)).execute(&mut conn);
    let left = videos_shards::table.count().get_result(&mut conn);
    assert_eq!((deleted, left), (Ok(1), Ok(0_i64)));
}

#[test]
fn eight_writers_beside_folds_lose_nothing() {
    let (database, mut conn) = database();
    thread::scope(|scope| {
        for writer in 0..8 {
            let database = &database;
            scope.spawn(move || {
                let conn = &mut Conn::connect(database);
                for _ in 0..20 {
                    let count = update(videos.find(1)).set(views.eq(views + 1));
                    assert_eq!(count.retry(patient()).execute(conn), Ok(1));
                    if writer == 0 {
                        let _ = fold(videos).retry(patient()).run(conn).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(totals(&mut conn)[0], 260);
}
