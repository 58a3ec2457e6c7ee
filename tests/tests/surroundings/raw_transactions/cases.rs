//! Each operation beside the caller's own edit, in a transaction that was begun by SQL text.

use diesel::connection::SimpleConnection;
use diesel::mysql::Mysql;
use diesel::pg::Pg;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel::sqlite::Sqlite;
use diesel_sharded::prelude::*;
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded_tests::awaited::Done;
use diesel_sharded_tests::schema::videos as table;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{Database, TestConnection, count, rolled_back, schema};

use super::Conn;
use super::api::retry::{self, Isolation, RetryPolicy, Transaction};
use super::api::{ShardsTable, update};
use super::operations::{ALL, Operation, arrange, ask, is, is_callers, is_of_schema, totals};

/// Operations that need a transaction of their own.
const OWN: [&str; 2] = ["repair", "refresh"];

/// Those that may be part of another transaction.
pub fn operations() -> impl Iterator<Item = Operation> {
    let is_own = |name: &str| OWN.contains(&name) || is_callers(name) || is_of_schema(name);
    ALL.iter().copied().filter(move |(name, ..)| !is_own(name))
}

pub fn database() -> (Database, Conn) {
    schema::database_with_counters()
}

fn run(text: &str, conn: &mut Conn) {
    conn.batch_execute(text)
        .unwrap_or_else(|error| panic!("{text}: {error}"));
}

/// How many rows there are, and sums of their numbers. An empty shard of a named counter is none: whether the first addition within bounds
/// leaves one depends on where this process's shards begin.
const ROWS: [&str; 10] = [
    "COUNT(*) FROM videos",
    "COALESCE(SUM(views + likes), 0) FROM videos",
    "COUNT(*) FROM videos_shards",
    "COALESCE(SUM(views + likes), 0) FROM videos_shards",
    "COUNT(*) FROM diesel_sharded_counters",
    "COALESCE(SUM(value), 0) FROM diesel_sharded_counters",
    "COUNT(*) FROM diesel_sharded_counter_shards WHERE value <> 0",
    "COALESCE(SUM(value), 0) FROM diesel_sharded_counter_shards",
    "COUNT(*) FROM diesel_sharded_shard_numbers",
    "COUNT(*) FROM diesel_sharded_idempotency_keys",
];

/// All that an operation, or the edit beside it, may change.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    rows: [i64; ROWS.len()],
    pub title: String,
}

pub fn state(conn: &mut Conn) -> State {
    State {
        rows: ROWS.map(|rows| ask(&format!("SELECT {rows}"), conn).unwrap()),
        title: videos.find(3).select(title).first(conn).unwrap(),
    }
}

impl State {
    /// What has been added since.
    pub fn since(&self, before: &State) -> [i64; ROWS.len()] {
        std::array::from_fn(|at| self.rows[at] - before.rows[at])
    }
}

pub fn edit(to: &str, conn: &mut Conn) {
    let edited = diesel::update(videos.find(3)).set(title.eq(to)).execute(conn);
    assert_eq!(edited, Ok(1));
}

/// A connection beside the operations, and the number of their last video.
pub struct Bench {
    pub side: Conn,
    video: i64,
}

impl Bench {
    pub fn new(database: &Database) -> Self {
        let side = Conn::connect(database);
        Bench { side, video: 1000 }
    }

    /// A new video for the operation.
    pub fn arrange(&mut self, (name, before, _): Operation) -> i64 {
        self.video += 1;
        arrange(name, before, self.video, &mut self.side);
        self.video
    }

    /// All totals that these operations on videos change.
    fn sum(&mut self, arranged: &[(Operation, i64)]) -> i64 {
        let totals = arranged.iter().map(|(_, video)| totals(*video, &mut self.side));
        totals.sum()
    }

