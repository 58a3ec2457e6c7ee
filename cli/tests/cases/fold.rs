//! `fold` beside writers, killed and interrupted.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::update;
use diesel_sharded_tests::schema::videos::dsl;
use diesel_sharded_tests::{Database, TestConnection};

use super::Conn;
use super::{Script, assert_says, end, json_of, run, run_noting, signal, spawn, totals, videos};

/// Counts on ten videos from `first` on by the library until it is told to stop; what was acknowledged.
fn count(database: &Database, first: i64, stop: &AtomicBool, counted: &AtomicI64) {
    let mut conn = Conn::connect(database);
    let mut video = first;
    while !stop.load(Ordering::SeqCst) {
        video = first + (video + 1 - first) % 10;
        let updated = update(dsl::videos.find(video))
            .set(dsl::views.eq(dsl::views + 1))
            .execute(&mut conn);
        assert_eq!(updated, Ok(1));
        counted.fetch_add(1, Ordering::SeqCst);
    }
}

/// Runs `work` while four threads count; how much they did.
fn beside_writers(database: &Database, first: i64, work: impl FnOnce()) -> i64 {
    let (stop, counted) = (AtomicBool::new(false), AtomicI64::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| count(database, first, &stop, &counted));
        }
        work();
        // Each did something beside the work.
        while counted.load(Ordering::SeqCst) < 100 {
            thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::SeqCst);
    });
    counted.load(Ordering::SeqCst)
}

/// A word for each video, with 5 uses on a shard.
fn add_words(database: &Database, conn: &mut Conn) {
    conn.script(
        "CREATE TABLE words (word BIGINT PRIMARY KEY, uses BIGINT NOT NULL DEFAULT 0);
         INSERT INTO words SELECT id, 0 FROM videos",
    );
    super::shard(database, conn, "words", &["uses"]);
    conn.script("INSERT INTO words_shards SELECT word, 0, 5 FROM words");
}

fn sum(conn: &mut Conn) -> (i64, i64) {
    let totals = totals(conn);
    let total = totals.iter().map(|(_, total, _)| total).sum();
    (total, totals.iter().map(|(_, _, base)| base).sum())
}

#[test]
fn counting_goes_on_while_the_tool_folds() {
    let (database, mut conn) = videos(300, 4);
    let counted = beside_writers(&database, 1, || {
        for _ in 0..5 {
            // Two at once: the parents' locks let one at a time at a parent.
            let two = [(), ()].map(|()| spawn(&database, "fold videos"));
            for fold in two {
                let ended = end(fold);
                assert!(matches!(ended.0, Some(0 | 3)), "{ended:?}"); // what is hot may stay busy
            }
        }
    });
    let (total, base) = sum(&mut conn);
    assert_eq!(total, 1200 + counted);
    assert!(base >= 290 * 4, "{base}");
    run(&database, "fold videos", 0);
    assert_eq!(sum(&mut conn), (total, total));
    // The other field too.
    let likes: Vec<i32> = dsl::videos.select(dsl::likes).load(&mut conn).unwrap();
    assert!(likes.iter().all(|likes| *likes == 8));
}

#[test]
fn killed_at_any_moment_it_loses_nothing() {
    let (database, mut conn) = videos(1500, 2);
    let mut part_folded = 0;
    let counted = beside_writers(&database, 1000, || {
        let mut looks = Conn::connect(&database);
        for _ in 0..15 {
            let (_, before) = sum(&mut looks);
            let mut fold = spawn(&database, "fold videos --batch=1");
            // Once it is at work; or, where only what is hot is left, in the middle of that.
            let started = Instant::now();
            while sum(&mut looks).1 < before + 50 && started.elapsed() < Duration::from_secs(1) {
                thread::sleep(Duration::from_millis(1));
            }
            fold.kill().unwrap(); // SIGKILL
            fold.wait().unwrap();
            let (total, base) = sum(&mut looks);
            assert!(total >= 3000, "{total}");
            part_folded += usize::from(base > 0 && base < 3000);
        }
    });
    assert!(part_folded > 0, "it was never killed in the middle");
    let (total, _) = sum(&mut conn);
    assert_eq!(total, 3000 + counted);
    run(&database, "fold videos", 0);
    assert_eq!(sum(&mut conn), (total, total));
}

/// Two tables, whose rows fit into one second each and not together.
#[test]
fn a_rate_is_that_of_all_tables() {
    let (database, mut conn) = videos(60, 1);
    add_words(&database, &mut conn);
    let started = Instant::now();
    let folded = run(&database, "fold --at-most-per-second=100", 0);
    assert_eq!(folded.matches(": 60 rows folded").count(), 2, "{folded}");
    assert!(started.elapsed() >= Duration::from_secs(1));
}

