//! `advise` beside sessions that count on one row.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use diesel::prelude::*;
use diesel_sharded_tests::TestConnection;
use serde_json::{Value, json};

use super::Conn;
use super::cases::{Script, assert_says, run_at};

diesel::table! {
    posts (id) {
        id -> BigInt,
        views -> BigInt,
    }
}

fn advise(url: &str, options: &str) -> String {
    run_at(url, &format!("advise {options}"), 0).0
}

/// Eight sessions count on one row by Diesel, each in a transaction that holds it for a moment.
fn beside_counts(url: &str, look: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut conn = Conn::establish(url).unwrap();
                while !stop.load(Ordering::SeqCst) {
                    let counted = conn.transaction(|conn| {
                        diesel::update(posts::table.find(1))
                            .set(posts::views.eq(posts::views + 1))
                            .execute(conn)?;
                        thread::sleep(std::time::Duration::from_millis(5));
                        QueryResult::Ok(())
                    });
                    counted.unwrap();
                }
            });
        }
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(look));
        stop.store(true, Ordering::SeqCst);
        looked.unwrap();
    });
}

/// On a server whose statistics are on.
pub fn names_the_hot_column(url: &str, prepare: &str) {
    let mut conn = Conn::establish(url).unwrap();
    conn.script(prepare);
    conn.script(
        "CREATE TABLE posts (id BIGINT PRIMARY KEY, views BIGINT NOT NULL DEFAULT 0);
         INSERT INTO posts VALUES (1, 0)",
    );
    let none = advise(url, "--seconds=1");
    assert_says(&none, "No statement counts on a row");
    beside_counts(url, || {
        let json: Value = serde_json::from_str(&advise(url, "--json --seconds=3")).unwrap();
        let column = &json["columns"][0];
        assert_eq!(column["table"], "posts", "{json}");
        assert_eq!(column["column"], "views");
        assert_eq!(column["next"], "diesel-sharded generate posts views");
        for (number, least) in [
            ("waiting_share", 0.5),
            ("waiting_sessions", 1.0),
            ("counts_per_second", 1.0),
            ("mean_ms", 1.0),
        ] {
            let is_there = column[number].as_f64().is_some_and(|n| n > least);
            assert!(is_there, "{number}: {json}");
        }
        let shown = advise(url, "--seconds=3");
        assert_says(&shown, "sessions wait for its rows");
        assert_says(&shown, "The page benchmarks");
    });
    // Of a table that has shards, the code is to be changed.
    conn.script("CREATE TABLE posts_shards (id BIGINT NOT NULL, shard INTEGER NOT NULL, views BIGINT NOT NULL DEFAULT 0, \
         PRIMARY KEY (id, shard), FOREIGN KEY (id) REFERENCES posts (id) ON UPDATE CASCADE ON DELETE CASCADE)");
    beside_counts(url, || {
        let shown = advise(url, "--seconds=1");
        assert_says(&shown, "`use diesel_sharded::update`");
    });
}

/// Without statistics the running statements are seen, and how to switch the statistics on.
pub fn says_how_to_switch_statistics_on(says: &str) {
    let database = Conn::database();
    let shown = advise(database.url(), "--seconds=1");
    assert_says(&shown, says);
}

/// Quoted names, names that differ by case alone, and tables to which no plain name leads. `quote` begins and ends a name.
pub fn names_are_those_of_the_database(url: &str, quote: char) {
    let mut conn = Conn::establish(url).unwrap();
    let schema = format!("elsewhere_{}", std::process::id());
    let mut execute = |sql: &str| {
        let sql = sql
            .replace('|', &quote.to_string())
            .replace("SCHEMA_NAME", &schema);
        conn.script(&sql);
    };
    let is_postgres = quote == '"';
    let other = if is_postgres { "Hits" } else { "other" };
    execute(&format!(
        "CREATE TABLE |My Posts| (id BIGINT PRIMARY KEY, |View Count| BIGINT NOT NULL, hits BIGINT NOT NULL, |{other}| BIGINT NOT NULL);
         CREATE SCHEMA SCHEMA_NAME;
         CREATE TABLE SCHEMA_NAME.stats (id BIGINT PRIMARY KEY, n BIGINT NOT NULL)"
    ));
    execute("UPDATE |My Posts| SET |View Count| = |View Count| + 1, hits = hits + 2 WHERE id = 1");
    execute(&format!("UPDATE |My Posts| SET |{other}| = |{other}| + 1"));
    execute("/* app */ UPDATE SCHEMA_NAME.stats SET n = n + 1");
    let posts = "diesel-sharded generate 'My Posts'";
    let stats = format!("{schema}.stats");
    let mut expected = [
        json!([
            "My Posts",
            "View Count, hits",
            format!("{posts} 'View Count' hits")
        ]),
        json!(["My Posts", other, format!("{posts} {other}")]),
        json!([stats, "n", format!("diesel-sharded generate {stats} n")]),
    ];
    if is_postgres {
        // This session's own table under its full name.
        execute("UPDATE public.|My Posts| SET |Hits| = |Hits| + 1");
    }
    let json: Value = serde_json::from_str(&advise(url, "--seconds=1 --json")).unwrap();
    let columns = json["columns"].as_array().unwrap().iter();
    let of_column = |column: &Value| json!([column["table"], column["column"], column["next"]]);
    let mut found: Vec<_> = columns.map(of_column).collect();
    found.sort_by_key(Value::to_string);
    expected.sort_by_key(Value::to_string);
    assert_eq!(found, expected);
    execute(if is_postgres {
        "DROP SCHEMA SCHEMA_NAME CASCADE"
    } else {
        "DROP SCHEMA SCHEMA_NAME"
    });
}
