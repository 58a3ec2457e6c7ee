//! `advise` beside sessions that count on one row.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use diesel::prelude::*;
use diesel_sharded_tests::{Database, TestConnection};
use serde_json::{Value, json};

use super::Conn;
use super::cases::{Script, assert_says, empty_database, json_of, run, session};

diesel::table! {
    posts (id) {
        id -> BigInt,
        views -> BigInt,
    }
}

/// Eight sessions count on one row by Diesel, each in a transaction that holds it for a moment.
fn beside_counts(database: &Database, look: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut conn = Conn::connect(database);
                while !stop.load(Ordering::SeqCst) {
                    let counted = conn.transaction(|conn| {
                        diesel::update(posts::table.find(1))
                            .set(posts::views.eq(posts::views + 1))
                            .execute(conn)?;
                        thread::sleep(Duration::from_millis(5));
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

pub fn names_the_hot_column() {
    let (database, mut conn) = empty_database();
    conn.script(
        "CREATE TABLE posts (id BIGINT PRIMARY KEY, views BIGINT NOT NULL DEFAULT 0);
         INSERT INTO posts VALUES (1, 0)",
    );
    session(
        &database,
        "0: advise --seconds=1 => No statement counts on a row",
    );
    beside_counts(&database, || {
        let json = json_of(&database, "advise --json --seconds=3", 0);
        let column = &json["columns"][0];
        assert_eq!(column["table"], "posts", "{json}");
        assert_eq!(column["column"], "views");
        assert_eq!(column["next"], "diesel-sharded generate posts views");
        for (number, least) in [
            ("waiting_share", 0.5),
            ("waiting_sessions", 1.0),
            ("running_sessions", 1.0),
        ] {
            let is_there = column[number].as_f64().is_some_and(|n| n > least);
            assert!(is_there, "{number}: {json}");
        }
        let shown = run(&database, "advise --seconds=3", 0);
        assert_says(&shown, "sessions wait for its rows");
        assert_says(&shown, "The page benchmarks");
    });
    // Of a table that has shards, the code is to be changed.
    conn.script("CREATE TABLE posts_shards (id BIGINT NOT NULL, shard INTEGER NOT NULL, views BIGINT NOT NULL DEFAULT 0, \
         PRIMARY KEY (id, shard), FOREIGN KEY (id) REFERENCES posts (id) ON UPDATE CASCADE ON DELETE CASCADE)");
    beside_counts(&database, || {
        session(
            &database,
            "0: advise --seconds=1 => `use diesel_sharded::update`",
        );
    });
}

/// Quoted names, and a table to which no plain name leads. `quote` begins and ends a name.
pub fn names_are_those_of_the_statements(quote: char) {
    let (database, mut conn) = empty_database();
    let schema = format!("elsewhere_{}", std::process::id());
    let named = |sql: &str| {
        let sql = sql.replace('|', &quote.to_string());
        sql.replace("SCHEMA_NAME", &schema)
    };
    let is_postgres = quote == '"';
    conn.script(&named(
        "CREATE TABLE |My Posts| (id BIGINT PRIMARY KEY, |View Count| BIGINT NOT NULL, hits BIGINT NOT NULL);
         INSERT INTO |My Posts| VALUES (1, 0, 0);
         CREATE SCHEMA SCHEMA_NAME;
         CREATE TABLE SCHEMA_NAME.stats (id BIGINT PRIMARY KEY, n BIGINT NOT NULL);
         INSERT INTO SCHEMA_NAME.stats VALUES (1, 0)",
    ));
    let statements = [
        "UPDATE |My Posts| SET |View Count| = |View Count| + 1, hits = hits + 2 WHERE id = 1",
        "/* app */ UPDATE SCHEMA_NAME.stats SET n = n + 1",
    ];
    // All of them wait while somebody holds the rows.
    let mut holder = Conn::connect(&database);
    holder.script(&named(
        "BEGIN; UPDATE |My Posts| SET hits = 0; UPDATE SCHEMA_NAME.stats SET n = 0",
    ));
    let json = thread::scope(|scope| {
        for statement in statements {
            let (statement, database) = (named(statement), &database);
            scope.spawn(move || Conn::connect(database).script(&statement));
        }
        thread::sleep(Duration::from_millis(500));
        let json = json_of(&database, "advise --seconds=1 --json", 0);
        holder.script("ROLLBACK");
        json
    });
    let columns = json["columns"].as_array().unwrap().iter();
    let of_column = |column: &Value| json!([column["table"], column["column"], column["next"]]);
    let mut found: Vec<_> = columns.map(of_column).collect();
    let posts = "diesel-sharded generate 'My Posts'";
    let stats = format!("{schema}.stats");
    let mut expected = [
        json!([
            "My Posts",
            "View Count, hits",
            format!("{posts} 'View Count' hits")
        ]),
        json!([stats, "n", format!("diesel-sharded generate {stats} n")]),
    ];
    found.sort_by_key(Value::to_string);
    expected.sort_by_key(Value::to_string);
    assert_eq!(found, expected);
    conn.script(&named(match is_postgres {
        true => "DROP SCHEMA SCHEMA_NAME CASCADE",
        false => "DROP SCHEMA SCHEMA_NAME",
    }));
}
