//! `setup`: the library's own tables, run or written, and recorded as the application would.

use std::fs;
use std::process::Stdio;

use diesel::connection::{Connection, SimpleConnection};
use diesel_migrations::{FileBasedMigrations, MigrationHarness};
use diesel_sharded::backend::{Dialect, ShardedBackend};
use diesel_sharded::described::migration_texts;
use diesel_sharded::{Counter, MIGRATIONS};
use diesel_sharded_tests::{Database, TestConnection};

use super::Conn;
use super::{Script, assert_says, command, empty_database, run, run_noting};

fn versions(conn: &mut Conn) -> Vec<String> {
    let mut versions: Vec<_> = conn.applied_migrations().unwrap();
    versions.sort();
    versions.iter().map(ToString::to_string).collect()
}

/// Runs `setup` in a folder.
fn setup_in(
    folder: &std::path::Path,
    database: &Database,
    arguments: &[&str],
    code: i32,
) -> String {
    let mut setup = command(folder);
    setup.env("DATABASE_URL", database.url()).arg("setup");
    let output = setup.args(arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

#[test]
fn setup_runs_what_the_application_would() {
    let (by_library, mut conn) = empty_database();
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    let expected = versions(&mut conn);
    drop((by_library, conn));

    let (database, mut conn) = empty_database();
    let (_, says) = run_noting(&database, &["resize", "--counter", "a", "--to=3"], 1);
    assert_says(&says, "`diesel-sharded setup`");
    let ran = run(&database, &["setup"], 0);
    assert_eq!(
        ran.matches("Ran 00000000000000-diesel-sharded-").count(),
        3,
        "{ran}"
    );
    assert_eq!(versions(&mut conn), expected);
    // The application, and the tool again, find nothing to do.
    assert!(!conn.has_pending_migration(MIGRATIONS).unwrap());
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    assert!(run(&database, &["setup"], 0).contains("nothing to do"));

    Counter::named("a").add(5, &mut conn).unwrap();
    run(&database, &["resize", "--counter", "a", "--to=3"], 0);
    assert_eq!(Counter::named("a").get(&mut conn), Ok(5));
    for migration in diesel::migration::MigrationSource::migrations(&MIGRATIONS)
        .unwrap()
        .iter()
        .rev()
    {
        conn.revert_migration(migration).unwrap();
    }
    assert!(run(&database, &["setup"], 0).contains("Ran"));
}

#[test]
fn setup_runs_what_is_pending() {
    let (database, mut conn) = empty_database();
    let all = diesel::migration::MigrationSource::migrations(&MIGRATIONS).unwrap();
    conn.pending_migrations(MIGRATIONS).unwrap(); // creates the table of versions
    conn.run_migration(&all[0]).unwrap();
    let ran = run(&database, &["setup"], 0);
    assert!(
        !ran.contains("01_counters") && ran.contains("02_batches"),
        "{ran}"
    );
    assert!(!conn.has_pending_migration(MIGRATIONS).unwrap());
}

#[test]
fn setup_without_foreign_key_is_the_same_version() {
    for form in ["--no-foreign-key", "--no-triggers"] {
        let (database, mut conn) = empty_database();
        run(&database, &["setup", form], 0);
        assert!(run(&database, &["setup"], 0).contains("nothing to do"));
        Counter::named("a").add(5, &mut conn).unwrap();
        assert_eq!(Counter::named("a").get(&mut conn), Ok(5));
        let orphan = conn.batch_execute("INSERT INTO diesel_sharded_counter_shards SELECT name, 9999, 1 FROM diesel_sharded_counters");
        orphan.unwrap();
    }
}

#[test]
fn written_migrations_are_those_that_setup_runs() {
    for form in [&[][..], &["--no-foreign-key"]] {
        let (database, mut conn) = empty_database();
        let folder = tempfile::tempdir().unwrap();
        let write = [&["--write", "--dir", "m"], form].concat();
        let written = setup_in(folder.path(), &database, &write, 0);
        assert_eq!(
            written
                .matches("Creating m/00000000000000-diesel-sharded-")
                .count(),
            6,
            "{written}"
        );
        assert!(setup_in(folder.path(), &database, &write, 0).contains("nothing to do"));

        let files = FileBasedMigrations::from_path(folder.path().join("m")).unwrap();
        conn.run_pending_migrations(files.clone()).unwrap();
        assert!(!conn.has_pending_migration(MIGRATIONS).unwrap());
        assert!(run(&database, &["setup"], 0).contains("nothing to do"));
        Counter::named("a").add(5, &mut conn).unwrap();
        assert_eq!(Counter::named("a").get(&mut conn), Ok(5));
        conn.revert_all_migrations(files.clone()).unwrap();
        conn.run_pending_migrations(files).unwrap();

        let changed = folder
            .path()
            .join("m/00000000000000-diesel-sharded-02_batches/up.sql");
        fs::write(changed, "-- nothing").unwrap();
        let says = setup_in(folder.path(), &database, &write, 3);
        assert_says(&says, "02_batches/up.sql is not what would be written now");
    }
}

/// Tables that came by the text alone: nothing runs before they are recorded.
#[test]
fn tables_without_a_record_are_named() {
    let (database, mut conn) = empty_database();
    conn.script("CREATE TABLE diesel_sharded_batches (coalescer INTEGER)");
    let (ran, says) = run_noting(&database, &["setup"], 1);
    assert_eq!(ran, "");
    assert_says(&says, "`diesel_sharded_batches` already");
    for table in ["diesel_sharded_counters", "__diesel_schema_migrations"] {
        let there = conn.batch_execute(&format!("SELECT 1 FROM {table}"));
        assert!(there.is_err(), "{table}");
    }
    let (_, record) = says.trim_end().split_once("record it: ").unwrap();
    conn.script(record);
    run(&database, &["setup"], 0);
    let mut other = Conn::connect(&database);
    assert!(!other.has_pending_migration(MIGRATIONS).unwrap());
}

/// The statement runs as it is printed where no migration was ever recorded.
#[test]
fn the_record_makes_its_own_table() {
    let (database, mut conn) = empty_database();
    for text in migration_texts(MIGRATIONS, &<Conn as Connection>::Backend::default()).unwrap() {
        conn.script(&text.up);
    }
    for (level, _, record) in super::doctor::findings(&database, "library tables", 0) {
        assert_eq!(level, "warning");
        conn.script(&record);
    }
    assert!(run(&database, &["setup"], 0).contains("nothing to do"));
    assert!(!conn.has_pending_migration(MIGRATIONS).unwrap());
}

/// As a run of MySQL's that was interrupted leaves it.
#[test]
fn a_part_of_a_migrations_tables_is_told_from_all_of_them() {
    let (database, mut conn) = empty_database();
    conn.script("CREATE TABLE diesel_sharded_counters (name INTEGER)");
    let (ran, says) = run_noting(&database, &["setup"], 1);
    assert_eq!(ran, "");
    assert_says(
        &says,
        "diesel_sharded_counter_shards, diesel_sharded_shard_numbers",
    );
    let found = super::doctor::findings(&database, "library tables", 3).remove(0);
    assert_eq!(found.0, "problem");
    assert!(found.2.contains("01_counters/up.sql"), "{found:?}");
    conn.script("DROP TABLE diesel_sharded_counters");
    run(&database, &["setup"], 0);
}

#[test]
fn recorded_tables_that_were_dropped_are_noticed() {
    let (database, mut conn) = empty_database();
    run(&database, &["setup"], 0);
    conn.script("DROP TABLE diesel_sharded_batches");
    let (_, says) = run_noting(&database, &["setup"], 1);
    assert_says(&says, "diesel_sharded_batches: not there");
    let remedy = super::doctor::findings(&database, "library tables", 3)
        .remove(1)
        .2;
    let (forget, command) = remedy.split_once('\n').unwrap();
    assert!(says.contains(forget), "{says}");
    conn.script(forget);
    let ran = super::run_printed(&database, command);
    assert_says(&ran, "Ran 00000000000000-diesel-sharded-02");
    assert!(run(&database, &["setup"], 0).contains("nothing to do"));

    conn.script("DROP TABLE diesel_sharded_shard_numbers");
    let (_, says) = run_noting(&database, &["setup"], 1);
    assert_says(&says, "01_counters/up.sql");
}

/// A migration that fails last leaves nothing of those before it, where a transaction takes tables back. (On MySQL the names of
/// indexes clash within one table alone.)
#[test]
fn a_setup_that_fails_changes_nothing() {
    let (database, mut conn) = empty_database();
    if <Conn as Connection>::Backend::default().dialect() == Dialect::Mysql {
        return;
    }
    conn.script(
        "CREATE TABLE t (id INTEGER); CREATE INDEX diesel_sharded_idempotency_keys_created ON t (id)",
    );
    let (ran, says) = run_noting(&database, &["setup"], 1);
    assert_eq!(ran, "");
    assert_says(&says, "idempotency_keys_created");
    for table in ["diesel_sharded_counters", "__diesel_schema_migrations"] {
        let there = conn.batch_execute(&format!("SELECT 1 FROM {table}"));
        assert!(there.is_err(), "{table}");
    }
    conn.script("DROP TABLE t");
    run(&database, &["setup"], 0);
}

#[test]
fn setups_at_once_all_succeed() {
    for _ in 0..3 {
        let (database, mut conn) = empty_database();
        let setup = |_| {
            super::on(&database, &["setup"])
                .stderr(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
        };
        let all: Vec<_> = (0..6).map(setup).collect();
        let ended = all
            .into_iter()
            .map(|setup| setup.unwrap().wait_with_output().unwrap());
        let mut ran = 0;
        for output in ended.collect::<Vec<_>>() {
            assert!(output.status.success(), "{output:?}");
            ran += String::from_utf8(output.stdout)
                .unwrap()
                .matches("Ran ")
                .count();
        }
        assert_eq!(ran, 3);
        assert!(!conn.has_pending_migration(MIGRATIONS).unwrap());
    }
}
