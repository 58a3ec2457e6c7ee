//! What every connection has to do: each operation once. The cases in `cases/` say what each does beside others, and when it fails.

use std::thread;
use std::time::Duration;

use diesel::dsl::count_star;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_migrations::MigrationHarness;
use diesel_sharded::prelude::*;
use diesel_sharded_tests::fixture::Fixture;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{self, Video, comments, measures, videos_shards};
use diesel_sharded_tests::{assert_matches, conflict, count, patient, players, rolled_back};

use super::Conn;
use super::api::retry::{self, Isolation, RetryPolicy, Transaction};
use super::api::shard_counts::{self, ShardCount};
use super::api::{
    Counter, CounterCache, Error, RowCounter, ShardsTable, count_many, fold, idempotency, reset,
    set_total, top, update, verify,
};

/// Three videos with 100, 200 and 300 views and with 1, 2 and 3 likes, the last of them with two comments; 5 more views of the first one
/// are on a shard.
fn counted<const N: usize>() -> Fixture<Conn, N> {
    let (database, mut conn) = schema::database_with_counters::<Conn>();
    assert_eq!(count(5, &mut conn), Ok(1));
    Fixture::to(database)
}

fn totals(conn: &mut Conn) -> Vec<i64> {
    videos.order(id).select(views.total()).load(conn).unwrap()
}

/// Adds to the views of video 1.
fn count(n: i64, conn: &mut Conn) -> QueryResult<usize> {
    let count = update(videos.find(1)).set(views.eq(views + n));
    count.execute(conn)
}

fn base_of_video_1(conn: &mut Conn) -> QueryResult<i64> {
    videos.find(1).select(views).first(conn)
}

#[test]
fn counts_by_key_and_by_filters() {
    let [conn] = &mut *counted();
    assert_eq!(base_of_video_1(conn), Ok(100));
    assert_eq!(totals(conn), [105, 200, 300]);
    assert_eq!(count!(videos.find(9), views.eq(views + 1), conn), 0);
    let news = videos.filter(channel.eq("news").and(views.total().ge(200)));
    assert_eq!(count!(news, views.eq(views - 1), conn), 2);
    let no_likes = (false).then(|| likes.eq(likes + 1));
    assert_eq!(count!(videos, (views.eq(views + 1), no_likes), conn), 3);
    let changes = (views.eq(views + 1), likes.eq(likes - 2));
    assert_eq!(count!(videos, changes, conn), 3);
    let sums = videos.order(id).select((views.total(), likes.total()));
    let sums = sums.load::<(i64, i32)>(conn);
    assert_eq!(sums, Ok(vec![(107, -1), (201, 0), (301, 1)]));
}

#[test]
fn counts_keys_that_may_be_missing_or_known() {
    let [conn] = &mut *counted();
    let many = count_many(views, [(1, 1), (3, 2), (1, 3), (9, 1)]).run(conn);
    let many = many.unwrap();
    assert_eq!((many.rows, many.missing), (2, vec![9]));
    for total in [1, 2] {
        let inserts = update(videos.find(4)).set(views.eq(views + 1));
        let inserts = inserts.or_insert((id.eq(4), slug.eq("d"), title.eq("D")));
        assert_eq!(inserts.execute(conn), Ok(1));
        assert_eq!(totals(conn), [109, 200, 302, total]);
        let once = update(videos.find(1)).set(likes.eq(likes + 1));
        assert_eq!(once.idempotency_key("a").execute(conn), Ok(1));
        let once = RowCounter::of(likes, 2).idempotency_key("b");
        assert_eq!(once.add(1, conn), Ok(1));
    }
    let counted_once = videos.order(id).select(likes.total()).load(conn);
    assert_eq!(counted_once, Ok(vec![2, 3, 3, 0]));
    let all = idempotency::remove_older_than(Duration::from_secs(3600), conn);
    assert_eq!(all, Ok(0));
}

#[test]
fn gives_rows_back() {
    let [conn] = &mut *counted();
    let by_key = |key| update(videos.find(key)).set(views.eq(views + 1));
    let row = by_key(1).returning((slug, views)).get_result(conn);
    assert_eq!(row, Ok(("a".to_owned(), 106_i64)));
    let video = by_key(2).returning(Video::as_select()).get_result(conn);
    assert_eq!(video.unwrap().views, 201);
    let missing = by_key(9).returning(views).get_result::<i64>(conn);
    assert_eq!(missing, Err(DieselError::NotFound));
    let by_filter = update(videos.filter(id.le(2))).set(views.eq(views + 1));
    let rows = by_filter.returning((id, views)).get_results(conn);
    let mut rows: Vec<(i64, i64)> = rows.unwrap();
    rows.sort_unstable();
    assert_eq!(rows, [(1, 107), (2, 202)]);
}

