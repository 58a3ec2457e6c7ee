//! Totals that their columns do not hold: they are read, named and repaired, and stop no command.

use diesel_sharded_tests::Database;
use serde_json::json;

use super::Conn;
use super::doctor::levels;
use super::{Script, assert_says, dialect, json_of, run, run_noting, session, shard, videos};
use diesel_sharded::backend::Dialect;

/// Three videos. The likes of 2 and the views of 3 are one shard beyond their columns.
fn beyond() -> (Database, Conn) {
    let (database, mut conn) = videos(3, 1);
    conn.script(
        "UPDATE videos SET likes = 2147483647 WHERE id = 2;
         UPDATE videos SET views = 9223372036854775807 WHERE id = 3",
    );
    (database, conn)
}

#[test]
fn status_and_doctor_name_the_rows() {
    let (database, _conn) = beyond();
    let rows = "=> videos.likes of the row 2: 2147483649 => videos.views of the row 3: 9223372036854775808";
    let all_views = "=> 9223372036854775810";
    let steps = format!(
        "3: status {rows} {all_views}
         3: status --exact {rows} {all_views}
         3: status --hottest=0 {rows} {all_views}
         3: doctor => problem  range: {rows}"
    );
    session(&database, &steps);
    let json = json_of(&database, "status --json", 3);
    assert_eq!(
        json[0]["out_of_range"],
        json!([
            {"key": [3], "field": "views", "total": 9_223_372_036_854_775_808_u64},
            {"key": [2], "field": "likes", "total": 2_147_483_649_u64},
        ])
    );
    let hottest = &json[0]["hottest"][2];
    assert_eq!(hottest["totals"], json!([9_223_372_036_854_775_808_u64, 2]));
    let steps = "
        sql: UPDATE videos SET likes = 0, views = 0
        0: doctor => ok       range: every total of videos is in the range of views, likes";
    session(&database, steps);
}

/// The least and the greatest total of each column, and those beside them, around every carry of the halves in which SQLite adds up.
#[test]
fn the_bounds_are_exact() {
    let (database, mut conn) = videos(1, 0);
    let mut set = |field: &str, base: i64, shards: &[i64]| {
        conn.script("DELETE FROM videos_shards; UPDATE videos SET views = 0, likes = 0");
        let likes = if field == "likes" { base } else { 0 };
        let views = if field == "views" { base } else { 0 };
        conn.script(&format!(
            "UPDATE videos SET views = {views}, likes = {likes}"
        ));
        for (number, shard) in shards.iter().enumerate() {
            conn.script(&format!(
                "INSERT INTO videos_shards (id, shard, {field}) VALUES (1, {number}, {shard})"
            ));
        }
    };
    let (big, int) = (i64::MAX, i64::from(i32::MAX));
    for (field, base, shards, fits) in [
        ("views", big - 3, &[1, 2][..], true),
        ("views", big - 3, &[2, 2], false),
        ("views", -big, &[-1], true),
        ("views", -big, &[-1, -1], false),
        ("views", 1, &[-big, -1], true),
        ("views", 0, &[-big, -2], false),
        ("views", -5, &[big, big], false),
        ("views", -big, &[big, big], true),
        ("views", -1, &[big, 1], true),
        ("likes", int, &[], true),
        ("likes", int, &[1], false),
        ("likes", -1, &[-int], true),
        ("likes", -2, &[-int], false),
        ("likes", -int, &[int, int], true),
        ("likes", int, &[int, int, int], false),
    ] {
        set(field, base, shards);
        let wanted: i128 = i128::from(base) + shards.iter().map(|n| i128::from(*n)).sum::<i128>();
        let shown = run(&database, "status --json", if fits { 0 } else { 3 });
        assert_says(&shown, &format!("\"total\": {wanted},"));
        // No recount of SQLite's is beyond its integers.
        let recounted = if fits { wanted } else { 0 };
        let verify = format!("verify videos {field} --recount 'SELECT 1, {recounted}'");
        let found = run(&database, &verify, if fits { 0 } else { 3 });
        let names = format!("1: total {wanted}, ");
        assert_eq!(found.contains(&names), !fits, "{found}");
    }
}

/// Sums that no double holds, and decimals with more digits than are declared.
#[test]
fn doubles_and_decimals() {
    let (database, mut conn) = super::empty_database();
    conn.script(
        "CREATE TABLE costs (id BIGINT PRIMARY KEY, weight DOUBLE PRECISION NOT NULL, cost DECIMAL(10, 2) NOT NULL);
         INSERT INTO costs VALUES (1, 1e308, 99999999.99), (2, 1e308, 0.5), (3, 0.25, 0)",
    );
    shard(&database, &mut conn, "costs", &["weight", "cost"]);
    conn.script("INSERT INTO costs_shards VALUES (1, 0, 0, 0.01), (2, 0, -1e308, 0.25)");
    // SQLite's decimals are doubles.
    let cut = dialect() != Dialect::Sqlite;
    let code = if cut { 3 } else { 0 };
    let shown = run(&database, "status costs costs", code);
    let names = shown.contains("costs.cost of the row 1: 100000000");
    assert_eq!(names, cut, "{shown}");
    assert!(!shown.contains("costs.weight of the row"), "{shown}");
    assert_eq!(shown.matches("Hottest keys of costs").count(), 1, "{shown}");
    let weights = shown.lines().find(|line| line.contains(" weight "));
    let sum = weights.unwrap().split_whitespace().nth(5).unwrap();
    match dialect() {
        // Its NUMERIC adds up what no double holds.
        Dialect::Postgres => assert!(sum.starts_with("1000000000"), "{shown}"),
        _ => assert_eq!(sum, "-", "{shown}"),
    }
    let level = if cut { "problem" } else { "ok" };
    assert_eq!(levels(&database, "range", code), [level]);
    let (folded, _) = run_noting(&database, "fold costs costs", code);
    let rows = match cut {
        true => "1 row folded (weight -1",
        false => "2 rows folded (weight -1",
    };
    assert!(folded.contains(rows), "{folded}");
    assert_eq!(folded.lines().count(), 1, "{folded}");
}
