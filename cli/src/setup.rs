//! `diesel-sharded setup`: the library's own tables, by its migrations.

use diesel::connection::SimpleConnection;
use diesel::migration::{Migration, MigrationConnection, MigrationSource};
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_migrations::MigrationHarness;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::{MigrationText, migration_texts};
use diesel_sharded::model::TableName;
use diesel_sharded::operation::Migrations;
use diesel_sharded::retry::{Isolation, Transaction};
use diesel_sharded::{Error as ShardedError, MIGRATIONS};

use crate::args::SetupArgs;
use crate::connection::{AnyConnection, Backend};
use crate::error::Error;
use crate::exit::Ended;
use crate::library_tables::{LibraryMigration, RECORDS, State, recorded};
use crate::live::LiveTables;
use crate::migration_files::{Files, Written, find_folder, write_once};
use crate::output;
use crate::privilege::{Need, explained};

pub fn run(args: &SetupArgs, conn: &mut AnyConnection) -> Result<Ended, Error> {
    let migrations = match (args.no_triggers, args.no_foreign_key) {
        (true, _) => MIGRATIONS.without_triggers(),
        (false, true) => MIGRATIONS.without_foreign_key(),
        (false, false) => MIGRATIONS,
    };
    let texts = migration_texts(migrations, &conn.backend())?;
    if args.write {
        return write(texts, args);
    }
    let mut ran = vec![];
    let done = alone(conn, |conn| {
        ran.clear(); // by an attempt that was rolled back
        run_pending(migrations, &texts, conn, &mut ran)
    });
    if done.is_ok() || conn.dialect() == Dialect::Mysql {
        for name in &ran {
            output::line(&format!("Ran {name}"))?;
        }
    }
    done.map_err(|error| reason(error, args, conn))?;
    if ran.is_empty() {
        output::line("All migrations of the library have run: nothing to do.")?;
    }
    Ok(Ended::Done)
}

fn reason(error: Error, args: &SetupArgs, conn: &mut AnyConnection) -> Error {
    let records = TableName::new(RECORDS);
    let defines = match (conn.dialect(), args.no_triggers, args.no_foreign_key) {
        (Dialect::Mysql, false, false) => &["CREATE", "REFERENCES"][..],
        (Dialect::Mysql, false, true) => &["CREATE", "TRIGGER"],
        _ => &[],
    };
    let needs = ["SELECT", "INSERT"].iter().chain(defines);
    let needs: Vec<_> = needs.map(|need| Need::of(need, records)).collect();
    match explained(error, &needs, conn) {
        Error::Database(error) => Error::Migration(error.to_string()),
        error => error,
    }
}

/// Runs and records them as the application's own `run_pending_migrations` would, and adds the name of each that `ran`. None is run if
/// something is wrong with any of them.
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
        return Err(Error::LibraryTables(wrong));
    }
    let pending = found.iter().filter(|found| found.state == State::Pending);
    let pending: Vec<_> = pending.map(|found| found.text.folder).collect();
    if pending.is_empty() {
        return Ok(());
    }
    conn.setup()?;
    may_record(conn)?;
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

/// Asks for the privilege to record before anything is created: MySQL would keep tables without a record.
fn may_record(conn: &mut AnyConnection) -> QueryResult<()> {
    conn.batch_execute(&format!(
        "INSERT INTO {RECORDS} (version) SELECT version FROM {RECORDS} WHERE 1 = 0"
    ))
}

/// Why a migration stops `setup`, and what to do.
fn refused(migration: &LibraryMigration<'_>) -> Option<String> {
    let note = migration.note()?;
    match (migration.state, migration.text.tables) {
        (State::Pending, _) => None,
        (State::Unrecorded, [table, ..]) => Some(format!(
            "there is a table `{table}` already, and no record of the migration that creates it. If it was created by that migration's \
             text, record it: {}",
            note.remedy
        )),
        _ => Some(note.lines()),
    }
}

fn failed(error: Box<dyn std::error::Error + Send + Sync>) -> Error {
    match error.downcast::<DieselError>() {
        Ok(error) => Error::Database(ShardedError::from(*error)),
        Err(error) => Error::Migration(error.to_string()),
    }
}

fn write(texts: Vec<MigrationText>, args: &SetupArgs) -> Result<Ended, Error> {
    let folder = find_folder(args.migration_dir.as_deref())?;
    let mut ended = Ended::Done;
    let mut all_there = true;
    for text in texts {
        let files = Files {
            up: text.up,
            down: text.down,
        };
        match write_once(&files, &folder.join(text.folder))? {
            Written::Now => all_there = false,
            Written::Before => {}
            Written::Otherwise => ended = Ended::LeftOver,
        }
    }
    if all_there && ended == Ended::Done {
        output::line("All migrations of the library are written: nothing to do.")?;
    }
    Ok(ended)
}

/// How long MySQL waits for the lock; the others wait as long as their settings let them.
const SECONDS: u32 = 60;

/// Its lock, for the database alone. Names of locks have 64 characters at most, and MySQL from 9.6 on has no `MD5`.
const LOCK: &str = "CONCAT('diesel_sharded_setup_', LEFT(SHA2(COALESCE(DATABASE(), ''), 256), 40))";

/// Does this work while no other process does any by this function. It is done as a whole or not at all, except on MySQL, where each
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

/// Whether the lock is held now. A cluster may have none; its nodes run statements that create tables one after another.
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
