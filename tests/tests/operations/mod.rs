//! Every operation of the library, on one video and one named counter, with what it adds to their totals.

use std::any::TypeId;
use std::time::Duration;

use diesel::connection::{SimpleConnection, TransactionManager};
use diesel::dsl::{count_star, sql};
use diesel::prelude::*;
use diesel::result::Error;
use diesel::sql_types::{BigInt, Bool};
use diesel_sharded::prelude::*;
use diesel_sharded_tests::HUNDRED_YEARS as EVER;
use diesel_sharded_tests::awaited::Done;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{comments, measures};

use super::Conn;
use super::api::retry::{self, RetryPolicy};
use super::api::shard_counts::{self, ShardCount};
use super::api::{
    Counter, CounterCache, RowCounter, ShardsTable, count_many, fold, idempotency, reset,
    set_total, top, unique::Unique, unique::remove_expired, update, verify,
};

/// What there is of the video before the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// No video.
    Nothing,
    /// No shard.
    Parent,
    /// Four shards, each with one view.
    Shards,
}

use Before::{Nothing, Parent, Shards};

/// Its name, what is there before, and its work on a video: the change of all totals that it acknowledges.
pub type Operation = (&'static str, Before, fn(&mut Conn, i64) -> QueryResult<i64>);

/// What an operation may have added where it failed, beside nothing and what it acknowledges.
pub const CALLERS: i64 = 1000;

/// Views and likes of a video with shards.
pub const VIEWS: i64 = 14;
pub const LIKES: i64 = 1;

type Manager = <Conn as Connection>::TransactionManager;

/// Whether the connections are to this kind of database.
pub fn is<Backend: 'static>() -> bool {
    TypeId::of::<<Conn as Connection>::Backend>() == TypeId::of::<Backend>()
}

/// A number that the database computes.
pub fn ask(expression: &str, conn: &mut Conn) -> QueryResult<i64> {
    let integer = match is::<diesel::mysql::Mysql>() {
        true => "SIGNED",
        false => "BIGINT",
    };
    let number = sql::<BigInt>(&format!("CAST(({expression}) AS {integer})"));
    diesel::RunQueryDsl::get_result(diesel::select(number), conn)
}

fn slug_of(video: i64) -> String {
    format!("slug {video}")
}

pub fn counter(video: i64) -> Counter {
    Counter::named(format!("counter {video}"))
}

fn key(video: i64) -> String {
    format!("key {video}")
}

/// What an operation of this name finds.
pub fn arrange(name: &str, before: Before, video: i64, conn: &mut Conn) {
    let mut run = |text: &str| {
        let done = conn.batch_execute(text);
        done.unwrap_or_else(|error| panic!("{text}: {error}"));
    };
    if before != Nothing {
        run(&format!(
            "INSERT INTO videos (id, slug, title, views, likes) VALUES ({video}, '{}', 'new', 10, {LIKES})",
            slug_of(video)
        ));
    }
    if before == Shards {
        let shards = [0, 1, 2, 3].map(|shard| format!("({video}, {shard}, 1)"));
        let shards = shards.join(", ");
        run(&format!(
            "INSERT INTO videos_shards (id, shard, views) VALUES {shards}"
        ));
    }
    if name == "resize" {
        run("DELETE FROM diesel_sharded_shard_numbers");
    }
    if name.contains("shards table") {
        // They may not be there. On SQLite the triggers stay with the parent.
        let _ = conn.batch_execute("DROP TABLE measures_shards");
        for action in ["delete", "update", "insert"] {
            let _ = conn.batch_execute(&format!("DROP TRIGGER measures_shards_{action}"));
        }
        if before != Nothing {
            ShardsTable::of(measures::table).create(conn).unwrap();
            let shard = "INSERT INTO measures_shards (id, shard, f) VALUES (1, 0, 5)";
            conn.batch_execute(shard).unwrap();
        }
    }
    if name.contains("counter cache") {
        let cache = CounterCache::of(likes).counts(comments::video_id);
        cache.drop(conn).unwrap();
        if before == Shards {
            cache.create(conn).unwrap();
        }
    }
}

/// All totals that operations on a video change.
pub fn totals(video: i64, conn: &mut Conn) -> i64 {
    let of_video = videos.find(video).select((views.total(), likes.total()));
    let of_video = diesel::RunQueryDsl::first::<(i64, i32)>(of_video, conn);
    let (all_views, all_likes) = of_video.optional().unwrap().unwrap_or_default();
    let named = counter(video).get(conn).unwrap();
    let base = ask("SELECT f FROM measures WHERE id = 1", conn).unwrap();
    let shards = ask("SELECT COALESCE(SUM(f), 0) FROM measures_shards", conn);
    all_views + i64::from(all_likes) + named + base + shards.unwrap_or(0)
}

