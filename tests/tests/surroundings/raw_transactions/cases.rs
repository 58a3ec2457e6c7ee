//! Each operation beside the caller's own edit, in a transaction that was begun by SQL text.

use std::sync::atomic::{AtomicU32, Ordering};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::prelude::*;
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{self, downloads, videos as table};
use diesel_sharded_tests::{Database, TestConnection, count};

use super::Conn;
use super::api::retry::{self, Isolation, RetryPolicy, Transaction};
use super::api::shard_counts::ShardCount;
use super::api::{Counter, RowCounter, ShardsTable, fold, reset, set_total, update, verify};

diesel::table! {
    #[sql_name = "diesel_sharded_counters"]
    counters (name) {
        name -> Binary,
        value -> BigInt,
    }
}

diesel::table! {
    #[sql_name = "diesel_sharded_idempotency_keys"]
    keys (key) {
        key -> Binary,
    }
}

pub fn database() -> (Database, Conn) {
    schema::database_with_counters()
}

fn run(conn: &mut Conn, text: &str) {
    conn.batch_execute(text)
        .unwrap_or_else(|error| panic!("{text}: {error}"));
}

/// All that an operation, or the edit beside it, may change.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// The title, views and likes of each video.
    pub videos: Vec<(String, i64, i32)>,
    /// The bases of video 1.
    base: i64,
    downloads: Vec<i32>,
    counter: i64,
    counters: i64,
    keys: i64,
    shards: u16,
}

pub fn state(conn: &mut Conn) -> State {
    State {
        videos: videos
            .select((title, views.total(), likes.total()))
            .order(id)
            .load(conn)
            .unwrap(),
        base: videos.find(1).select(views).first(conn).unwrap(),
        downloads: downloads::table
            .select(downloads::number.total())
            .load(conn)
            .unwrap(),
        counter: Counter::named("a").get(conn).unwrap(),
        counters: counters::table.count().get_result(conn).unwrap(),
        keys: keys::table.count().get_result(conn).unwrap(),
        shards: ShardCount::of(likes).get(conn).unwrap(),
    }
}

pub struct Operation {
    pub name: &'static str,
    pub run: fn(&mut Conn) -> QueryResult<()>,
    /// The effect on the state.
    pub effect: fn(&mut State),
}

fn met<T: PartialEq + std::fmt::Debug>(outcome: QueryResult<T>, expected: T) -> QueryResult<()> {
    assert_eq!(outcome?, expected);
    Ok(())
}

