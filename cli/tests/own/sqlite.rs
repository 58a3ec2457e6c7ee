//! The tool on SQLite; and what has nothing to do with a database.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::cases::{self, Script, assert_says, at, command, ended, json_of, run, run_at};

#[test]
fn sessions() {
    cases::sessions(include_str!("../sessions/sqlite.txt"));
}

/// `status` in a folder, by a file `.env` of this text if one is given; its code and what it notes.
fn status_in(folder: &Path, dot_env: Option<&[u8]>) -> (Option<i32>, String) {
    if let Some(text) = dot_env {
        fs::write(folder.join(".env"), text).unwrap();
    }
    let (code, _, noted) = ended(command(folder).arg("status").output().unwrap());
    (code, noted)
}

#[test]
fn a_database_is_found_as_the_diesel_cli_finds_it() {
    let (database, _conn) = cases::empty_database();
    let folder = tempfile::tempdir().unwrap();
    let (code, says) = status_in(folder.path(), None);
    assert_eq!(code, Some(1));
    assert_says(&says, "set DATABASE_URL");

    let there = command(folder.path())
        .args(["status", "--database-url", database.url()])
        .output();
    assert!(there.unwrap().status.success());
    let text = format!("DATABASE_URL={}\n", database.url());
    let (code, says) = status_in(folder.path(), Some(text.as_bytes()));
    assert_eq!(code, Some(0), "{says}");

    for url in ["nowhere.db", "oracle://x/y"] {
        let no = at(url, folder.path(), "status").output().unwrap();
        assert_eq!(no.status.code(), Some(1), "{url}");
    }
    assert!(!folder.path().join("nowhere.db").exists());
}

#[test]
fn addresses_of_other_tools_are_taken() {
    let (database, _conn) = cases::videos(1, 1);
    for scheme in ["sqlite:", "sqlite://", "file:"] {
        let url = format!("{scheme}{}", database.url());
        let (folded, _) = run_at(&url, "fold --dry-run", 0);
        assert_eq!(folded, "videos: 1 row to fold (views +1, likes +2)\n");
    }
}

/// A line that makes no sense is a warning that does not show it. What is before it counts.
#[test]
fn a_bad_line_of_dot_env_is_a_warning() {
    let (database, _conn) = cases::empty_database();
    let folder = tempfile::tempdir().unwrap();
    let below = folder.path().join("src");
    fs::create_dir(&below).unwrap();
    let variable = format!("DATABASE_URL={}\n", database.url());
    for bad in ["a secret\n", "A='x\nB=1\n"] {
        let text = format!("\n{variable}{bad}");
        fs::write(folder.path().join(".env"), text).unwrap();
        let (code, says) = status_in(&below, None);
        assert_eq!(code, Some(0), "{says}");
        assert!(says.starts_with("warning: "), "{says}");
        assert_says(&says, ".env, line 3: not NAME=VALUE; it and what is behind");
        assert_eq!(says.lines().count(), 1, "{says}");
        assert!(!says.contains("secret"), "{says}");
    }
    // As some editors begin and end a file.
    let text = format!("\u{feff}{} ", variable.trim_end());
    let status = status_in(&below, Some(text.as_bytes()));
    assert_eq!(status, (Some(0), String::new()));
    let (_, says) = status_in(&below, Some(b"A=\xff\n"));
    assert_says(&says, ".env cannot be read: ");
    assert_says(&says, "set DATABASE_URL");
}

/// One message names the forms that work, and where the address came from.
#[test]
fn addresses_that_lead_nowhere() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |status: &mut Command| {
        let (code, _, says) = ended(status.output().unwrap());
        assert_eq!(code, Some(1), "{says}");
        for form in ["postgres://", "mysql://", "sqlite:"] {
            assert_says(&says, form);
        }
        assert_eq!(says.lines().count(), 1, "{says}");
        says
    };
    let status = || {
        let mut status = command(folder.path());
        status.arg("status");
        status
    };
    let dot_env = folder.path().join(".env");
    for address in [
        "",
        "postgres",
        "foo://x",
        "sqlite:",
        "sqlite:nowhere.db",
        " ",
    ] {
        let by_option = refused(status().arg("--database-url").arg(address));
        assert_says(&by_option, "--database-url");
        let by_environment = refused(status().env("DATABASE_URL", address));
        assert_says(&by_environment, "the environment");
        fs::write(&dot_env, format!("DATABASE_URL='{address}'\n")).unwrap();
        assert_says(&refused(&mut status()), "/.env");
        fs::remove_file(&dot_env).unwrap();
    }
    let text = "a text, which is no database at all\n";
    fs::write(folder.path().join("text"), text).unwrap();
    let says = refused(status().env("DATABASE_URL", "text"));
    assert_says(&says, "no SQLite database");
    for address in [
        "foo://me:secret@host/db",
        "postgres:me:secret@host/db",
        "postgres:/me:secret@host",
    ] {
        let says = refused(status().env("DATABASE_URL", address));
        assert!(!says.contains("secret"), "{says}");
    }
    // libpq shows what it cannot read.
    let (_, says) = run_at("postgres://me:secret%zz@host/db", "status", 1);
    assert_says(&says, "from DATABASE_URL in the environment");
    assert!(!says.contains("secret"), "{says}");
}

#[test]
fn what_needs_no_database() {
    let folder = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = command(folder.path()).args(["completions", shell]).output();
        let (code, script, _) = ended(script.unwrap());
        assert_eq!(code, Some(0), "{shell}");
        assert_says(&script, "diesel-sharded");
    }
    let help = command(folder.path()).arg("--help").output();
    assert_says(&ended(help.unwrap()).1, "Exit codes:");
    let wrong = command(folder.path()).args(["fold", "--batch=0"]).output();
    assert_eq!(wrong.unwrap().status.code(), Some(2));
}

#[test]
fn status_tells_which_triggers_are_missing() {
    let (database, mut conn) = cases::videos(2, 1);
    run(&database, "status", 0);
    conn.script("DROP TRIGGER videos_shards_update; DROP TRIGGER videos_shards_insert");
    let shown = run(&database, "status", 3);
    assert_says(&shown, "Triggers of videos_shards are missing");
    let json = json_of(&database, "status --json", 3);
    let sql = json[0]["missing_triggers"].as_str().unwrap();
    assert_eq!(sql.matches("CREATE TRIGGER").count(), 2, "{sql}");
    conn.script(sql);
    run(&database, "status", 0);
}