    /// The rows that the operation adds, alone on a connection without a transaction: it is committed when it returns.
    pub fn effect(&mut self, operation: Operation, conn: &mut Conn) -> [i64; ROWS.len()] {
        let (name, _, work) = operation;
        let video = self.arrange(operation);
        let (before, all) = (state(&mut self.side), totals(video, &mut self.side));
        let added = work(conn, video).unwrap_or_else(|error| panic!("{name}: {error:?}"));
        assert_eq!(totals(video, &mut self.side) - all, added, "{name}");
        state(&mut self.side).since(&before)
    }
}

fn does(operation: Operation, video: i64, conn: &mut Conn) {
    let (name, _, work) = operation;
    work(conn, video).unwrap_or_else(|error| panic!("{name}: {error:?}"));
}

#[test]
fn a_rollback_takes_all_back_and_a_commit_keeps_all_once() {
    let (database, mut conn) = database();
    let mut bench = Bench::new(&database);
    for operation in operations() {
        let name = operation.0;
        let effect = bench.effect(operation, &mut conn);
        let video = bench.arrange(operation);
        let before = state(&mut bench.side);
        for is_first in [true, false] {
            run("BEGIN", &mut conn);
            if !is_first {
                edit("rolled back", &mut conn);
            }
            does(operation, video, &mut conn);
            assert_eq!(state(&mut bench.side), before, "{name}, before the end");
            edit("rolled back too", &mut conn);
            run("ROLLBACK", &mut conn);
            assert_eq!(state(&mut bench.side), before, "{name}, rolled back");
        }

        run("BEGIN", &mut conn);
        edit("committed", &mut conn);
        does(operation, video, &mut conn);
        edit(name, &mut conn);
        assert_eq!(state(&mut bench.side), before, "{name}, before the end");
        run("COMMIT", &mut conn);
        let after = state(&mut bench.side);
        assert_eq!((after.since(&before), &*after.title), (effect, name));
        // The connection is as it was: transactions of Diesel's own begin and end.
        let video = bench.arrange(operation);
        let before = state(&mut bench.side);
        rolled_back(&mut conn, |conn| {
            let all = totals(video, conn);
            let added = (operation.2)(conn, video).unwrap();
            assert_eq!(totals(video, conn) - all, added, "{name}, inside");
        });
        assert_eq!(state(&mut bench.side), before, "{name}, rolled back by Diesel");
        conn.transaction(|conn| (operation.2)(conn, video)).unwrap();
        let after = state(&mut bench.side);
        assert_eq!(after.since(&before), effect, "{name}, by Diesel");
    }
}

/// Each of them in one and the same transaction.
#[test]
fn one_transaction_takes_them_all() {
    let (database, mut conn) = database();
    let mut bench = Bench::new(&database);
    for end in ["ROLLBACK", "COMMIT"] {
        let arranged = operations().map(|operation| (operation, bench.arrange(operation)));
        let arranged: Vec<_> = arranged.collect();
        let before = state(&mut bench.side);
        let (sum, mut added) = (bench.sum(&arranged), 0);
        run("BEGIN", &mut conn);
        for ((_, _, work), video) in &arranged {
            added += work(&mut conn, *video).unwrap();
        }
        edit(end, &mut conn);
        run(end, &mut conn);
        match end {
            "COMMIT" => assert_eq!(bench.sum(&arranged) - sum, added),
            _ => assert_eq!(state(&mut bench.side), before),
        }
    }
    assert_eq!(state(&mut bench.side).title, "COMMIT");
}

/// An operation that needs a transaction of its own returns an error, and leaves the caller's as it is.
#[test]
fn what_cannot_be_part_of_another_transaction_is_refused() {
    let (database, mut conn) = database();
    let mut other = Conn::connect(&database);
    run("BEGIN", &mut conn);
    edit("committed", &mut conn);
    let isolated: QueryResult<()> = Transaction::new()
        .isolation(Isolation::RepeatableRead)
        .run(&mut conn, |_| panic!("it must not run"));
    assert_eq!(isolated, Err(DieselError::AlreadyInTransaction));
    for (name, _, work) in ALL.iter().filter(|(name, ..)| OWN.contains(name)) {
        let refused = work(&mut conn, 1);
        assert_eq!(refused, Err(DieselError::AlreadyInTransaction), "{name}");
    }
    assert_eq!(state(&mut other).title, "C");
    edit("all of it", &mut conn);
    run("COMMIT", &mut conn);
    assert_eq!(state(&mut other).title, "all of it");
}

