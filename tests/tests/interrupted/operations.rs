//! Every operation, and its effect on one video and on a named counter.

use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::dsl::count_star;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Bool};
use diesel_sharded::prelude::*;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{comments, measures};

use super::Conn;
use super::api::retry::{self, RetryPolicy};
use super::api::shard_counts::{self, ShardCount};
use super::api::{
    Counter, CounterCache, RowCounter, ShardsTable, count_many, fold, idempotency, reset, set_total,
    top, update, verify,
};

/// The shards of the video before the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Before {
    /// There is no video.
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

fn slug_of(video: i64) -> String {
    format!("slug {video}")
}

pub fn counter(video: i64) -> Counter {
    Counter::named(format!("counter {video}"))
}

fn key(video: i64) -> String {
    format!("key {video}")
}

macro_rules! count {
    ($video:expr) => {
        update(videos.find($video)).set(views.eq(views + 1))
    };
    (by filter $video:expr) => {
        update(videos.filter(slug.eq(slug_of($video)))).set(views.eq(views + 1))
    };
}

fn callers(conn: &mut Conn, video: i64) -> QueryResult<i64> {
    let update = diesel::update(videos.find(video)).set(views.eq(views + CALLERS));
    diesel::RunQueryDsl::execute(update, conn).map(|rows| rows as i64 * CALLERS)
}

/// Work in a transaction begun by SQL text.
fn by_text(
    conn: &mut Conn,
    work: impl FnOnce(&mut Conn) -> QueryResult<i64>,
) -> QueryResult<i64> {
    conn.batch_execute("BEGIN")?;
    let done = work(conn).and_then(|done| conn.batch_execute("COMMIT").map(|()| done));
    if done.is_err() && (0..3).all(|_| conn.batch_execute("ROLLBACK").is_err()) {
        // What an application has to do then.
        type Manager = <Conn as Connection>::TransactionManager;
        use diesel::connection::{TransactionManager, TransactionManagerStatus};
        let status: &mut TransactionManagerStatus =
            Manager::transaction_manager_status_mut(conn);
        status.set_in_error();
    }
    done
}

/// Counts after the caller's own update, and goes on where the count fails.
macro_rules! goes_on {
    ($conn:ident, $video:ident, $count:expr) => {{
        let own = callers($conn, $video)?;
        let counted: QueryResult<i64> = $count;
        Ok(own + callers($conn, $video)? + counted.unwrap_or(0))
    }};
}

macro_rules! slowly {
    ($video:ident) => {
        videos.filter(
            id.eq($video)
                .and(diesel::dsl::sql::<Bool>("SLEEP(0.03) = 0")),
        )
    };
}

/// Filters that take their time, for MySQL and MariaDB.
pub const SLOW: &[Operation] = &[
    ("by slow filter", Shards, |conn, video| {
        update(slowly!(video)).set(views.eq(views + 1)).execute(conn).map(|n| n as i64)
    }),
    ("by slow filter, no shards", Parent, |conn, video| {
        update(slowly!(video)).set(views.eq(views + 1)).execute(conn).map(|n| n as i64)
    }),
    ("by slow filter in a transaction", Parent, |conn, video| {
        conn.transaction(|conn| {
            let counted = update(slowly!(video)).set(views.eq(views + 1)).execute(conn)? as i64;
            Ok(callers(conn, video)? + counted)
        })
    }),
    ("by slow filter, rows back", Parent, |conn, video| {
        let count = update(slowly!(video)).set(views.eq(views + 1)).returning(views);
        count.get_results::<i64>(conn).map(|rows| rows.len() as i64)
    }),
    ("fold by slow filter", Shards, |conn, video| {
        let folded = fold(slowly!(video)).run(conn)?;
        assert!(folded.unfit.is_empty(), "{folded:?}");
        Ok(0)
    }),
];

