//! `setup`: the library's own tables, run or written, and recorded as the application would.

use std::fs;

use diesel::connection::{Connection, SimpleConnection};
use diesel::migration::MigrationSource;
use diesel_migrations::{FileBasedMigrations, MigrationHarness};
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::migration_texts;
use diesel_sharded::{Counter, MIGRATIONS};
use diesel_sharded_tests::{Database, TestConnection};

use super::Conn;
use super::doctor::findings;
use super::{
    Script, assert_says, dialect, empty_database, end, run, run_in, run_noting, session, spawn,
};

fn versions(conn: &mut Conn) -> Vec<String> {
    let mut versions: Vec<_> = conn.applied_migrations().unwrap();
    versions.sort();
    versions.iter().map(ToString::to_string).collect()
}

/// All migrations have run, and the tool finds nothing to do.
fn assert_complete(database: &Database, conn: &mut Conn) {
    assert!(!conn.has_pending_migration(MIGRATIONS).unwrap());
    session(database, "0: setup => nothing to do");
}

/// A named counter counts.
fn assert_counts(conn: &mut Conn) {
    Counter::named("a").add(5, conn).unwrap();
    assert_eq!(Counter::named("a").get(conn), Ok(5));
}

/// Neither the library's tables nor the record of migrations are there.
fn assert_nothing_ran(conn: &mut Conn) {
    for table in ["diesel_sharded_counters", "__diesel_schema_migrations"] {
        let there = conn.batch_execute(&format!("SELECT 1 FROM {table}"));
        assert!(there.is_err(), "{table}");
    }
}

#[test]
fn setup_runs_what_the_application_would() {
    let (by_library, mut conn) = empty_database();
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    let expected = versions(&mut conn);
    drop((by_library, conn));

    let (database, mut conn) = empty_database();
    let (_, says) = run_noting(&database, "resize --counter a --to=3", 1);
    assert_says(&says, "`diesel-sharded setup`");
    let ran = run(&database, "setup", 0);
    let ran = ran.matches("Ran 00000000000000-diesel-sharded-");
    assert_eq!(ran.count(), 2);
    assert_eq!(versions(&mut conn), expected);
    // The application, and the tool again, find nothing to do.
    conn.run_pending_migrations(MIGRATIONS).unwrap();
    assert_complete(&database, &mut conn);

    assert_counts(&mut conn);
    run(&database, "resize --counter a --to=3", 0);
    assert_eq!(Counter::named("a").get(&mut conn), Ok(5));
    for migration in MIGRATIONS.migrations().unwrap().iter().rev() {
        conn.revert_migration(migration).unwrap();
    }
    session(&database, "0: setup => Ran");
}

#[test]
fn setup_runs_what_is_pending() {
    let (database, mut conn) = empty_database();
    let all = MIGRATIONS.migrations().unwrap();
    conn.pending_migrations(MIGRATIONS).unwrap(); // creates the table of versions
    conn.run_migration(&all[0]).unwrap();
    let ran = run(&database, "setup", 0);
    assert!(
        !ran.contains("01_counters") && ran.contains("02_idempotency_keys"),
        "{ran}"
    );
    assert!(!conn.has_pending_migration(MIGRATIONS).unwrap());
}

#[test]
fn setup_without_foreign_key_is_the_same_version() {
    for form in ["--no-foreign-key", "--no-triggers"] {
        let (database, mut conn) = empty_database();
        run(&database, &format!("setup {form}"), 0);
        assert_complete(&database, &mut conn);
        assert_counts(&mut conn);
        conn.script("INSERT INTO diesel_sharded_counter_shards SELECT name, 9999, 1 FROM diesel_sharded_counters");
    }
}