/// A failure rolls back the operation alone.
#[test]
fn a_failure_takes_back_the_operation_alone() {
    let (database, mut conn) = database();
    let mut other = Conn::connect(&database);
    run("BEGIN", &mut conn);
    edit("kept", &mut conn);
    count!(videos.find(1), views.eq(views + 1), &mut conn);
    let failed: QueryResult<()> = retry::transaction(&mut conn, RetryPolicy::new(), |conn| {
        update(videos.find(1)).set(views.eq(views + 10)).execute(conn).done()?;
        update(videos.find(2)).set(views.eq(views + 10)).execute(conn).done()?;
        Err(DieselError::NotFound)
    });
    assert_eq!(failed, Err(DieselError::NotFound));
    run("COMMIT", &mut conn);
    let totals = videos.select((title, views.total())).order(id).load(&mut other);
    let expected = [("A", 101), ("B", 200), ("kept", 300)];
    assert_eq!(totals, Ok(expected.map(|(text, n)| (text.to_owned(), n)).to_vec()));
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
    let refuses = is::<Mysql>();
    for create in [false, true] {
        run("BEGIN", &mut conn);
        edit("rolled back", &mut conn);
        let done = match create {
            true => shards.create(&mut conn).done(),
            false => shards.drop(&mut conn).done(),
        };
        match refuses {
            true => assert_eq!(done, Err(DieselError::AlreadyInTransaction)),
            false => assert_eq!(done, Ok(())),
        }
        run("ROLLBACK", &mut conn);
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

/// A conflict that ends the caller's transaction, or a statement of it, is returned as by Diesel, not retried: a further attempt
/// would run in another transaction, or in none.
#[test]
fn a_conflict_is_told_and_not_tried_again() {
    let (database, mut conn) = database();
    let mut other = Conn::connect(&database);
    // The test does not wait long.
    let (short_patience, lock_by_begin) = if is::<Pg>() {
        ("SET lock_timeout = '100ms'", "BEGIN")
    } else if is::<Sqlite>() {
        ("PRAGMA busy_timeout = 50", "BEGIN IMMEDIATE")
    } else {
        ("SET innodb_lock_wait_timeout = 1", "BEGIN")
    };
    run(short_patience, &mut conn);
    run(short_patience, &mut other);
    // One shard, so that both meet.
    macro_rules! count_on_one {
        ($rows:expr, $conn:expr) => {
            update($rows)
                .set(views.eq(views + 1))
                .shard_choice(ShardChoice::Random)
                .retry(RetryPolicy::new().with_random(|| 0))
                .execute($conn).done()
        };
    }
    for of in [1, 2] {
        assert_eq!(count_on_one!(videos.find(of), &mut conn), Ok(1));
    }
    let before = state(&mut other);
    run(lock_by_begin, &mut other);
    assert_eq!(count_on_one!(videos.find(1), &mut other), Ok(1));
    run("BEGIN", &mut conn);
    let _ = diesel::update(videos.find(3))
        .set(title.eq("lost or rolled back"))
        .execute(&mut conn);
    for failed in [
        count_on_one!(videos.find(1), &mut conn),
        count_on_one!(videos.filter(slug.eq("a")), &mut conn),
    ] {
        assert!(matches!(failed, Err(DieselError::DatabaseError(..))), "{failed:?}");
    }
    run("ROLLBACK", &mut conn);
    run("ROLLBACK", &mut other);
    assert_eq!(state(&mut other), before);
    // Outside a transaction, the same conflict is retried.
    assert_eq!(count_on_one!(videos.find(1), &mut conn), Ok(1));
}