pub const ALL: &[Operation] = &[
    ("by key", Shards, |conn, video| count!(video).execute(conn).map(|n| n as i64)),
    ("by key, no shards", Parent, |conn, video| count!(video).execute(conn).map(|n| n as i64)),
    ("by filter", Shards, |conn, video| count!(by filter video).execute(conn).map(|n| n as i64)),
    ("by filter, no shards", Parent, |conn, video| {
        count!(by filter video).execute(conn).map(|n| n as i64)
    }),
    ("by key, rows back", Shards, |conn, video| {
        count!(video).returning(views).get_result::<i64>(conn).map(|_| 1)
    }),
    ("by filter, rows back", Parent, |conn, video| {
        let rows = count!(by filter video).returning(views).get_results::<i64>(conn);
        rows.map(|rows| rows.len() as i64)
    }),
    ("or_insert", Nothing, |conn, video| {
        let row = (id.eq(video), slug.eq(slug_of(video)), title.eq("new"));
        count!(video).or_insert(row).execute(conn).map(|n| n as i64)
    }),
    ("or_insert by filter, rows back", Nothing, |conn, video| {
        let row = (id.eq(video), slug.eq(slug_of(video)), title.eq("new"));
        let rows = count!(by filter video).or_insert(row).returning(views).get_results::<i64>(conn);
        rows.map(|rows| rows.len() as i64)
    }),
    ("in a transaction", Shards, |conn, video| {
        conn.transaction(|conn| Ok(callers(conn, video)? + count!(video).execute(conn)? as i64))
    }),
    ("in a transaction, no shards", Parent, |conn, video| {
        conn.transaction(|conn| Ok(count!(video).execute(conn)? as i64 + callers(conn, video)?))
    }),
    ("in a transaction, rows back", Parent, |conn, video| {
        conn.transaction(|conn| {
            count!(video).returning(views).get_result::<i64>(conn)?;
            Ok(callers(conn, video)? + 1)
        })
    }),
    ("in one that goes on", Shards, |conn, video| {
        conn.transaction(|conn| {
            goes_on!(conn, video, count!(video).execute(conn).map(|n| n as i64))
        })
    }),
    ("rows back in one that goes on", Parent, |conn, video| {
        conn.transaction(|conn| {
            let count = count!(video).returning(views);
            goes_on!(conn, video, count.get_result::<i64>(conn).map(|_| 1))
        })
    }),
    ("named in one that goes on", Parent, |conn, video| {
        conn.transaction(|conn| {
            goes_on!(conn, video, counter(video).add_and_get(1, conn).map(|_| 1))
        })
    }),
    ("in one by text", Parent, |conn, video| {
        by_text(conn, |conn| Ok(callers(conn, video)? + count!(video).execute(conn)? as i64))
    }),
    ("by filter, rows back, in one by text that goes on", Parent, |conn, video| {
        by_text(conn, |conn| {
            let count = count!(by filter video).returning(views);
            let count = |conn| count.get_results::<i64>(conn).map(|rows| rows.len() as i64);
            goes_on!(conn, video, count(conn))
        })
    }),
    ("retry::transaction", Shards, |conn, video| {
        retry::transaction(conn, RetryPolicy::new().with_attempts(2), |conn| {
            QueryResult::Ok(callers(conn, video)? + count!(video).execute(conn)? as i64)
        })
    }),
    ("keyed", Shards, |conn, video| {
        count!(video).idempotency_key(key(video)).execute(conn).map(|n| n as i64)
    }),
    ("keyed, no shards", Parent, |conn, video| {
        count!(video).idempotency_key(key(video)).execute(conn).map(|n| n as i64)
    }),
    ("keyed, by filter", Parent, |conn, video| {
        count!(by filter video).idempotency_key(key(video)).execute(conn).map(|n| n as i64)
    }),
    ("keyed row counter", Shards, |conn, video| {
        let keyed = RowCounter::of(views, video).idempotency_key(key(video));
        keyed.add(1, conn).map(|n| n as i64)
    }),
    ("keyed named counter", Parent, |conn, video| {
        counter(video).idempotency_key(key(video)).add(1, conn).map(|_| 1)
    }),
    ("keyed set", Shards, |conn, video| {
        let set = set_total(videos.find(video), views, 50).idempotency_key(key(video));
        set.execute(conn).map(|_| 50 - VIEWS)
    }),
    ("row counter", Shards, |conn, video| {
        RowCounter::of(views, video).add(1, conn).map(|n| n as i64)
    }),
    ("row counter, add and get", Parent, |conn, video| {
        let total = RowCounter::of(views, video).add_and_get(1, conn)?;
        Ok(i64::from(total.is_some()))
    }),
    ("named", Parent, |conn, video| counter(video).add(1, conn).map(|()| 1)),
    ("named, add and get", Parent, |conn, video| counter(video).add_and_get(1, conn).map(|_| 1)),
    ("named, set", Parent, |conn, video| counter(video).set(7, conn).map(|()| 7)),
    ("named, reset", Parent, |conn, video| counter(video).reset(conn).map(|()| 0)),
    ("named, fold", Parent, |conn, video| counter(video).fold(conn).map(|_| 0)),
    ("named, delete", Parent, |conn, video| counter(video).delete(conn).map(|_| 0)),
    ("bounded", Parent, |conn, video| {
        let bounded = RowCounter::of(likes, video).never_below(0);
        bounded.add(-1, conn).map(|done| -i64::from(done))
    }),
    ("bounded, named", Parent, |conn, video| {
        let bounded = counter(video).never_above(5);
        bounded.add(1, conn).map(i64::from)
    }),
    ("count_many", Parent, |conn, video| {
        let counted = count_many(views, [(video, 1), (-1, 1)]).run(conn)?;
        Ok(counted.rows as i64)
    }),
    ("set_total", Shards, |conn, video| {
        let set = set_total(videos.find(video), views, 50);
        set.execute(conn).map(|rows| rows as i64 * (50 - VIEWS))
    }),
    ("reset", Shards, |conn, video| {
        let set = reset(videos.find(video));
        set.execute(conn).map(|rows| rows as i64 * -(VIEWS + LIKES))
    }),
    ("fold", Shards, |conn, video| {
        fold(videos.find(video)).keep_shards(1).run(conn).map(|_| 0)
    }),
    ("repair", Shards, |conn, video| {
        let recount = comments::table
            .group_by(comments::video_id)
            .select((comments::video_id, count_star()));
        let drifts = verify(videos.find(video), likes, recount).repair(conn)?;
        Ok(-(drifts.len() as i64))
    }),
    ("resize", Parent, |conn, _| ShardCount::of(views).resize(4, conn).map(|()| 0)),
    ("refresh", Parent, |conn, _| shard_counts::refresh(conn).map(|()| 0)),
    ("remove keys", Parent, |conn, _| {
        idempotency::remove_older_than(Duration::from_secs(3600), conn).map(|_| 0)
    }),
    ("top", Parent, |conn, _| {
        let top = top(videos, views, 2).select(id);
        diesel::RunQueryDsl::load::<i64>(top, conn).map(|_| 0)
    }),
    ("total", Shards, |conn, video| {
        let total = videos.find(video).select(views.total());
        let total = diesel::RunQueryDsl::first::<i64>(total, conn)?;
        assert_eq!(total, VIEWS);
        Ok(0)
    }),
    ("drop the shards table", Parent, |conn, _| {
        ShardsTable::of(measures::table).drop(conn).map(|()| 0)
    }),
    ("create a shards table", Nothing, |conn, _| {
        ShardsTable::of(measures::table).create(conn).map(|()| 0)
    }),
    ("create a counter cache", Parent, |conn, _| {
        CounterCache::of(likes).counts(comments::video_id).create(conn).map(|()| 0)
    }),
    ("drop a counter cache", Shards, |conn, _| {
        CounterCache::of(likes).counts(comments::video_id).drop(conn).map(|()| 0)
    }),
];

/// The server's number of a connection.
pub fn number(conn: &mut Conn) -> i64 {
    let sql = match super::IS_MYSQL {
        true => "CONNECTION_ID()",
        false => "CAST(pg_backend_pid() AS BIGINT)",
    };
    diesel::RunQueryDsl::get_result(diesel::select(diesel::dsl::sql::<BigInt>(sql)), conn)
        .expect("a number")
}