/// Whether the operation is in a transaction of its caller's.
pub fn is_callers(name: &str) -> bool {
    name.contains("in one") || name.contains("in a transaction")
}

/// Whether the operation creates or drops tables or triggers.
pub fn is_of_schema(name: &str) -> bool {
    name.contains("shards table") || name.contains("counter cache")
}

/// Those that many may do at once on one video. What all of them add is the sum of what they acknowledge, or what one of them does.
pub fn together() -> impl Iterator<Item = Operation> {
    let others = [
        "repair",
        "total",
        "top",
        "refresh",
        "remove keys",
        "remove visitors",
    ];
    let is_other = move |name: &str| is_of_schema(name) || others.contains(&name);
    let may_be = move |name: &str| !is_callers(name) && !is_other(name);
    ALL.iter().copied().filter(move |(name, ..)| may_be(name))
}

/// Whether it adds once, however often it is done: it has a key, or sets a total.
pub fn is_once(name: &str) -> bool {
    name.starts_with("keyed") || name.contains("set")
}

macro_rules! count {
    ($video:expr) => {
        update(videos.find($video)).set(views.eq(views + 1))
    };
    (by filter $video:expr) => {
        update(videos.filter(slug.eq(slug_of($video)))).set(views.eq(views + 1))
    };
}

/// The row of a video that is not there.
macro_rules! new {
    ($video:expr) => {
        (id.eq($video), slug.eq(slug_of($video)), title.eq("new"))
    };
}

fn rows(counted: impl Done<usize, Error>) -> QueryResult<i64> {
    counted.done().map(|rows| rows as i64)
}

/// A visit that is counted, now or before, as one row.
fn visit(answer: impl Done<Unique, Error>) -> QueryResult<i64> {
    let counted = |answer| i64::from(answer != Unique::NoSuchRow);
    answer.done().map(counted)
}

fn rows_back(counted: impl Done<Vec<i64>, Error>) -> QueryResult<i64> {
    counted.done().map(|rows| rows.len() as i64)
}

/// An operation that adds this much, if it is done.
fn adds<T>(n: i64, operation: impl Done<T, Error>) -> QueryResult<i64> {
    operation.done().map(|_| n)
}

fn callers(conn: &mut Conn, video: i64) -> QueryResult<i64> {
    let update = diesel::update(videos.find(video)).set(views.eq(views + CALLERS));
    diesel::RunQueryDsl::execute(update, conn).map(|rows| rows as i64 * CALLERS)
}

/// Work in a transaction begun by SQL text.
fn by_text(conn: &mut Conn, work: impl FnOnce(&mut Conn) -> QueryResult<i64>) -> QueryResult<i64> {
    conn.batch_execute("BEGIN")?;
    let done = work(conn).and_then(|done| conn.batch_execute("COMMIT").map(|()| done));
    if done.is_err() && (0..3).all(|_| conn.batch_execute("ROLLBACK").is_err()) {
        // What an application has to do then.
        Manager::transaction_manager_status_mut(conn).set_in_error();
    }
    done
}

/// Counts after the caller's own update, and goes on where the increment fails.
fn goes_on(
    conn: &mut Conn,
    video: i64,
    count: impl FnOnce(&mut Conn) -> QueryResult<i64>,
) -> QueryResult<i64> {
    let own = callers(conn, video)?;
    let counted = count(conn);
    Ok(own + callers(conn, video)? + counted.unwrap_or(0))
}

macro_rules! slowly {
    ($video:ident) => {
        videos.filter(id.eq($video).and(sql::<Bool>("SLEEP(0.03) = 0")))
    };
}

/// Filters that take their time, for MySQL and MariaDB.
pub const SLOW: &[Operation] = &[
    ("by slow filter", Shards, |conn, video| {
        let count = update(slowly!(video)).set(views.eq(views + 1));
        rows(count.execute(conn))
    }),
    ("by slow filter, no shards", Parent, |conn, video| {
        let count = update(slowly!(video)).set(views.eq(views + 1));
        rows(count.execute(conn))
    }),
    ("by slow filter in a transaction", Parent, |conn, video| {
        conn.transaction(|conn| {
            let count = update(slowly!(video)).set(views.eq(views + 1));
            let counted = rows(count.execute(conn))?;
            Ok(callers(conn, video)? + counted)
        })
    }),
    ("by slow filter, rows back", Parent, |conn, video| {
        let count = update(slowly!(video)).set(views.eq(views + 1));
        rows_back(count.returning(views).get_results(conn))
    }),
    ("fold by slow filter", Shards, |conn, video| {
        let folded = fold(slowly!(video)).run(conn).done()?;
        assert!(folded.unfit.is_empty(), "{folded:?}");
        Ok(0)
    }),
];

