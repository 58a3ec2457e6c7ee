//! `diesel-sharded setup` creates the library's own tables by its migrations, and records these.

use diesel::connection::SimpleConnection;
use diesel::migration::{CREATE_MIGRATIONS_TABLE, Migration, MigrationConnection, MigrationSource};
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_migrations::MigrationHarness;
use diesel_sharded::MIGRATIONS;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::{Integrity, MigrationText, migration_texts};
use diesel_sharded::model::TableName;
use diesel_sharded::operation::Migrations;
use diesel_sharded::retry::{Isolation, Transaction};

use crate::args::SetupArgs;
use crate::connection::{AnyConnection, Backend};
use crate::error::{Ended, Error};
use crate::finding::Finding;
use crate::live::LiveTables;
use crate::migration_files::{Files, find_folder};
use crate::output;
use crate::privilege::{Need, explained};
use crate::shell;

pub fn run(args: &SetupArgs, conn: &mut AnyConnection) -> Result<Ended, Error> {
    let migrations = match args.migration.integrity() {
        Integrity::Application => MIGRATIONS.without_triggers(),
        Integrity::Triggers => MIGRATIONS.without_foreign_key(),
        Integrity::ForeignKey => MIGRATIONS,
    };
    let texts = migration_texts(migrations, &conn.backend())?;
    if args.write {
        return write(texts, args);
    }
    let mut ran = vec![];
    let done = alone(conn, |conn| {
        ran.clear(); // an earlier attempt was rolled back
        run_pending(migrations, &texts, conn, &mut ran)
    });
    if done.is_ok() || conn.dialect() == Dialect::Mysql {
        for name in &ran {
            output::line(&format!("Ran {name}"))?;
        }
    }
    done.map_err(|error| reason(error, conn))?;
    if ran.is_empty() {
        output::line("All migrations of the library have run: nothing to do.")?;
    }
    Ok(Ended::Done)
}

fn reason(error: Error, conn: &mut AnyConnection) -> Error {
    let needs = ["SELECT", "INSERT"].map(|need| Need::of(need, TableName::new(RECORDS)));
    match explained(error, &needs, conn) {
        Error::Database(error) => {
            Error::Refused(format!("a migration of the library failed: {error}"))
        }
        error => error,
    }
}

/// Runs and records the migrations as the application's `run_pending_migrations` would, and appends the name of each to `ran`. Runs none
/// if something is wrong with any of them.
fn run_pending(
    migrations: Migrations,
    texts: &[MigrationText],
    conn: &mut AnyConnection,
    ran: &mut Vec<&'static str>,
) -> Result<(), Error> {
    let live = LiveTables::read(conn)?;
    let recorded = recorded(&live, conn)?;
    let found = texts.iter();
    let found = found.map(|text| LibraryMigration::new(text, &live, Some(&recorded)));
    let found: Vec<_> = found.collect();
    let wrong: Vec<_> = found.iter().filter_map(refused).collect();
    if !wrong.is_empty() {
        let wrong = wrong.join("\n");
        return Err(Error::Refused(format!("nothing was run. {wrong}")));
    }
    let pending = found.iter().filter(|found| found.state == State::Pending);
    let pending: Vec<_> = pending.map(|found| found.text.folder).collect();
    if pending.is_empty() {
        return Ok(());
    }
    conn.setup()?;
    // Tests the privilege to record before anything is created: MySQL would keep tables without a record.
    conn.batch_execute(&format!(
        "INSERT INTO {RECORDS} (version) SELECT version FROM {RECORDS} WHERE 1 = 0"
    ))?;
    let all: Vec<Box<dyn Migration<Backend>>> = migrations.migrations().map_err(failed)?;
    for migration in all {
        let name = migration.name().to_string();
        if let Some(pending) = pending.iter().find(|pending| **pending == name) {
            conn.run_migration(&*migration).map_err(failed)?;
            ran.push(pending);
        }
    }
    Ok(())
}

