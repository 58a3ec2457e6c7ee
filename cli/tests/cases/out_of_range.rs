//! Totals that their columns do not hold: they are read and repaired, and stop no command.

use super::{Script, assert_says, dialect, run, run_noting, shard, videos};
use diesel_sharded::backend::Dialect;

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
        let shown = run(&database, "status --json", 0);
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
    let shown = run(&database, "status costs costs", 0);
    assert_eq!(shown.matches("Hottest keys of costs").count(), 1, "{shown}");
    let weights = shown.lines().find(|line| line.contains(" weight "));
    let sum = weights.unwrap().split_whitespace().nth(5).unwrap();
    match dialect() {
        // Its NUMERIC adds up what no double holds.
        Dialect::Postgres => assert!(sum.starts_with("1000000000"), "{shown}"),
        _ => assert_eq!(sum, "-", "{shown}"),
    }
    // SQLite's decimals are doubles.
    let cut = dialect() != Dialect::Sqlite;
    let code = if cut { 3 } else { 0 };
    let (folded, _) = run_noting(&database, "fold costs costs", code);
    let rows = match cut {
        true => "1 row folded (weight -1",
        false => "2 rows folded (weight -1",
    };
    assert!(folded.contains(rows), "{folded}");
    assert_eq!(folded.lines().count(), 1, "{folded}");
}
