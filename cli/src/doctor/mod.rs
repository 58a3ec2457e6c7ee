//! `diesel-sharded doctor`: looks at all that the library depends on, and changes nothing.
//!
//! A file for each kind of checks; each gives findings.

mod settings;
mod tables;

use std::fmt;

use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::MIGRATIONS;
use diesel_sharded::described::{MigrationText, migration_texts};
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::connection::AnyConnection;
use crate::error::Error;
use crate::exit::Ended;
use crate::library_tables::{LibraryMigration, RECORDS, State, recorded};
use crate::live::LiveTables;
use crate::output::{Note, Output};
use crate::sharded;

pub fn run(
    args: &DoctorArgs,
    url: Option<&str>,
    conn: &mut AnyConnection,
    out: &mut Output,
) -> Result<Ended, Error> {
    let pooler = settings::pooler(url, conn)?; // first: the session is still as it came
    let named = sharded::named(&args.tables, conn)?;
    let mut findings = library_tables(conn)?;
    if named.tables.is_empty() {
        let remedy = "diesel-sharded generate TABLE COLUMN";
        findings.push(Finding::warning(
            "tables",
            "there is no sharded table that this role may see",
            remedy,
        ));
    }
    for sharded in &named.tables {
        findings.extend(tables::check(sharded.keyed(), conn)?);
    }
    findings.extend(settings::check(&named.tables, conn)?);
    findings.extend(pooler);
    named.note_left_out(out);
    match args.json {
        true => out.json(&findings)?,
        false => show(&findings, out)?,
    }
    let is_wrong = findings.iter().any(|f| f.level == Level::Problem);
    Ok(Ended::left_over_if(is_wrong))
}

fn show(findings: &[Finding], out: &mut Output) -> Result<(), Error> {
    for finding in findings {
        out.line(&finding.to_string())?;
    }
    let number = |level| findings.iter().filter(|f| f.level == level).count();
    out.line(&format!(
        "\n{} ok, {} to be looked at, {} wrong",
        number(Level::Ok),
        number(Level::Warning),
        number(Level::Problem)
    ))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Ok,
    /// It may be meant so.
    Warning,
    Problem,
}

/// The outcome of one check.
#[derive(Debug, Serialize)]
pub struct Finding {
    pub level: Level,
    pub check: &'static str,
    pub says: String,
    /// A command, a statement or a sentence.
    pub remedy: Option<String>,
}

impl Finding {
    pub fn ok(check: &'static str, says: impl Into<String>) -> Self {
        Finding {
            level: Level::Ok,
            check,
            says: says.into(),
            remedy: None,
        }
    }

    pub fn of(level: Level, check: &'static str, note: Note) -> Self {
        Finding {
            level,
            remedy: Some(note.remedy),
            ..Finding::ok(check, note.says)
        }
    }

    pub fn warning(
        check: &'static str,
        says: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Finding::of(Level::Warning, check, Note::new(says.into(), remedy))
    }

    pub fn problem(
        check: &'static str,
        says: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Finding::of(Level::Problem, check, Note::new(says.into(), remedy))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Problem => "problem",
        };
        write!(f, "{level:<8} {}: {}", self.check, self.says)?;
        let remedy = self.remedy.iter().flat_map(|remedy| remedy.lines());
        for line in remedy {
            write!(f, "\n         {line}")?;
        }
        Ok(())
    }
}

const LIBRARY_TABLES: &str = "library tables";

/// The library's own tables, and the record of the migrations that create them.
fn library_tables(conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    let live = LiveTables::read(conn)?;
    let mut findings = vec![];
    let recorded = match recorded(&live, conn) {
        Err(DieselError::DatabaseError(_, refused)) => {
            findings.push(Finding::warning(
                LIBRARY_TABLES,
                format!(
                    "the record of migrations cannot be read: {}",
                    refused.message()
                ),
                format!("Run this as the role that migrates, or GRANT SELECT ON {RECORDS}"),
            ));
            None
        }
        recorded => Some(recorded?),
    };
    let texts = migration_texts(MIGRATIONS, &conn.backend())?;
    findings.extend(texts.iter().map(|text| {
        let migration = LibraryMigration::new(text, &live, recorded.as_deref());
        finding(&migration)
    }));
    Ok(findings)
}

fn finding(migration: &LibraryMigration<'_>) -> Finding {
    let all = migration.text.tables.join(", ");
    let level = match migration.state {
        State::Lost | State::Interrupted => Finding::problem,
        _ => Finding::warning,
    };
    match (migration.wrong(), migration.state) {
        (Some(wrong), _) => level(LIBRARY_TABLES, wrong, migration.remedy()),
        (None, State::Pending) => level(
            LIBRARY_TABLES,
            format!("{all}: not there; {}", needed_for(migration.text)),
            migration.remedy(),
        ),
        (None, _) => Finding::ok(LIBRARY_TABLES, all),
    }
}

fn needed_for(text: &MigrationText) -> &'static str {
    match text.tables.first() {
        Some(&"diesel_sharded_batches") => "coalescers need it",
        Some(&"diesel_sharded_idempotency_keys") => "idempotency keys need it",
        _ => "named counters and `resize` need them",
    }
}