/// The reason why a migration stops `setup`, and what to do.
fn refused(migration: &LibraryMigration<'_>) -> Option<String> {
    match (migration.state, migration.text.tables) {
        (State::Complete | State::Pending, _) => None,
        (State::Unrecorded, [table, ..]) => Some(format!(
            "there is a table `{table}` already, and no record of the migration that creates it. If it was created by that migration's \
             text, record it: {}",
            record(migration.text.version)
        )),
        _ => Some(migration.finding().note()),
    }
}

fn failed(error: Box<dyn std::error::Error + Send + Sync>) -> DieselError {
    match error.downcast() {
        Ok(error) => *error,
        Err(error) => DieselError::QueryBuilderError(error),
    }
}

fn write(texts: Vec<MigrationText>, args: &SetupArgs) -> Result<Ended, Error> {
    let folder = find_folder(args.migration.migration_dir.as_deref())?;
    let (mut all_there, mut differ) = (true, false);
    for text in texts {
        let (up, down, own) = (text.up, text.down, folder.join(text.folder));
        let files = Files { up, down };
        if own.is_dir() {
            differ |= files.differ_from(&own)?;
        } else {
            files.write(&own)?;
            all_there = false;
        }
    }
    if all_there && !differ {
        output::line("All migrations of the library are written: nothing to do.")?;
    }
    Ok(Ended::left_over_if(differ))
}

/// How long MySQL waits for the lock. The other databases wait as long as their settings allow.
const SECONDS: u32 = 60;

/// The name of MySQL's lock, which is the server's, for one database. It has at most 64 characters, and MySQL has no `MD5` since 9.6.
const LOCK: &str = "CONCAT('diesel_sharded_setup_', LEFT(SHA2(COALESCE(DATABASE(), ''), 256), 40))";

/// Does `work` while no other process works in this function. The work is done as a whole or not at all, except on MySQL, where each
/// statement that creates a table commits.
pub fn alone<T>(
    conn: &mut AnyConnection,
    mut work: impl FnMut(&mut AnyConnection) -> Result<T, Error>,
) -> Result<T, Error> {
    if conn.dialect() == Dialect::Mysql {
        let is_held = lock(conn)?;
        let done = work(conn);
        if is_held {
            let released = ask(conn, &format!("RELEASE_LOCK({LOCK})"));
            return done.and_then(|done| Ok(released.map(|_| done)?));
        }
        return done;
    }
    // Each statement sees what was committed while it waited.
    let transaction = Transaction::new().isolation(Isolation::ReadCommitted);
    transaction.run(conn, |conn| {
        if conn.dialect() == Dialect::Postgres {
            let lock = i64::from_be_bytes(*b"diesel_s");
            conn.batch_execute(&format!("SELECT pg_advisory_xact_lock({lock})"))?;
        }
        work(conn)
    })
}

