//! Support for every example: a connection to whichever database is configured, the library's tables, and threads.
#![allow(dead_code, unused_imports, reason = "no example uses all of it")]

mod connection;

use std::process::ExitCode;
use std::thread;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded::MIGRATIONS;

pub use self::connection::{AnyConnection, Result, connect, pool};

/// Runs an example, which returns whether nothing was lost. Drops its tables before, as an interrupted run may have left some, and after.
pub fn run(
    example: &str,
    tables: &[&str],
    work: impl FnOnce(&str, &mut AnyConnection) -> Result<bool>,
) -> Result<ExitCode> {
    let url = database_url(example);
    let conn = &mut connect(&url)?;
    drop_tables(tables, conn)?;
    let all_right = work(&url, conn);
    drop_tables(tables, conn)?;
    Ok(match all_right? {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn drop_tables(tables: &[&str], conn: &mut AnyConnection) -> QueryResult<()> {
    let mut drops = tables
        .iter()
        .map(|table| format!("DROP TABLE IF EXISTS {table}"));
    drops.try_for_each(|drop| conn.batch_execute(&drop))
}

/// Runs `work` on the library's own tables, and leaves none behind where there were none. An application has
/// `conn.run_pending_migrations(MIGRATIONS)?` instead, and keeps them.
pub fn with_library_tables<T>(
    conn: &mut AnyConnection,
    work: impl FnOnce(&mut AnyConnection) -> Result<T>,
) -> Result<T> {
    let ran = conn.pending_migrations(MIGRATIONS)?;
    for migration in &ran {
        conn.run_migration(migration)?;
    }
    let done = work(conn);
    for migration in ran.iter().rev() {
        conn.revert_migration(migration)?;
    }
    if conn.applied_migrations()?.is_empty() {
        conn.batch_execute("DROP TABLE __diesel_schema_migrations")?; // Diesel's own
    }
    done
}

/// `DATABASE_URL`, or else a SQLite file in the temporary folder.
fn database_url(example: &str) -> String {
    std::env::var("DATABASE_URL").unwrap_or_else(|_| {
        let file = std::env::temp_dir().join(format!("diesel_sharded_{example}.db"));
        file.display().to_string()
    })
}

/// Does `work` in this many threads at once, each with its number.
pub fn in_threads(number: i64, work: impl Fn(i64) -> Result<()> + Sync) -> Result<()> {
    let work = &work;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..number)
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        let mut ended = threads.into_iter().map(|thread| thread.join());
        ended.try_for_each(|ended| ended.map_err(|_| "a thread panicked")?)
    })
}
