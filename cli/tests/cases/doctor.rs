//! `doctor`: each check, and that it changes nothing.

use diesel_sharded::backend::Dialect;
use diesel_sharded_tests::Database;
use serde_json::Value;

use super::{Script, assert_says, dialect, empty_database, json_of, run, session, videos};

/// The findings of a check: level, text and remedy.
pub fn findings(database: &Database, check: &str, code: i32) -> Vec<(String, String, String)> {
    let json = json_of(database, "doctor --json", code);
    let of_check = json.as_array().unwrap().iter();
    let of_check = of_check.filter(|f| f["check"] == check);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    of_check
        .map(|f| (text(&f["level"]), text(&f["says"]), text(&f["remedy"])))
        .collect()
}

pub fn levels(database: &Database, check: &str, code: i32) -> Vec<String> {
    let found = findings(database, check, code).into_iter();
    found.map(|(level, ..)| level).collect()
}

#[test]
fn a_database_where_all_is_well() {
    let (database, mut conn) = videos(3, 2);
    run(&database, "setup", 0);
    run(&database, "fold", 0);
    conn.script("CREATE INDEX a ON videos (views); CREATE INDEX b ON videos (likes)");
    if dialect() == Dialect::Sqlite {
        conn.script("PRAGMA journal_mode = WAL");
    }
    let shown = run(&database, "doctor", 0);
    let mut well = vec![" ok, 0 to be looked at, 0 wrong\n", "ok       integrity: "];
    if dialect() != Dialect::Sqlite {
        well.extend([" may count on videos", " may fold videos"]);
    }
    for part in well {
        assert_says(&shown, part);
    }
}

/// The base became wider after the shards table was created.
#[test]
fn columns_that_have_drifted() {
    let (database, mut conn) = videos(1, 1);
    assert_eq!(levels(&database, "columns", 0), ["ok"]);
    let (narrow, column) = match dialect() {
        Dialect::Postgres => (
            "ALTER TABLE videos_shards ALTER COLUMN views TYPE INTEGER",
            "views is integer",
        ),
        Dialect::Mysql => (
            "ALTER TABLE videos_shards MODIFY likes INT NOT NULL DEFAULT 0",
            "likes is int",
        ),
        _ => (
            "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = replace(sql, '`views` BIGINT', '`views` INTEGER') \
             WHERE name = 'videos_shards'; PRAGMA writable_schema = RESET",
            "views is integer",
        ),
    };
    conn.script(narrow);
    let found = findings(&database, "columns", 0);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_says(&found[0].1, column);
    assert_says(&found[0].1, "would be created as bigint");
    if dialect() != Dialect::Sqlite {
        conn.script(&found[0].2);
        assert_eq!(levels(&database, "columns", 0), ["ok"]);
    }
}

/// Columns and constraints that are not as they would be created are told if they bear on exactness, with the statements that repair them.
#[test]
fn rules_that_have_drifted() {
    let (database, mut conn) = videos(1, 1);
    assert_eq!(levels(&database, "rules", 0), ["ok"]);
    let shards = |views: &str, key: &str| {
        format!(
            "DROP TABLE videos_shards; CREATE TABLE videos_shards (id BIGINT NOT NULL, shard INTEGER NOT NULL, views BIGINT NOT NULL {views}, \
             likes INTEGER NOT NULL DEFAULT 0 CHECK (likes BETWEEN -9 AND 9), PRIMARY KEY (id, shard), FOREIGN KEY (id) REFERENCES videos (id) {key})"
        )
    };
    let (range, cascade) = (
        "CHECK (views BETWEEN -9 AND 9)",
        "ON UPDATE CASCADE ON DELETE CASCADE",
    );
    let (problem, ok) = (Some("problem"), Some("ok"));
    let of_foreign_key = problem.filter(|_| dialect() != Dialect::Sqlite);
    let of_check = Some("warning").filter(|_| dialect() != Dialect::Postgres);
    let (zero, seven) = (
        &*format!("DEFAULT 0 {range}"),
        &*format!("DEFAULT 7 {range}"),
    );
    let both = "ON UPDATE CASCADE ON DELETE CASCADE, FOREIGN KEY (id) REFERENCES videos (id)";
    for (views, key, says, level) in [
        (range, cascade, "no default", problem),
        (seven, cascade, "begins at 7", problem),
        (zero, cascade, "as it would be created", ok),
        ("DEFAULT 0", cascade, "views has no CHECK", of_check),
        (zero, "ON UPDATE CASCADE", "ON DELETE", of_foreign_key),
        (zero, "ON DELETE CASCADE", "ON UPDATE", of_foreign_key),
        (zero, both, "ON DELETE", of_foreign_key),
    ] {
        conn.script(&shards(views, key));
        let code = if level == problem { 3 } else { 0 };
        let found = findings(&database, "rules", code);
        let Some(level) = level else {
            assert_eq!(found[0].0, "ok", "{found:?}");
            continue;
        };
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, level, "{found:?}");
        assert_says(&found[0].1, says);
        if dialect() != Dialect::Sqlite && level != "ok" {
            conn.script(&found[0].2);
            assert_eq!(levels(&database, "rules", 0), ["ok"], "{found:?}");
        }
    }
}

#[test]
fn indexes_that_lack_and_that_are_too_many() {
    let (database, mut conn) = videos(1, 1);
    assert_eq!(levels(&database, "index", 0), ["warning", "warning"]);
    for (_, _, sql) in findings(&database, "index", 0).iter() {
        conn.script(sql);
    }
    assert_eq!(levels(&database, "index", 0), ["ok", "ok"]);
    conn.script("CREATE INDEX hot ON videos_shards (views)");
    let found = findings(&database, "index", 0);
    assert_eq!(found[2].0, "warning");
    conn.script(&found[2].2);
    assert_eq!(levels(&database, "index", 0), ["ok", "ok"]);
}

/// A name that the shell would take apart, or as several words.
#[test]
fn printed_commands_run_as_they_are() {
    let (database, mut conn) = empty_database();
    let name = "it's a $HOME; table";
    let quoted = match dialect() {
        Dialect::Mysql => format!("`{name}`"),
        _ => format!("\"{name}\""),
    };
    conn.script(&format!(
        "CREATE TABLE {quoted} (id BIGINT NOT NULL PRIMARY KEY, views BIGINT NOT NULL DEFAULT 0)"
    ));
    super::shard(&database, &mut conn, name, &["views"]);
    let shards = quoted.replace("table", "table_shards");
    conn.script(&format!(
        "INSERT INTO {quoted} (id) VALUES (1); INSERT INTO {shards} VALUES (1, 0, 5)"
    ));
    let verify = format!("verify \"{name}\" views '--recount=SELECT 1, 5' --after=x");
    session(&database, &format!("1: {verify} => no key"));

    // A table that is not sharded.
    let (database, mut conn) = empty_database();
    conn.script(&format!(
        "CREATE TABLE {quoted} (id BIGINT NOT NULL PRIMARY KEY, views BIGINT NOT NULL DEFAULT 0)"
    ));
    let (_, says) = super::run_noting(&database, &format!("fold \"{name}\""), 1);
    let command = says
        .split('`')
        .find(|part| part.starts_with("diesel-sharded generate"));
    let generate = command.unwrap().replace("COLUMN", "views --print");
    let printed = super::run_printed(&database, &generate);
    assert_says(&printed, "CREATE TABLE");
}
