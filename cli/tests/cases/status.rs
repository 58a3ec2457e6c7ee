//! `status` of large tables, and of triggers that are missing.

use diesel_sharded::backend::Dialect;
use serde_json::{Value, json};

use super::{Script, assert_says, dialect, json_of, posts, run, session, videos};

#[test]
fn a_large_table_is_not_read_as_a_whole() {
    let (database, mut conn) = videos(10_500, 1);
    let all = |option: &str| {
        let line = format!("status --json --hottest=1 {option}");
        json_of(&database, &line, 0)[0].clone()
    };
    conn.script("INSERT INTO videos_shards SELECT 10400, id, 1, 2 FROM videos WHERE id < 3");
    let analyze = match dialect() {
        Dialect::Mysql => "ANALYZE TABLE videos, videos_shards",
        _ => "ANALYZE",
    };
    conn.script(analyze);
    let short = all("");
    for (size, number) in [("rows", 10_500.0), ("shards", 10_502.0)] {
        assert_eq!(short[size]["accuracy"], "estimate", "{short}");
        let estimate = short[size]["number"].as_f64().unwrap();
        assert!((0.8..1.2).contains(&(estimate / number)), "{short}");
    }
    assert_eq!(short["rows_with_shards"]["accuracy"], "at_least");
    assert_eq!(short["fields"][0]["total"], Value::Null);
    assert_eq!(short["fields"][0]["unfolded"], Value::Null);
    assert_eq!(short["hottest_among"], 10_000);
    let hottest = json!({"key": [10_400], "shards": 3, "totals": [3, 6]});
    assert_eq!(short["hottest"][0], hottest);
    let shown = "0: status => --exact reads every row => among the last 10000 shards by key";
    session(&database, shown);

    let exact = all("--exact");
    for (size, number) in [
        ("rows", 10_500),
        ("shards", 10_502),
        ("rows_with_shards", 10_500),
    ] {
        assert_eq!(exact[size], json!({"number": number, "accuracy": "exact"}));
    }
    assert_eq!(exact["fields"][0]["total"], 10_502);
    assert_eq!(exact["hottest_among"], Value::Null);
    assert_eq!(exact["hottest"][0], hottest);

    // Few shards beside many rows: their sums are exact.
    conn.script("DELETE FROM videos_shards WHERE id > 100");
    let few = all("");
    assert_eq!(few["shards"], json!({"number": 100, "accuracy": "exact"}));
    assert_eq!(
        few["rows_with_shards"],
        json!({"number": 100, "accuracy": "exact"})
    );
    assert_eq!(few["fields"][0]["unfolded"], 100);
    assert_eq!(few["fields"][0]["total"], Value::Null);
}

/// Without statistics a number is reached at least.
#[test]
fn a_large_table_without_statistics() {
    let (database, mut conn) = videos(10_500, 0);
    if dialect() == Dialect::Postgres {
        conn.script("ALTER TABLE videos SET (autovacuum_enabled = off)");
    }
    let json = json_of(&database, "status --json", 0);
    let accuracy = &json[0]["rows"]["accuracy"];
    let expected = match dialect() {
        Dialect::Mysql => &["estimate"][..],
        // Autovacuum may have come before it was switched off.
        Dialect::Postgres => &["at_least", "estimate"],
        _ => &["at_least"],
    };
    assert!(expected.contains(&accuracy.as_str().unwrap()), "{json}");
}

#[test]
fn missing_triggers_in_place_of_a_foreign_key_are_named() {
    let (database, mut conn) = posts("--no-foreign-key");
    let read = |code| json_of(&database, "status --json", code);
    assert_eq!(read(0)[0]["kept_by"], "triggers");
    let (renames, on) = match dialect() {
        Dialect::Postgres => ("posts_shards_rename", " ON posts"),
        Dialect::Mysql => ("posts_shards_rename", ""),
        _ => ("posts_shards_update", ""),
    };
    for dropped in [&[renames][..], &[renames, "posts_shards_delete"]] {
        for name in dropped {
            conn.script(&format!("DROP TRIGGER {name}{on}"));
        }
        let steps = "
            3: status => Triggers of posts_shards
            3: doctor => problem  integrity: Triggers of posts_shards";
        session(&database, steps);
        let json = read(3);
        let sql = json[0]["missing_triggers"].as_str().unwrap();
        assert_eq!(
            sql.matches("CREATE TRIGGER").count(),
            dropped.len(),
            "{sql}"
        );
        conn.script(sql);
        assert_eq!(read(0)[0]["missing_triggers"], Value::Null);
        session(&database, "0: doctor => triggers keep posts_shards");
    }
}

#[test]
fn a_shards_table_without_foreign_key_and_triggers_is_the_applications() {
    let (database, mut conn) = posts("--no-triggers");
    let shown = run(&database, "status", 0);
    if dialect() == Dialect::Sqlite {
        assert!(!shown.contains("triggers"), "{shown}"); // it has its own
        return;
    }
    assert_says(&shown, "has neither a foreign key nor triggers");
    let json = json_of(&database, "status --json", 0);
    assert_eq!(json[0]["kept_by"], "application");
    // They can be created from there.
    conn.script(json[0]["missing_triggers"].as_str().unwrap());
    let json = json_of(&database, "status --json", 0);
    assert_eq!(json[0]["kept_by"], "triggers");
    assert_eq!(json[0]["missing_triggers"], Value::Null);
}