#[test]
fn written_migrations_are_those_that_setup_runs() {
    for form in ["", "--no-foreign-key"] {
        let (database, mut conn) = empty_database();
        let folder = tempfile::tempdir().unwrap();
        let write = format!("setup --write --migration-dir m {form}");
        let written = run_in(folder.path(), &database, &write, 0);
        let written = written.matches("Creating m/00000000000000-diesel-sharded-");
        assert_eq!(written.count(), 4);
        let again = run_in(folder.path(), &database, &write, 0);
        assert_says(&again, "nothing to do");

        let files = FileBasedMigrations::from_path(folder.path().join("m")).unwrap();
        conn.run_pending_migrations(files.clone()).unwrap();
        assert_complete(&database, &mut conn);
        assert_counts(&mut conn);
        conn.revert_all_migrations(files.clone()).unwrap();
        conn.run_pending_migrations(files).unwrap();

        let changed = folder
            .path()
            .join("m/00000000000000-diesel-sharded-02_idempotency_keys/up.sql");
        fs::write(changed, "-- nothing").unwrap();
        let says = run_in(folder.path(), &database, &write, 3);
        assert_says(
            &says,
            "02_idempotency_keys/up.sql is not what would be written now",
        );
    }
}

/// Tables that came by the text alone: nothing runs before they are recorded.
#[test]
fn tables_without_a_record_are_named() {
    let (database, mut conn) = empty_database();
    conn.script("CREATE TABLE diesel_sharded_idempotency_keys (coalescer INTEGER)");
    let (ran, says) = run_noting(&database, "setup", 1);
    assert_eq!(ran, "");
    assert_says(&says, "`diesel_sharded_idempotency_keys` already");
    assert_nothing_ran(&mut conn);
    let (_, record) = says.trim_end().split_once("record it: ").unwrap();
    conn.script(record);
    run(&database, "setup", 0);
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
    for (level, _, record) in findings(&database, "library tables", 0) {
        assert_eq!(level, "warning");
        conn.script(&record);
    }
    assert_complete(&database, &mut conn);
}

#[test]
fn recorded_tables_that_were_dropped_are_noticed() {
    let (database, mut conn) = empty_database();
    run(&database, "setup", 0);
    conn.script("DROP TABLE diesel_sharded_idempotency_keys");
    let (_, says) = run_noting(&database, "setup", 1);
    assert_says(&says, "diesel_sharded_idempotency_keys: not there");
    let remedy = findings(&database, "library tables", 3).remove(1).2;
    let (forget, command) = remedy.split_once('\n').unwrap();
    assert!(says.contains(forget), "{says}");
    conn.script(forget);
    let ran = super::run_printed(&database, command);
    assert_says(&ran, "Ran 00000000000000-diesel-sharded-02");
    assert_complete(&database, &mut conn);

    conn.script("DROP TABLE diesel_sharded_shard_numbers");
    session(&database, "1: setup => 01_counters/up.sql");
}

/// A migration that fails last leaves nothing of those before it, where a transaction takes tables back. (On MySQL the names of
/// indexes clash within one table alone.)
#[test]
fn a_setup_that_fails_changes_nothing() {
    let (database, mut conn) = empty_database();
    if dialect() == Dialect::Mysql {
        return;
    }
    conn.script(
        "CREATE TABLE t (id INTEGER); CREATE INDEX diesel_sharded_idempotency_keys_expires ON t (id)",
    );
    let (ran, says) = run_noting(&database, "setup", 1);
    assert_eq!(ran, "");
    assert_says(&says, "idempotency_keys_expires");
    assert_nothing_ran(&mut conn);
    conn.script("DROP TABLE t");
    run(&database, "setup", 0);
}

#[test]
fn setups_at_once_all_succeed() {
    for _ in 0..3 {
        let (database, mut conn) = empty_database();
        let all: Vec<_> = (0..6).map(|_| spawn(&database, "setup")).collect();
        let mut ran = 0;
        for setup in all {
            let (code, printed, says) = end(setup);
            assert_eq!(code, Some(0), "{says}");
            ran += printed.matches("Ran ").count();
        }
        assert_eq!(ran, 2);
        assert!(!conn.has_pending_migration(MIGRATIONS).unwrap());
    }
}