pub const ALL: &[Operation] = &[
    ("by key", Shards, |conn, video| {
        rows(count!(video).execute(conn))
    }),
    ("by key, no shards", Parent, |conn, video| {
        rows(count!(video).execute(conn))
    }),
    ("by filter", Shards, |conn, video| {
        rows(count!(by filter video).execute(conn))
    }),
    ("by filter, no shards", Parent, |conn, video| {
        rows(count!(by filter video).execute(conn))
    }),
    ("by key, rows back", Shards, |conn, video| {
        adds(1, count!(video).returning(views).get_result::<i64>(conn))
    }),
    ("by filter, rows back", Parent, |conn, video| {
        rows_back(count!(by filter video).returning(views).get_results(conn))
    }),
    ("or_insert", Nothing, |conn, video| {
        rows(count!(video).or_insert(new!(video)).execute(conn))
    }),
    ("or_insert by filter, rows back", Nothing, |conn, video| {
        let count = count!(by filter video).or_insert(new!(video));
        rows_back(count.returning(views).get_results(conn))
    }),
    ("in a transaction", Shards, |conn, video| {
        conn.transaction(|conn| Ok(callers(conn, video)? + rows(count!(video).execute(conn))?))
    }),
    ("in a transaction, no shards", Parent, |conn, video| {
        conn.transaction(|conn| Ok(rows(count!(video).execute(conn))? + callers(conn, video)?))
    }),
    ("in a transaction, rows back", Parent, |conn, video| {
        conn.transaction(|conn| {
            let counted = adds(1, count!(video).returning(views).get_result::<i64>(conn))?;
            Ok(callers(conn, video)? + counted)
        })
    }),
    ("in one that goes on", Shards, |conn, video| {
        let count = |conn: &mut Conn| rows(count!(video).execute(conn));
        conn.transaction(|conn| goes_on(conn, video, count))
    }),
    ("rows back in one that goes on", Parent, |conn, video| {
        let back = count!(video).returning(views);
        let count = |conn: &mut Conn| adds(1, back.get_result::<i64>(conn));
        conn.transaction(|conn| goes_on(conn, video, count))
    }),
    ("named in one that goes on", Parent, |conn, video| {
        let count = |conn: &mut Conn| adds(1, counter(video).add_and_get(1, conn));
        conn.transaction(|conn| goes_on(conn, video, count))
    }),
    ("in one by text", Parent, |conn, video| {
        by_text(conn, |conn| {
            Ok(callers(conn, video)? + rows(count!(video).execute(conn))?)
        })
    }),
    (
        "rows back in one by text that goes on",
        Parent,
        |conn, video| {
            let back = count!(by filter video).returning(views);
            let count = |conn: &mut Conn| rows_back(back.get_results(conn));
            by_text(conn, |conn| goes_on(conn, video, count))
        },
    ),
    ("retry::transaction", Shards, |conn, video| {
        retry::transaction(conn, RetryPolicy::global(), |conn| {
            QueryResult::Ok(callers(conn, video)? + rows(count!(video).execute(conn))?)
        })
    }),
    ("keyed", Shards, |conn, video| {
        rows(count!(video).idempotency_key(key(video)).execute(conn))
    }),
    ("keyed, no shards", Parent, |conn, video| {
        rows(count!(video).idempotency_key(key(video)).execute(conn))
    }),
    ("keyed, by filter", Parent, |conn, video| {
        rows(
            count!(by filter video)
                .idempotency_key(key(video))
                .execute(conn),
        )
    }),
    ("keyed or_insert", Nothing, |conn, video| {
        let count = count!(video).or_insert(new!(video));
        rows(count.idempotency_key(key(video)).execute(conn))
    }),
    ("keyed named set", Parent, |conn, video| {
        adds(7, counter(video).idempotency_key(key(video)).set(7, conn))
    }),
    ("keyed row counter", Shards, |conn, video| {
        let counter = RowCounter::of(views, video);
        rows(counter.idempotency_key(key(video)).add(1, conn))
    }),
    ("keyed named counter", Parent, |conn, video| {
        adds(1, counter(video).idempotency_key(key(video)).add(1, conn))
    }),
    ("keyed set", Shards, |conn, video| {
        let set = set_total(videos.find(video), views, 50).idempotency_key(key(video));
        adds(50 - VIEWS, set.execute(conn))
    }),
    ("keyed visitor", Shards, |conn, video| {
        visit(count!(video).once_per("ann", EVER).count(conn))
    }),
    (
        "keyed visitor, by filter, no shards",
        Parent,
        |conn, video| {
            let count = count!(by filter video).once_per("ann", EVER);
            visit(count.count(conn))
        },
    ),
    ("keyed visitor, or_insert", Nothing, |conn, video| {
        let count = count!(video).or_insert(new!(video)).once_per("ann", EVER);
        visit(count.count(conn))
    }),
    ("keyed visitor, named", Parent, |conn, video| {
        visit(counter(video).once_per("ann", EVER).add(1, conn))
    }),
    ("row counter", Shards, |conn, video| {
        rows(RowCounter::of(views, video).add(1, conn))
    }),
    ("row counter, add and get", Parent, |conn, video| {
        let total = RowCounter::of(views, video).add_and_get(1, conn).done()?;
        Ok(i64::from(total.is_some()))
    }),
    ("named", Parent, |conn, video| {
        adds(1, counter(video).add(1, conn))
    }),
    ("named, add and get", Parent, |conn, video| {
        adds(1, counter(video).add_and_get(1, conn))
    }),
    ("named, set", Parent, |conn, video| {
        adds(7, counter(video).set(7, conn))
    }),
    ("named, reset", Parent, |conn, video| {
        adds(0, counter(video).reset(conn))
    }),
    ("named, fold", Parent, |conn, video| {
        adds(0, counter(video).fold(conn))
    }),
    ("named, delete", Parent, |conn, video| {
        adds(0, counter(video).delete(conn))
    }),
    ("bounded", Parent, |conn, video| {
        let bounded = RowCounter::of(likes, video).never_above(1_000_000);
        bounded.add(1, conn).done().map(i64::from)
    }),
    ("bounded, named", Parent, |conn, video| {
        let bounded = counter(video).never_above(1_000_000);
        bounded.add(1, conn).done().map(i64::from)
    }),
    ("count_many", Parent, |conn, video| {
        let counted = count_many(views, [(video, 1), (-1, 1)]).run(conn).done()?;
        Ok(counted.rows as i64)
    }),
    ("set_total", Shards, |conn, video| {
        let set = rows(set_total(videos.find(video), views, 50).execute(conn));
        set.map(|rows| rows * (50 - VIEWS))
    }),
    ("reset", Shards, |conn, video| {
        let set = rows(reset(videos.find(video)).execute(conn));
        set.map(|rows| rows * -(VIEWS + LIKES))
    }),
    ("fold", Shards, |conn, video| {
        adds(0, fold(videos.find(video)).keep_shards(1).run(conn))
    }),
    ("repair", Shards, |conn, video| {
        let recount = comments::table
            .group_by(comments::video_id)
            .select((comments::video_id, count_star()));
        let drifts = verify(videos.find(video), likes, recount)
            .repair(conn)
            .done()?;
        Ok(-(drifts.len() as i64))
    }),
    ("resize", Parent, |conn, _| {
        adds(0, ShardCount::of(views).resize(4, conn))
    }),
    ("refresh", Parent, |conn, _| {
        adds(0, shard_counts::refresh(conn))
    }),
    ("remove keys", Parent, |conn, _| {
        let hour = Duration::from_secs(3600);
        adds(0, idempotency::remove_older_than(hour, conn))
    }),
    ("remove visitors", Parent, |conn, _| {
        adds(0, remove_expired(conn))
    }),
    ("top", Parent, |conn, _| {
        let top = top(videos, views, 2).select(id);
        adds(0, diesel::RunQueryDsl::load::<i64>(top, conn))
    }),
    ("total", Shards, |conn, video| {
        let total = videos.find(video).select(views.total());
        let total = diesel::RunQueryDsl::first::<i64>(total, conn)?;
        assert_eq!(total, VIEWS);
        Ok(0)
    }),
    ("drop the shards table", Parent, |conn, _| {
        adds(0, ShardsTable::of(measures::table).drop(conn))
    }),
    ("create a shards table", Nothing, |conn, _| {
        adds(0, ShardsTable::of(measures::table).create(conn))
    }),
    ("create a counter cache", Parent, |conn, _| {
        let cache = CounterCache::of(likes).counts(comments::video_id);
        adds(0, cache.create(conn))
    }),
    ("drop a counter cache", Shards, |conn, _| {
        let cache = CounterCache::of(likes).counts(comments::video_id);
        adds(0, cache.drop(conn))
    }),
];
