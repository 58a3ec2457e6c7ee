//! `diesel-sharded setup`: the library's own tables, by its migrations.

use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded::MIGRATIONS;
use diesel_sharded::described::{MigrationText, migration_texts};
use diesel_sharded::operation::Migrations;

use crate::args::SetupArgs;
use crate::connection::AnyConnection;
use crate::error::Error;
use crate::exit::Ended;
use crate::live::LiveTables;
use crate::migration_dir;
use crate::migration_files::{Files, Written, write_once};
use crate::output::Output;

pub fn run(args: &SetupArgs, conn: &mut AnyConnection, out: &mut Output) -> Result<Ended, Error> {
    let migrations = match (args.no_triggers, args.no_foreign_key) {
        (true, _) => MIGRATIONS.without_triggers(),
        (false, true) => MIGRATIONS.without_foreign_key(),
        (false, false) => MIGRATIONS,
    };
    let texts = migration_texts(migrations, &conn.backend())?;
    match args.write {
        true => write(texts, args, out),
        false => run_pending(migrations, &texts, conn, out),
    }
}

/// Runs and records them as the application's own `run_pending_migrations` would.
fn run_pending(
    migrations: Migrations,
    texts: &[MigrationText],
    conn: &mut AnyConnection,
    out: &mut Output,
) -> Result<Ended, Error> {
    let pending = conn
        .pending_migrations(migrations)
        .map_err(Error::migration)?;
    if pending.is_empty() {
        out.line("All migrations of the library have run: nothing to do.")?;
    }
    for migration in &pending {
        let name = migration.name().to_string();
        let text = texts.iter().find(|text| text.folder == name);
        if let Some((text, table)) = text.zip(there(text, conn)?) {
            return Err(Error::NotRecorded {
                table,
                version: text.version,
            });
        }
        conn.run_migration(migration).map_err(Error::migration)?;
        out.line(&format!("Ran {name}"))?;
    }
    Ok(Ended::Done)
}

/// A table of a migration that is there already.
fn there(
    text: Option<&MigrationText>,
    conn: &mut AnyConnection,
) -> QueryResult<Option<&'static str>> {
    let live = LiveTables::read(conn)?;
    let mut tables = text.into_iter().flat_map(|text| text.tables);
    Ok(tables
        .find(|table| live.tables.contains_key(**table))
        .copied())
}

fn write(texts: Vec<MigrationText>, args: &SetupArgs, out: &mut Output) -> Result<Ended, Error> {
    let folder = match &args.migration_dir {
        Some(folder) => folder.clone(),
        None => migration_dir::find()?,
    };
    let mut ended = Ended::Done;
    let mut all_there = true;
    for text in texts {
        let files = Files {
            up: text.up,
            down: text.down,
        };
        match write_once(&files, &folder.join(text.folder), out)? {
            Written::Now => all_there = false,
            Written::Before => {}
            Written::Otherwise => ended = Ended::LeftOver,
        }
    }
    if all_there && ended == Ended::Done {
        out.line("All migrations of the library are written: nothing to do.")?;
    }
    Ok(ended)
}
