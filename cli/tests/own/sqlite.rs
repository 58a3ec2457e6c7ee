//! The tool on SQLite; and what has nothing to do with a database.

use std::fs;

use super::cases::{self, Script, assert_says, command, run};
use diesel_sharded_tests::Database;

#[test]
fn a_database_is_found_as_the_diesel_cli_finds_it() {
    let (database, _conn) = cases::empty_database();
    let folder = tempfile::tempdir().unwrap();
    let status = || {
        let mut status = command(folder.path());
        status.arg("status");
        status
    };
    let none = status().output().unwrap();
    assert_eq!(none.status.code(), Some(1));
    let says = String::from_utf8_lossy(&none.stderr);
    assert_says(&says, "set DATABASE_URL");

    let there = status().arg("--database-url").arg(database.url()).output();
    assert!(there.unwrap().status.success());
    fs::write(
        folder.path().join(".env"),
        format!("DATABASE_URL={}\n", database.url()),
    )
    .unwrap();
    assert!(status().output().unwrap().status.success());

    for url in ["nowhere.db", "oracle://x/y"] {
        let no = status().env("DATABASE_URL", url).output().unwrap();
        assert_eq!(no.status.code(), Some(1), "{url}");
    }
    assert!(!folder.path().join("nowhere.db").exists());
}

#[test]
fn addresses_of_other_tools_are_taken() {
    let (database, _conn) = cases::videos(1, 1);
    for scheme in ["sqlite:", "sqlite://", "file:"] {
        let url = format!("{scheme}{}", database.url());
        let mut fold = command(&std::env::temp_dir());
        fold.args(["fold", "--dry-run", "--database-url", &url]);
        let folded = fold.output().unwrap();
        let says = String::from_utf8_lossy(&folded.stdout);
        assert_eq!(
            says, "videos: 1 row to fold (views +1, likes +2)\n",
            "{url}"
        );
    }
}

#[test]
fn bad_lines_of_dot_env_are_warnings() {
    let (database, _conn) = cases::empty_database();
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path().join("src");
    fs::create_dir(&below).unwrap();
    let text = format!("OTHER=1\nnot a variable\nDATABASE_URL={}\n", database.url());
    fs::write(folder.path().join(".env"), text).unwrap();
    let status = command(&below).arg("status").output().unwrap();
    assert_eq!(status.status.code(), Some(0), "{status:?}");
    let says = String::from_utf8(status.stderr).unwrap();
    assert!(says.starts_with("warning: "), "{says}");
    assert!(
        says.ends_with(".env, line 2: not NAME=VALUE, left out\n"),
        "{says}"
    );
    assert_eq!(says.lines().count(), 1, "{says}");

    // Each of these is one bad line, and the later ones count.
    for bad in [
        &b"A=\xff\n"[..],
        b"A='x\n",
        b"A='x\nB='y'\n",
        b"A='it\nB='\n",
    ] {
        let mut text = [b"\xef\xbb\xbfDATABASE_URL=".to_vec(), database.url().into()].concat();
        text = [b"OTHER=1\n", bad, &text[3..], b"\n"].concat();
        fs::write(below.join(".env"), &text).unwrap();
        let status = command(&below).arg("status").output().unwrap();
        assert_eq!(status.status.code(), Some(0), "{status:?}");
        let says = String::from_utf8(status.stderr).unwrap();
        assert_says(&says, ".env, line 2: ");
    }
    // As some editors begin a file.
    let text = [b"\xef\xbb\xbfDATABASE_URL=", database.url().as_bytes()].concat();
    fs::write(below.join(".env"), text).unwrap();
    let status = command(&below).arg("status").output().unwrap();
    assert_eq!((status.status.code(), status.stderr), (Some(0), vec![]));
    let text = format!("\u{feff}DATABASE_URL={}", database.url());
    let text: Vec<_> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    fs::write(below.join(".env"), text).unwrap();
    let status = command(&below).arg("status").output().unwrap();
    let says = String::from_utf8(status.stderr).unwrap();
    assert_says(&says, ".env is UTF-16");
    assert_says(&says, "set DATABASE_URL");
}

