//! `verify` and `backfill`.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use diesel::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::update;
use diesel_sharded_tests::schema::videos::dsl;
use diesel_sharded_tests::{Database, TestConnection};

use super::Conn;
use super::{
    Script, assert_says, empty_database, end, json_of, run, run_noting, session, shard, signal,
    spawn, totals, videos,
};

const RECOUNT: &str = "SELECT video_id, COUNT(*) FROM events GROUP BY video_id";

/// The command line that recounts the views, with these options.
fn views(command: &str, options: &str) -> String {
    format!("{command} videos views --recount '{RECOUNT}' {options}")
}

/// So many videos, two views of each on shards, and events: video 1 has one, 2 two, 3 three, and the others two.
fn recountable(number: usize) -> (Database, Conn) {
    let (database, mut conn) = videos(number, 2);
    conn.script(
        "CREATE TABLE events (video_id BIGINT NOT NULL);
         INSERT INTO events SELECT id FROM videos; INSERT INTO events SELECT id FROM videos WHERE id <> 1;
         INSERT INTO events SELECT id FROM videos WHERE id = 3",
    );
    (database, conn)
}

#[test]
fn what_is_counted_meanwhile_stays_counted() {
    let (database, mut conn) = recountable(200);
    conn.script("UPDATE videos SET views = 17"); // all are wrong
    let (stop, counted) = (AtomicBool::new(false), AtomicI64::new(0));
    thread::scope(|scope| {
        for thread in 0..3 {
            let (stop, counted, database) = (&stop, &counted, &database);
            scope.spawn(move || {
                let mut conn = Conn::connect(database);
                let mut video = thread * 50;
                while !stop.load(Ordering::SeqCst) {
                    video = video % 200 + 1;
                    // The counted row and the count, in one transaction.
                    let done = retry::transaction(&mut conn, RetryPolicy::default(), |conn| {
                        diesel::sql_query(format!("INSERT INTO events VALUES ({video})"))
                            .execute(conn)?;
                        update(dsl::videos.find(video))
                            .set(dsl::views.eq(dsl::views + 1))
                            .execute(conn)
                    });
                    assert_eq!(done, Ok(1));
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let shown = run(&database, &views("backfill", "--batch=20"), 0);
        assert_says(&shown, "200 rows compared, 200 were not");
        while counted.load(Ordering::SeqCst) < 50 {
            thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::SeqCst);
    });
    run(&database, &views("verify", ""), 0);
    let total: i64 = totals(&mut conn).iter().map(|(_, total, _)| total).sum();
    assert_eq!(total, 400 + counted.load(Ordering::SeqCst)); // one less of video 1, one more of 3
}

#[test]
fn a_backfill_is_interrupted_and_goes_on() {
    let (database, mut conn) = recountable(200);
    conn.script("UPDATE videos SET views = 17");
    let slow = "--batch=10 --show=0 --at-most-per-second=50";
    let backfill = spawn(&database, &views("backfill", slow));
    while totals(&mut conn)[29].1 == 19 {
        thread::sleep(Duration::from_millis(5));
    }
    signal(&backfill, "-TERM");
    let (code, _, says) = end(backfill);
    assert_eq!(code, Some(130), "{says}");
    let (_, after) = says.trim().split_once("continue with ").unwrap();
    let last: i64 = after.strip_prefix("--after=").unwrap().parse().unwrap();
    let totals_then = totals(&mut conn);
    assert!(
        totals_then
            .iter()
            .all(|(id, total, _)| (*id > last) == (*total == 19))
    );
    let shown = run(&database, &views("backfill", after), 0);
    assert_says(&shown, &format!("{} repaired", 200 - last));
    run(&database, &views("verify", ""), 0);
}

/// Keys of any text, and amounts below zero.
#[test]
fn keys_with_quotes_and_line_ends() {
    let (database, mut conn) = empty_database();
    let steps = "
        sql: CREATE TABLE tags (lang VARCHAR(20) NOT NULL, tag VARCHAR(50) NOT NULL, uses INTEGER NOT NULL, PRIMARY KEY (lang, tag))
        sql: INSERT INTO tags VALUES ('de', '', 0), ('it''s', '\"x\"; DROP', -3)
        shard: tags uses";
    session(&database, steps);
    conn.script("INSERT INTO tags VALUES ('de', 'two\nlines', 0)");
    conn.script("INSERT INTO tags_shards SELECT lang, tag, 0, -2 FROM tags");
    let recount = "tags uses --recount 'SELECT lang, tag, -7 FROM tags' --batch=1";
    let found = run(&database, &format!("verify {recount}"), 3);
    for row in [
        "de, : total -2, recounted -7 (-5)",
        "de, two\nlines: total -2",
        "it's, \"x\"; DROP: total -5, recounted -7 (-2)",
    ] {
        assert_says(&found, row);
    }
    run(&database, &format!("backfill {recount}"), 0);
    let behind = format!("verify {recount} --after=de '--after=two\nlines'");
    let compared = run(&database, &behind, 0);
    assert_says(&compared, "1 row compared, 0 differ");
    let steps = format!(
        "0: fold tags --batch=1 => 3 rows folded (uses -6)
         0: verify {recount}"
    );
    session(&database, &steps);
}

#[test]
fn drifts_are_told_as_json() {
    let (database, _conn) = recountable(10);
    let json = json_of(&database, &views("verify", "--json"), 3);
    assert_eq!(
        json,
        serde_json::json!({
            "table": "videos",
            "field": "views",
            "compared": 10,
            "differ": 2,
            "repaired": null,
            "drifts": [
                {"key": [1], "total": 2, "recounted": 1, "lacks": -1, "not_repaired": null},
                {"key": [3], "total": 2, "recounted": 3, "lacks": 1, "not_repaired": null},
            ],
            "go_on": null,
        })
    );
    let json = json_of(&database, &views("backfill", "--json"), 0);
    assert_eq!(json["repaired"], 2);
    run(&database, &views("verify", ""), 0);
}

/// Sums and numbers of rows in the field's own type, by the line that `generate` prints.
#[test]
fn fields_of_every_type_are_filled_by_the_note() {
    let (database, mut conn) = empty_database();
    for sql in [
        "CREATE TABLE shops (id BIGINT PRIMARY KEY, spent DECIMAL(20, 4) NOT NULL DEFAULT 0, weight DOUBLE PRECISION NOT NULL DEFAULT 0, \
             n DOUBLE PRECISION NOT NULL DEFAULT 0)",
        "CREATE TABLE orders (id BIGINT PRIMARY KEY, shop_id BIGINT NOT NULL, spent DECIMAL(20, 4), weight DOUBLE PRECISION NOT NULL)",
        "INSERT INTO shops (id) VALUES (1), (2), (3)",
        "INSERT INTO orders VALUES (1, 1, 9.30, 0.75), (2, 2, 100.75, 0.1), (3, 2, NULL, 0.2)",
    ] {
        conn.script(sql);
    }
    shard(&database, &mut conn, "shops", &["spent", "weight", "n"]);
    for (field, sums, first, second) in [
        ("spent", "--sums=spent", "9.3 (+9.3)", "100.75 (+100.75)"),
        ("weight", "--sums=weight", "0.75 (+0.75)", "0.3"),
        ("n", "", "1 (+1)", "2 (+2)"),
    ] {
        let generate = format!("generate shops {field} --counts=orders.shop_id {sums} --print");
        let (_, note) = run_noting(&database, &generate, 0);
        let (_, backfill) = note.split_once("diesel-sharded ").unwrap();
        let verify = backfill.trim().replacen("backfill", "verify", 1);
        let found = run(&database, &verify, 3);
        assert_says(&found, &format!("1: total 0, recounted {first}"));
        assert_says(&found, &format!("2: total 0, recounted {second}"));
        let shown = run(&database, backfill.trim(), 0);
        assert_says(&shown, "2 were not as recounted, 2 repaired");
        run(&database, &verify, 0);
    }
}