/// Acquires the lock, and returns false if there are no locks. A cluster may have none, but its nodes run statements that create tables one
/// after another.
fn lock(conn: &mut AnyConnection) -> Result<bool, Error> {
    match ask(conn, &format!("GET_LOCK({LOCK}, {SECONDS})")) {
        Ok(Some(held)) if held == "1" => Ok(true),
        Ok(_) => Err(Error::Refused(format!(
            "another `setup` has held the lock of this database for {SECONDS} s: wait until it ends, and run this again"
        ))),
        Err(DieselError::DatabaseError(_, refused)) if refused.message().contains("GET_LOCK") => {
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

fn ask(conn: &mut AnyConnection, function: &str) -> Result<Option<String>, DieselError> {
    conn.text(&format!("SELECT CAST({function} AS CHAR)"), &[])
}

/// Diesel's table of the migrations that have run.
pub const RECORDS: &str = "__diesel_schema_migrations";

/// One of the library's migrations, and its state in a database.
pub struct LibraryMigration<'t> {
    text: &'t MigrationText,
    state: State,
    /// Its missing tables, as far as this role may see.
    missing: Vec<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// It ran and is recorded.
    Complete,
    /// None of its tables exists, and it is not recorded.
    Pending,
    /// All of its tables exist without a record.
    Unrecorded,
    /// Some of its tables exist without a record, for example after an interrupted run where `CREATE TABLE` commits.
    Interrupted,
    /// It is recorded, but some of its tables are missing.
    Lost,
}

impl<'t> LibraryMigration<'t> {
    /// If the records cannot be read (`None`), existing tables count as recorded.
    pub fn new(text: &'t MigrationText, live: &LiveTables, recorded: Option<&[String]>) -> Self {
        let tables = text.tables.iter().copied();
        let missing = tables.filter(|table| !live.tables.contains_key(*table));
        let missing: Vec<_> = missing.collect();
        let is_recorded = match recorded {
            Some(recorded) => recorded.iter().any(|version| version == text.version),
            None => missing.is_empty(),
        };
        let state = match (is_recorded, missing.len()) {
            (true, 0) => State::Complete,
            (true, _) => State::Lost,
            (false, 0) => State::Unrecorded,
            (false, missing) if missing == text.tables.len() => State::Pending,
            (false, _) => State::Interrupted,
        };
        LibraryMigration {
            text,
            state,
            missing,
        }
    }

    /// What is wrong, if anything, and its remedy: statements, a command or a sentence, on separate lines.
    pub fn finding(&self) -> Finding {
        let check = "library tables";
        let (text, version) = (self.text, self.text.version);
        let (all, missing) = (text.tables.join(", "), self.missing.join(", "));
        let setup = shell::command(["setup"]);
        let write = format!(
            "run what is missing of {}/up.sql, which `{}` writes",
            text.folder,
            shell::command(["setup", "--write"])
        );
        match self.state {
            State::Complete => Finding::ok(check, all),
            State::Pending => {
                let needed = match text.tables.first() {
                    Some(&"diesel_sharded_idempotency_keys") => {
                        "idempotency keys and coalescers need it"
                    }
                    _ => "named counters and `resize` need them",
                };
                Finding::warning(check, format!("{all}: not there; {needed}"), setup)
            }
            State::Unrecorded => Finding::warning(
                check,
                format!("{all}: there, but their migration is not recorded, and would fail"),
                record(version),
            ),
            State::Interrupted => {
                let tables = text.tables.iter().copied();
                let there: Vec<_> = tables.filter(|t| !self.missing.contains(t)).collect();
                Finding::problem(
                    check,
                    format!(
                        "{missing}: not there, as far as this role may see, though others of the same migration are, which is not recorded"
                    ),
                    format!(
                        "if nothing is in {}: drop what is there, and run `{setup}`\nelse {write}, and then:\n{}",
                        there.join(", "),
                        record(version)
                    ),
                )
            }
            State::Lost => Finding::problem(
                check,
                format!(
                    "{missing}: not there, as far as this role may see, though the migration is recorded"
                ),
                match self.missing.len() == text.tables.len() {
                    true => format!("DELETE FROM {RECORDS} WHERE version = '{version}';\n{setup}"),
                    false => write,
                },
            ),
        }
    }
}

/// The statements that record a migration, even if none was recorded before.
fn record(version: &str) -> String {
    let words: Vec<_> = CREATE_MIGRATIONS_TABLE.split_whitespace().collect();
    format!(
        "{} INSERT INTO {RECORDS} (version) VALUES ('{version}');",
        words.join(" ")
    )
}

/// The recorded versions.
pub fn recorded(live: &LiveTables, conn: &mut AnyConnection) -> QueryResult<Vec<String>> {
    if !live.tables.contains_key(RECORDS) {
        return Ok(vec![]);
    }
    conn.texts(&format!("SELECT version FROM {RECORDS}"), &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_one_line() {
        let record = record("1");
        assert!(!record.contains('\n'), "{record}");
        assert!(
            record.starts_with("CREATE TABLE IF NOT EXISTS __diesel"),
            "{record}"
        );
        assert!(record.ends_with("VALUES ('1');"), "{record}");
        assert_eq!(record.matches(';').count(), 2, "{record}");
    }
}