/// One message names the forms that work, and where the address came from.
#[test]
fn addresses_that_lead_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let says = |status: &mut std::process::Command| {
        let output = status.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let says = String::from_utf8(output.stderr).unwrap();
        for form in ["postgres://", "mysql://", "sqlite:"] {
            assert!(says.contains(form), "{says}");
        }
        assert_eq!(says.lines().count(), 1, "{says}");
        says
    };
    let status = || {
        let mut status = command(folder.path());
        status.arg("status");
        status
    };
    for address in [
        "",
        "postgres",
        "foo://x",
        "sqlite:",
        "sqlite:nowhere.db",
        " ",
    ] {
        let by_option = says(status().arg("--database-url").arg(address));
        assert_says(&by_option, "--database-url");
        let by_environment = says(status().env("DATABASE_URL", address));
        assert_says(&by_environment, "the environment");
        fs::write(
            folder.path().join(".env"),
            format!("DATABASE_URL='{address}'\n"),
        )
        .unwrap();
        let by_file = says(&mut status());
        assert_says(&by_file, "/.env");
        fs::remove_file(folder.path().join(".env")).unwrap();
    }
    fs::write(
        folder.path().join("text"),
        "a text, which is no database at all\n",
    )
    .unwrap();
    assert!(says(status().env("DATABASE_URL", "text")).contains("no SQLite database"));
    for address in [
        "foo://me:secret@host/db",
        "postgres:me:secret@host/db",
        "postgres:/me:secret@host",
    ] {
        let says = says(status().env("DATABASE_URL", address));
        assert!(!says.contains("secret"), "{says}");
    }
    // libpq shows what it cannot read.
    let mut status = status();
    let output = status
        .env("DATABASE_URL", "postgres://me:secret%zz@host/db")
        .output()
        .unwrap();
    let says = String::from_utf8(output.stderr).unwrap();
    assert_says(&says, "from DATABASE_URL in the environment");
    assert!(!says.contains("secret"), "{says}");
}

#[test]
fn what_needs_no_database() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = command(folder.path()).args(["completions", shell]).output();
        let script = script.unwrap();
        assert!(script.status.success(), "{shell}");
        assert!(
            String::from_utf8_lossy(&script.stdout).contains("diesel-sharded"),
            "{shell}"
        );
    }
    let help = command(folder.path()).arg("--help").output().unwrap();
    assert!(String::from_utf8_lossy(&help.stdout).contains("Exit codes:"));
    let wrong = command(folder.path()).args(["fold", "--batch=0"]).output();
    assert_eq!(wrong.unwrap().status.code(), Some(2));
}

#[test]
fn keys_and_fields_of_sqlites_own_types() {
    let (database, mut conn) = cases::empty_database();
    conn.script(
        "CREATE TABLE tags (tag TEXT COLLATE NOCASE PRIMARY KEY, day DATE, uses BIGINT NOT NULL DEFAULT 0, \
             weight DOUBLE NOT NULL DEFAULT 0) WITHOUT ROWID;
         INSERT INTO tags (tag) VALUES ('a'), ('B'), ('c');
         CREATE TABLE t (id INTEGER PRIMARY KEY, n BIGINT NOT NULL, f REAL NOT NULL, \
             twice BIGINT NOT NULL GENERATED ALWAYS AS (n * 2) STORED);
         CREATE VIRTUAL TABLE words USING fts5 (word);
         CREATE TABLE gone (id INTEGER); CREATE VIEW broken AS SELECT * FROM gone; DROP TABLE gone",
    );
    cases::refused(&database, &["t", "f"], "`real`");
    cases::refused(
        &database,
        &["t", "n", "--shards-table=Words"],
        "choose another name",
    );
    cases::refused(&database, &["t", "twice"], "generated");
    cases::refused(&database, &["words", "word"], "virtual table");
    cases::refused(&database, &["broken", "id"], "a view");
    let printed = run(&database, &["generate", "tags", "uses", "--print"], 0);
    assert_says(&printed, "`tag` TEXT COLLATE \"NOCASE\" NOT NULL");
    cases::shard(&database, &mut conn, "tags", &["uses", "weight"]);
    conn.script("INSERT INTO tags_shards SELECT tag, 3, 2, 0.5 FROM tags");
    let folded = run(&database, &["fold", "tags", "--keep-shards=0"], 0);
    assert_says(
        &folded,
        "3 rows folded (uses +6, weight +1.5); 3 empty shards removed",
    );
}