#[test]
fn keeps_greatest_and_least_values() {
    use players::players::dsl::{best_score, fastest, games, players as table};
    let [conn] = &mut *Fixture::<Conn, _>::empty();
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
fn a_row_or_a_name_is_a_counter() {
    let [conn] = &mut *counted();
    let row = RowCounter::of(views, 1);
    assert_eq!(row.add(3, conn), Ok(1));
    assert_eq!(row.add_and_get(-1, conn), Ok(Some(107)));
    assert_eq!(row.get(conn), Ok(Some(107)));
    assert_eq!(RowCounter::of(views, 9).get(conn), Ok(None));
    let named = Counter::named("signups");
    named.increment(conn).unwrap();
    named.add(41, conn).unwrap();
    assert_eq!((named.get(conn), named.estimate(conn)), (Ok(42), Ok(0)));
    assert_eq!(named.fold(conn).unwrap().parents, 1);
    assert_eq!(named.estimate(conn), Ok(42));
    assert_eq!(named.add_and_get(-2, conn), Ok(40));
    named.set(7, conn).unwrap();
    named.decrement(conn).unwrap();
    assert_eq!(named.get(conn), Ok(6));
    named.reset(conn).unwrap();
    assert_eq!((named.get(conn), named.delete(conn)), (Ok(0), Ok(true)));
}

#[test]
fn a_counter_keeps_its_bounds() {
    let [conn] = &mut *counted();
    let row = RowCounter::of(likes, 3).never_below(0).never_above(5);
    let named = Counter::named("seats").never_below(0).never_above(2);
    let row = [3, -3, -1].map(|n| row.add(n, conn));
    assert_eq!(row, [Ok(false), Ok(true), Ok(false)]);
    let named = [1, 2, 1, -3].map(|n| named.add(n, conn));
    assert_eq!(named, [Ok(true), Ok(false), Ok(true), Ok(false)]);
}

#[test]
fn counters_are_listed() {
    let [conn] = &mut *counted();
    for name in ["page:a", "page:b", "other"] {
        Counter::named(name).increment(conn).unwrap();
    }
    let listed = Counter::list("page:").after("page:a").load(conn);
    assert_eq!(listed, Ok(vec![("page:b".to_owned(), 1)]));
    let many = Counter::get_many(&["other", "none"], conn);
    assert_eq!(many, Ok(vec![1, 0]));
}

#[test]
fn numbers_of_shards_change() {
    let [conn] = &mut *counted();
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
fn folds_sets_and_resets() {
    let [conn] = &mut *counted();
    assert_eq!(fold(videos.find(2)).run(conn).unwrap().parents, 0);
    assert_eq!(fold(videos).run(conn).unwrap().parents, 1);
    assert_eq!(base_of_video_1(conn), Ok(105));
    assert_eq!(totals(conn), [105, 200, 300]);
    assert_eq!(set_total(videos.find(1), views, 7).execute(conn), Ok(1));
    assert_eq!(totals(conn), [7, 200, 300]);
    for _ in 0..2 {
        let once = reset(videos.filter(id.ge(2))).idempotency_key("a");
        assert_eq!(once.execute(conn), Ok(2));
    }
    assert_eq!(totals(conn), [7, 0, 0]);
}

#[test]
fn verifies_and_repairs_rows_that_triggers_count() {
    let [conn] = &mut *counted();
    let recount = comments::table
        .group_by(comments::video_id)
        .select((comments::video_id, count_star()));
    let drifts = verify(videos, likes, recount).drifts(conn).unwrap();
    assert_eq!(drifts.len(), 3);
    let cache = CounterCache::of(likes).counts(comments::video_id);
    cache.create(conn).unwrap();
    let repaired = verify(videos.find(1), likes, recount).repair(conn).unwrap();
    let repaired_by_cache = cache.verify().repair(conn).unwrap();
    assert_eq!((repaired.len(), repaired_by_cache.len()), (1, 2));
    let new = (comments::id.eq(3), comments::video_id.eq(1));
    let inserted = diesel::insert_into(comments::table).values(new);
    assert_eq!(inserted.execute(conn), Ok(1));
    let counts = videos.order(id).select(likes.total());
    assert_eq!(counts.load(conn), Ok(vec![1, 0, 2]));
    cache.drop(conn).unwrap();
}

#[test]
fn queries_read_totals() {
    let [conn] = &mut *counted();
    let first = top(videos, views, 2).select((id, views)).load(conn);
    assert_eq!(first, Ok(vec![(3_i64, 300_i64), (2, 200)]));
    let filtered = videos.filter(views.total().gt(104)).select(id);
    let filtered = filtered.order(views.total().desc()).load(conn);
    assert_eq!(filtered, Ok(vec![3_i64, 2, 1]));
    let boxed = videos.select(views.total()).into_boxed().filter(id.eq(1));
    assert_eq!(boxed.first(conn), Ok(105_i64));
    let joined = videos.inner_join(comments::table).select(views.total());
    assert_eq!(joined.load(conn), Ok(vec![300_i64; 2]));
    let models = videos.select(Video::as_select()).order(id).load(conn);
    assert_eq!(models.unwrap()[0].views, 105);
    let view = ShardsTable::of(videos).view("videos_totals");
    view.create(conn).unwrap();
    let total = "(SELECT views FROM videos_totals WHERE id = 1)";
    let total = diesel::dsl::sql::<diesel::sql_types::BigInt>(total);
    assert_eq!(diesel::select(total).get_result(conn), Ok(105_i64));
    view.drop(conn).unwrap();
}

#[test]
fn belongs_to_the_callers_transaction() {
    let [conn] = &mut *counted();
    rolled_back(conn, |conn| {
        assert_eq!(count!(videos, views.eq(views + 1), conn), 3);
        assert_eq!(totals(conn), [106, 201, 301]);
        Counter::named("undone").increment(conn).unwrap();
    });
    assert_eq!(totals(conn), [105, 200, 300]);
    assert_eq!(Counter::named("undone").get(conn), Ok(0));
}

#[test]
fn retries_a_whole_transaction() {
    let [conn] = &mut *counted();
    let mut attempts = 0;
    let counted: QueryResult<usize> = retry::transaction(conn, RetryPolicy::new(), |conn| {
        attempts += 1;
        let counted = count(1, conn)?;
        match attempts {
            1 => Err(conflict()),
            _ => Ok(counted),
        }
    });
    assert_eq!((counted, attempts, totals(conn)[0]), (Ok(1), 2, 106));
    let isolated = Transaction::new().isolation(Isolation::Serializable);
    assert_eq!(isolated.run(conn, |conn| count(1, conn)), Ok(1));
    assert_eq!(totals(conn)[0], 107);
}

#[test]
fn an_overflow_is_an_error() {
    let [conn] = &mut *counted();
    let add = |n: i16| update(measures::table.find(1)).set(measures::small.eq(measures::small + n));
    assert_eq!(add(i16::MAX).execute(conn), Ok(1));
    let beyond = count_many(measures::small, [(1, i64::from(i16::MAX) + 1)]).run(conn);
    let beyond = Error::from(beyond.unwrap_err());
    assert_matches!(beyond, Error::Overflow { .. });
    let total = measures::table.select(measures::small.total());
    assert_eq!(total.first(conn), Ok(i16::MAX));
}

#[test]
fn a_shards_table_comes_and_goes() {
    let [conn] = &mut *counted();
    let shards = ShardsTable::of(videos);
    shards.drop(conn).unwrap();
    assert_eq!(base_of_video_1(conn), Ok(105));
    let error = Error::from(count(1, conn).unwrap_err());
    assert_matches!(&error, Error::MissingShardsTable { table, .. } if table == "videos_shards");
    conn.run_pending_migrations(shards.migration("1")).unwrap();
    assert_eq!(count(1, conn), Ok(1));
    conn.revert_migration(&shards.migration("1")).unwrap();
    assert_eq!(base_of_video_1(conn), Ok(106));
}

#[test]
fn shards_go_with_their_row() {
    let [conn] = &mut *counted();
    let deleted = diesel::delete(videos.find(1)).execute(conn);
    let left = videos_shards::table.count().get_result(conn);
    assert_eq!((deleted, left), (Ok(1), Ok(0_i64)));
}

#[test]
fn eight_writers_beside_folds_lose_nothing() {
    let conns = &mut *counted::<8>();
    thread::scope(|scope| {
        for (writer, conn) in conns.iter_mut().enumerate() {
            scope.spawn(move || {
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
    assert_eq!(totals(&mut conns[0])[0], 265);
}