pub const OPERATIONS: &[Operation] = &[
    Operation {
        name: "by key",
        run: |conn| {
            let count = update(videos.find(1)).set(views.eq(views + 1));
            met(count.execute(conn), 1)
        },
        effect: |state| state.videos[0].1 += 1,
    },
    Operation {
        name: "by key, on a shard that is there",
        run: |conn| {
            for _ in 0..2 {
                let count = update(videos.find(1)).set(views.eq(views + 1));
                met(count.execute(conn), 1)?;
            }
            Ok(())
        },
        effect: |state| state.videos[0].1 += 2,
    },
    Operation {
        name: "by a key that is not there",
        run: |conn| {
            let count = update(videos.find(99)).set(views.eq(views + 1));
            met(count.execute(conn), 0)
        },
        effect: |_| {},
    },
    Operation {
        name: "by a filter",
        run: |conn| {
            let count = update(videos.filter(channel.eq("news"))).set(likes.eq(likes + 1));
            met(count.execute(conn), 2)
        },
        effect: |state| {
            state.videos[1].2 += 1;
            state.videos[2].2 += 1;
        },
    },
    Operation {
        name: "by key, a row back",
        run: |conn| {
            let count = update(videos.find(2)).set(views.eq(views + 1));
            let row: i64 = count.returning(views).get_result(conn)?;
            assert!(row > 200);
            Ok(())
        },
        effect: |state| state.videos[1].1 += 1,
    },
    Operation {
        name: "by a filter, rows back",
        run: |conn| {
            let count = update(videos.filter(slug.eq("b"))).set(views.eq(views + 1));
            let rows: Vec<i64> = count.returning(views).get_results(conn)?;
            assert_eq!(rows.len(), 1);
            Ok(())
        },
        effect: |state| state.videos[1].1 += 1,
    },
    Operation {
        name: "or insert",
        run: |conn| {
            let day = (downloads::version.eq(1), downloads::day.eq(2));
            let count = update(downloads::table.find((1, 2)))
                .set(downloads::number.eq(downloads::number + 5))
                .or_insert(day);
            met(count.execute(conn), 1)
        },
        effect: |state| match state.downloads.first_mut() {
            Some(number) => *number += 5,
            None => state.downloads.push(5),
        },
    },
    Operation {
        name: "a named counter",
        run: |conn| Counter::named("a").add(3, conn),
        effect: |state| {
            state.counter += 3;
            state.counters = 1;
        },
    },
    Operation {
        name: "a named counter is set",
        run: |conn| Counter::named("a").set(70, conn),
        effect: |state| {
            state.counter = 70;
            state.counters = 1;
        },
    },
    Operation {
        name: "a named counter is folded",
        run: |conn| Counter::named("a").fold(conn).map(drop),
        effect: |_| {},
    },
    Operation {
        name: "a named counter is deleted",
        run: |conn| Counter::named("a").delete(conn).map(drop),
        effect: |state| {
            state.counter = 0;
            state.counters = 0;
        },
    },
    Operation {
        name: "one field of one row",
        run: |conn| met(RowCounter::of(views, 3).add(4, conn), 1),
        effect: |state| state.videos[2].1 += 4,
    },
    Operation {
        name: "within bounds",
        run: |conn| {
            let bounded = RowCounter::of(likes, 1).never_below(0).never_above(1_000);
            met(bounded.add(1, conn), true)?;
            met(bounded.add(1, conn), true)?;
            met(bounded.add(-1_000, conn), false)
        },
        effect: |state| state.videos[0].2 += 2,
    },
    Operation {
        name: "fold",
        run: |conn| {
            let folded = fold(videos).run(conn)?;
            assert!(folded.unfit.is_empty() && folded.busy.is_empty());
            Ok(())
        },
        effect: |state| state.base = state.videos[0].1,
    },
    Operation {
        name: "set",
        run: |conn| met(set_total(videos.find(2), views, 7).execute(conn), 1),
        effect: |state| state.videos[1].1 = 7,
    },
    Operation {
        name: "reset",
        run: |conn| met(reset(videos.find(2)).execute(conn), 1),
        effect: |state| (state.videos[1].1, state.videos[1].2) = (0, 0),
    },
    Operation {
        name: "with an idempotency key",
        run: |conn| {
            static REQUESTS: AtomicU32 = AtomicU32::new(0);
            let request = REQUESTS.fetch_add(1, Ordering::Relaxed).to_string();
            for _ in 0..2 {
                let count = update(videos.find(1)).set(views.eq(views + 1));
                met(count.idempotency_key(&request).execute(conn), 1)?;
            }
            Ok(())
        },
        effect: |state| {
            state.videos[0].1 += 1;
            state.keys += 1;
        },
    },
    Operation {
        name: "a number of shards",
        run: |conn| ShardCount::of(likes).resize(3, conn),
        effect: |state| state.shards = 3,
    },
    Operation {
        name: "a transaction that is retried",
        run: |conn| {
            retry::transaction(conn, RetryPolicy::new(), |conn| {
                update(videos.find(3)).set(views.eq(views + 1)).execute(conn)?;
                update(videos.filter(slug.eq("c")))
                    .set(likes.eq(likes + 1))
                    .execute(conn)
                    .map(drop)
            })
        },
        effect: |state| {
            state.videos[2].1 += 1;
            state.videos[2].2 += 1;
        },
    },
];

pub fn edit(conn: &mut Conn, to: &str) {
    let edited = diesel::update(videos.find(3)).set(title.eq(to)).execute(conn);
    assert_eq!(edited, Ok(1));
}