#[test]
fn keys_that_a_recount_gives_as_texts_are_the_same_keys() {
    let (database, mut conn) = cases::videos(30, 1);
    conn.script(
        "CREATE TABLE events (video_id TEXT NOT NULL); INSERT INTO events SELECT id FROM videos",
    );
    let recount = "SELECT video_id, COUNT(*) FROM events GROUP BY video_id";
    let arguments = [
        "verify",
        "videos",
        "views",
        "--batch=7",
        "--recount",
        recount,
    ];
    let compared = run(&database, &arguments, 0);
    assert_says(&compared, "30 rows compared, 0 differ");
}

/// A table `t` with a key of this type, and rows with these keys, each of which has 7 on a shard.
fn counted_rows(key: &str, keys: &str) -> Database {
    let (database, mut conn) = cases::empty_database();
    conn.script(&format!(
        "CREATE TABLE t (id {key} PRIMARY KEY, n BIGINT NOT NULL DEFAULT 0); INSERT INTO t (id) VALUES {keys}"
    ));
    cases::shard(&database, &mut conn, "t", &["n"]);
    conn.script("INSERT INTO t_shards SELECT id, 0, 7 FROM t");
    database
}

/// SQLite's columns take values of any type: keys that are no integers in a column of integers are compared as they are.
#[test]
fn keys_of_another_type_than_their_column() {
    let database = counted_rows("BIGINT", "(1), (2.5), (3), ('abc'), ('it''s')");
    for batch in ["--batch=1", "--batch=2", "--batch=1000"] {
        let verify = [
            "verify",
            "t",
            "n",
            "--recount",
            "SELECT id, 7 FROM t",
            batch,
        ];
        let compared = run(&database, &verify, 0);
        assert_eq!(
            compared,
            "t.n: 5 rows compared, 0 differ from the recount\n"
        );
    }
    let folded = run(&database, &["fold", "t", "--batch=2"], 0);
    assert_says(&folded, "5 rows folded (n +35)");
}

/// Bytes that are read as a text, and are not found by it: no command goes on for ever.
#[test]
fn a_key_behind_which_no_row_is_found() {
    let database = counted_rows("TEXT", "('a'), (x'62'), (x'63')");
    let verify = [
        "verify",
        "t",
        "n",
        "--recount",
        "SELECT id, 7 FROM t",
        "--batch=2",
    ];
    let fold = ["fold", "t", "--batch=2"];
    for arguments in [&verify[..], &fold] {
        let (_, says) = cases::run_noting(&database, arguments, 1);
        assert_says(&says, "does not come back as it is read");
    }
}

#[test]
fn a_suppressed_update_is_told() {
    cases::fold::what_suppresses_updates_is_told(&[
        "CREATE TRIGGER resist BEFORE UPDATE ON videos WHEN OLD.id = 2 BEGIN SELECT RAISE(IGNORE); END",
    ]);
}

#[test]
fn status_tells_which_triggers_are_missing() {
    let (database, mut conn) = cases::videos(2, 1);
    run(&database, &["status"], 0);
    conn.script("DROP TRIGGER videos_shards_update; DROP TRIGGER videos_shards_insert");
    let shown = run(&database, &["status"], 3);
    assert_says(&shown, "Triggers of videos_shards are missing");
    let json = run(&database, &["status", "--json"], 3);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let sql = json[0]["missing_triggers"].as_str().unwrap();
    assert_eq!(sql.matches("CREATE TRIGGER").count(), 2, "{sql}");
    conn.script(sql);
    run(&database, &["status"], 0);
}

#[test]
fn advise_says_that_sqlite_keeps_no_statistics() {
    let (database, _conn) = cases::empty_database();
    let shown = run(&database, &["advise"], 0);
    assert!(
        shown.contains("SQLite keeps no statistics") && shown.contains("Coalescer"),
        "{shown}"
    );
    let json = run(&database, &["advise", "--json"], 0);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["columns"], serde_json::json!([]));
}