#[test]
fn results_are_told_as_json() {
    let (database, mut conn) = videos(4, 2);
    let dry = json_of(&database, "fold --dry-run --json", 0);
    assert_eq!(dry[0]["dry_run"], true);
    assert_eq!(dry[0]["rows"], 4);
    assert_eq!(
        dry[0]["fields"][1],
        serde_json::json!({"field": "likes", "moved": 16})
    );

    conn.script("UPDATE videos SET likes = 2147483646 WHERE id = 2");
    let json = json_of(&database, "fold videos --json", 3);
    assert_eq!(
        json,
        serde_json::json!([{
            "table": "videos",
            "shards_table": "videos_shards",
            "dry_run": false,
            "rows": 3,
            "fields": [{"field": "views", "moved": 6}, {"field": "likes", "moved": 12}],
            "shards_removed": 0,
            "busy": [],
            "unfit": [{"key": [2], "reason": "has a column whose range does not hold the total: use a wider type"}],
        }])
    );
    let (_, says) = run_noting(&database, "fold videos --json", 3);
    assert_says(&says, "not folded: the row 2");
}

/// Two tables, interrupted in the first one: its batch is finished, and another run folds the rest.
#[test]
fn an_interrupted_fold_of_all_tables_is_run_again() {
    let (database, mut conn) = videos(200, 1);
    add_words(&database, &mut conn);
    let options = "--at-most-per-second=20 --json";
    let mut fold = spawn(&database, &format!("fold {options}"));
    while sum(&mut conn).1 < 20 {
        assert_eq!(fold.try_wait().unwrap(), None);
        thread::sleep(Duration::from_millis(5));
    }
    signal(&fold, "-INT");
    let (code, printed, says) = end(fold);
    assert_eq!(code, Some(130), "{says}");
    let answer = "finishing the batch; Ctrl-C again stops now";
    assert!(says.starts_with(answer), "{says}");
    let json: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let rows = json[0]["rows"].as_i64().unwrap();
    assert_eq!(sum(&mut conn), (200, rows), "a batch is open");
    assert_says(&says, "interrupted: run it again");
    let printed = run(&database, "fold --json", 0);
    assert_says(&printed, &format!("\"rows\": {}", 200 - rows));
    assert_says(&printed, "\"table\": \"words\"");
    assert_eq!(sum(&mut conn), (200, 200));
}

/// After an error in its middle it tells what was folded before.
#[test]
fn an_error_ends_with_what_was_folded() {
    let (database, mut conn) = videos(30, 1);
    let fold = spawn(&database, "fold videos --batch=10 --at-most-per-second=10");
    while sum(&mut conn).1 < 10 {
        thread::sleep(Duration::from_millis(5));
    }
    conn.script("ALTER TABLE videos_shards RENAME TO gone");
    let (code, printed, says) = end(fold);
    assert_eq!(code, Some(1), "{says}");
    assert!(says.starts_with("error: "), "{says}");
    assert_says(&printed, "videos: 10 rows folded");
}

/// `aaa` comes first, and its shards table has lost a column meanwhile.
#[test]
fn one_tables_failure_keeps_no_other_from_being_folded() {
    let (database, mut conn) = videos(3, 1);
    let broken = match super::dialect() {
        Dialect::Postgres => {
            "CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no update''; END';
             CREATE TRIGGER fails BEFORE UPDATE ON NAME FOR EACH ROW EXECUTE FUNCTION fails()"
        }
        Dialect::Mysql => {
            "CREATE TRIGGER fails_NAME BEFORE UPDATE ON NAME FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no update'"
        }
        _ => {
            "CREATE TRIGGER fails_NAME BEFORE UPDATE ON NAME BEGIN SELECT RAISE(ABORT, 'no update'); END"
        }
    };
    for table in ["aaa", "bbb"] {
        conn.script(&format!(
            "CREATE TABLE {table} (id BIGINT PRIMARY KEY, n BIGINT NOT NULL DEFAULT 0);
             INSERT INTO {table} VALUES (1, 0)"
        ));
        super::shard(&database, &mut conn, table, &["n"]);
        conn.script(&format!("INSERT INTO {table}_shards VALUES (1, 0, 5)"));
        let broken = broken.replace("FUNCTION fails", &format!("FUNCTION fails_{table}"));
        conn.script(&broken.replace("NAME", table));
    }
    let (folded, says) = run_noting(&database, "fold", 1);
    assert_says(&folded, "videos: 3 rows folded");
    for table in ["aaa", "bbb"] {
        let error = format!("error: {table}: ");
        let line = says.lines().find(|line| line.starts_with(&error));
        assert!(
            line.is_some_and(|line| line.contains("no update")),
            "{says}"
        );
    }
    assert_eq!(sum(&mut conn), (3, 3));
}