#[test]
fn a_rollback_takes_all_back_and_a_commit_keeps_all_once() {
    let (database, mut conn) = database();
    let mut other = Conn::connect(&database);
    for operation in OPERATIONS {
        let name = operation.name;
        let before = state(&mut other);
        for is_first in [true, false] {
            run(&mut conn, "BEGIN");
            if !is_first {
                edit(&mut conn, "rolled back");
            }
            (operation.run)(&mut conn).unwrap_or_else(|error| panic!("{name}: {error:?}"));
            assert_eq!(state(&mut other), before, "{name}, before the end");
            edit(&mut conn, "rolled back too");
            run(&mut conn, "ROLLBACK");
            assert_eq!(state(&mut other), before, "{name}, rolled back");
        }

        run(&mut conn, "BEGIN");
        edit(&mut conn, "committed");
        (operation.run)(&mut conn).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        edit(&mut conn, name);
        assert_eq!(state(&mut other), before, "{name}, before the end");
        run(&mut conn, "COMMIT");
        let mut after = before;
        (operation.effect)(&mut after);
        after.videos[2].0 = name.to_owned();
        assert_eq!(state(&mut other), after, "{name}, committed");
        // The connection is as it was: a transaction of Diesel's own begins and ends.
        conn.transaction(|conn| (operation.run)(conn)).unwrap();
        (operation.effect)(&mut after);
        assert_eq!(state(&mut other), after, "{name}, by Diesel");
    }
}

/// Each of them in one and the same transaction.
#[test]
fn one_transaction_takes_them_all() {
    let (database, mut conn) = database();
    let mut other = Conn::connect(&database);
    let before = state(&mut other);
    for end in ["ROLLBACK", "COMMIT"] {
        let mut after = before.clone();
        run(&mut conn, "BEGIN");
        for operation in OPERATIONS {
            (operation.run)(&mut conn).unwrap();
            (operation.effect)(&mut after);
        }
        edit(&mut conn, end);
        after.videos[2].0 = end.to_owned();
        run(&mut conn, end);
        let expected = if end == "COMMIT" { after } else { before.clone() };
        let mut seen = state(&mut other);
        seen.base = expected.base; // counts after the fold stay on shards
        assert_eq!(seen, expected);
    }
}

/// Outside a transaction no operation needs one of the caller's: each of them is committed when it returns.
#[test]
fn without_a_transaction_each_is_committed() {
    let (database, mut conn) = database();
    let mut other = Conn::connect(&database);
    for operation in OPERATIONS {
        let mut after = state(&mut other);
        (operation.run)(&mut conn).unwrap();
        (operation.effect)(&mut after);
        assert_eq!(state(&mut other), after, "{}", operation.name);
    }
}

/// An operation that needs a transaction of its own returns an error, and leaves the caller's as it is.
#[test]
fn what_cannot_be_part_of_another_transaction_is_refused() {
    let (database, mut conn) = database();
    let mut other = Conn::connect(&database);
    run(&mut conn, "BEGIN");
    edit(&mut conn, "committed");
    let isolated: QueryResult<()> = Transaction::new()
        .isolation(Isolation::RepeatableRead)
        .run(&mut conn, |_| panic!("it must not run"));
    assert_eq!(isolated, Err(DieselError::AlreadyInTransaction));
    let expected = table::table.select((table::id, table::views));
    let drifts = verify(videos, views, expected).drifts(&mut conn);
    assert_eq!(drifts, Err(DieselError::AlreadyInTransaction));
    let title_of = |conn: &mut Conn| videos.find(3).select(title).first::<String>(conn).unwrap();
    assert_eq!(title_of(&mut other), "C");
    edit(&mut conn, "all of it");
    run(&mut conn, "COMMIT");
    assert_eq!(title_of(&mut other), "all of it");
}

/// A failure rolls back the operation alone.
#[test]
fn a_failure_takes_back_the_operation_alone() {
    let (database, mut conn) = database();
    let mut other = Conn::connect(&database);
    let before = state(&mut other);
    run(&mut conn, "BEGIN");
    edit(&mut conn, "kept");
    update(videos.find(1)).set(views.eq(views + 1)).execute(&mut conn).unwrap();
    let failed: QueryResult<()> = retry::transaction(&mut conn, RetryPolicy::new(), |conn| {
        update(videos.find(1)).set(views.eq(views + 10)).execute(conn)?;
        update(videos.find(2)).set(views.eq(views + 10)).execute(conn)?;
        Err(DieselError::NotFound)
    });
    assert_eq!(failed, Err(DieselError::NotFound));
    run(&mut conn, "COMMIT");
    let mut after = before;
    after.videos[0].1 += 1;
    after.videos[2].0 = "kept".to_owned();
    assert_eq!(state(&mut other), after);
}

/// Tables too, where the database can roll them back. MySQL commits at each, and so the operation is refused.
#[test]
fn shards_tables_are_made_and_dropped_in_callers_transactions() {
    let (_database, mut conn) = database();
    let shards = ShardsTable::of(table::table);
    let is_there = |conn: &mut Conn| {
        let count = diesel::sql_query("UPDATE videos_shards SET views = views WHERE id = 1");
        count.execute(conn).is_ok()
    };
    count!(videos.find(1), views.eq(views + 1), &mut conn);
    let refuses = is::<diesel::mysql::Mysql>();
    for create in [false, true] {
        run(&mut conn, "BEGIN");
        edit(&mut conn, "rolled back");
        let done = match create {
            true => shards.create(&mut conn),
            false => shards.drop(&mut conn),
        };
        match refuses {
            true => assert_eq!(done, Err(DieselError::AlreadyInTransaction)),
            false => assert_eq!(done, Ok(())),
        }
        run(&mut conn, "ROLLBACK");
        assert_eq!(is_there(&mut conn), !create || refuses);
        let kept = videos.find(3).select(title).first::<String>(&mut conn);
        assert_eq!(kept.as_deref(), Ok("C"));
        if !create {
            let total = videos.find(1).select(views.total()).first::<i64>(&mut conn);
            assert_eq!(total, Ok(101));
            shards.drop(&mut conn).unwrap();
            if refuses {
                shards.create(&mut conn).unwrap();
            }
        }
    }
}

/// Whether the connection's backend is this one.
fn is<Backend: 'static>() -> bool {
    use std::any::TypeId;
    TypeId::of::<<Conn as Connection>::Backend>() == TypeId::of::<Backend>()
}

/// A conflict that ends the caller's transaction, or a statement of it, is returned as by Diesel, not retried: a further attempt
/// would run in another transaction, or in none.
#[test]
fn a_conflict_is_told_and_not_tried_again() {
    let (database, mut conn) = database();
    let mut other = Conn::connect(&database);
    for both in [&mut conn, &mut other] {
        for text in short_patience() {
            run(both, text);
        }
    }
    let count = |of: i64, conn: &mut Conn| {
        // One shard, so that both meet.
        let count = update(videos.find(of)).set(views.eq(views + 1));
        let count = count.shard_choice(ShardChoice::Random);
        count.retry(RetryPolicy::new().with_random(|| 0)).execute(conn)
    };
    for of in [1, 2] {
        assert_eq!(count(of, &mut conn), Ok(1));
    }
    let before = state(&mut other);
    run(&mut other, lock_by_begin());
    assert_eq!(count(1, &mut other), Ok(1));
    run(&mut conn, "BEGIN");
    let _ = diesel::update(videos.find(3))
        .set(title.eq("lost or rolled back"))
        .execute(&mut conn);
    let failed = count(1, &mut conn).unwrap_err();
    assert!(matches!(failed, DieselError::DatabaseError(..)), "{failed:?}");
    let filtered = update(videos.filter(slug.eq("a"))).set(views.eq(views + 1));
    let filtered = filtered.shard_choice(ShardChoice::Random);
    let filtered = filtered.retry(RetryPolicy::new().with_random(|| 0));
    let failed = filtered.execute(&mut conn).unwrap_err();
    assert!(matches!(failed, DieselError::DatabaseError(..)), "{failed:?}");
    run(&mut conn, "ROLLBACK");
    run(&mut other, "ROLLBACK");
    assert_eq!(state(&mut other), before);
    // Outside a transaction, the same conflict is retried.
    assert_eq!(count(1, &mut conn), Ok(1));
}

/// Short lock timeouts, so that the test does not wait long.
fn short_patience() -> &'static [&'static str] {
    if is::<diesel::pg::Pg>() {
        &["SET lock_timeout = '100ms'"]
    } else if is::<diesel::mysql::Mysql>() {
        &["SET innodb_lock_wait_timeout = 1"]
    } else {
        &["PRAGMA busy_timeout = 50"]
    }
}

fn lock_by_begin() -> &'static str {
    match is::<diesel::sqlite::Sqlite>() {
        true => "BEGIN IMMEDIATE",
        false => "BEGIN",
    }
}
