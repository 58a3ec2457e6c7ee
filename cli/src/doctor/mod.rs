//! `diesel-sharded doctor`: looks at all that the library depends on, and changes nothing.
//!
//! A file for each kind of checks; each gives findings.

/// The findings whose conditions hold: level, check, condition, what it says, and the remedy where all is not well.
macro_rules! findings {
    ($($level:ident $check:literal $(if $holds:expr)? => $says:expr $(, $remedy:expr)?;)*) => {{
        let mut findings: Vec<Finding> = vec![];
        $($(if $holds)? {
            findings.push(Finding {
                level: Level::$level,
                check: $check,
                says: $says.into(),
                remedy: None$(.or(Some($remedy.into())))?,
            });
        })*
        findings
    }};
}

mod settings;
mod tables;

use std::fmt;

use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::MIGRATIONS;
use diesel_sharded::described::migration_texts;
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::connection::AnyConnection;
use crate::error::Error;
use crate::exit::Ended;
use crate::library_tables::{LibraryMigration, RECORDS, State, recorded};
use crate::live::LiveTables;
use crate::output::{self, Note};
use crate::sharded;

pub fn run(args: &DoctorArgs, url: Option<&str>, conn: &mut AnyConnection) -> Result<Ended, Error> {
    let pooler = settings::pooler(url, conn)?; // first: the session is still as it came
    let named = sharded::named(&args.tables, conn)?;
    let mut all = library_tables(conn)?;
    all.extend(findings! {
        Warning "tables" if named.tables.is_empty() =>
            "there is no sharded table that this role may see",
            "diesel-sharded generate TABLE COLUMN";
    });
    for sharded in &named.tables {
        all.extend(tables::check(sharded, conn)?);
    }
    all.extend(settings::check(&named.tables, conn)?);
    all.extend(pooler);
    named.note_left_out();
    match args.json {
        true => output::json(&all)?,
        false => show(&all)?,
    }
    let is_wrong = all.iter().any(|f| f.level == Level::Problem);
    Ok(Ended::left_over_if(is_wrong))
}

fn show(findings: &[Finding]) -> Result<(), Error> {
    for finding in findings {
        output::line(&finding.to_string())?;
    }
    let number = |level| findings.iter().filter(|f| f.level == level).count();
    output::line(&format!(
        "\n{} ok, {} to be looked at, {} wrong",
        number(Level::Ok),
        number(Level::Warning),
        number(Level::Problem)
    ))
}

/// These findings of a check, or that all is well.
fn or_ok(findings: Vec<Finding>, check: &'static str, says: impl Into<String>) -> Vec<Finding> {
    match findings.is_empty() {
        true => vec![Finding::ok(check, says)],
        false => findings,
    }
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

    /// What a note says, or that all is well.
    pub fn of_note(level: Level, check: &'static str, note: Option<Note>, well: String) -> Self {
        match note {
            Some(note) => Finding::of(level, check, note),
            None => Finding::ok(check, well),
        }
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

/// The library's own tables, and the record of the migrations that create them.
fn library_tables(conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    let live = LiveTables::read(conn)?;
    let mut findings = vec![];
    let recorded = match recorded(&live, conn) {
        Err(DieselError::DatabaseError(_, refused)) => {
            let says = refused.message();
            findings.extend(findings! {
                Warning "library tables" =>
                    format!("the record of migrations cannot be read: {says}"),
                    format!("Run this as the role that migrates, or GRANT SELECT ON {RECORDS}");
            });
            None
        }
        recorded => Some(recorded?),
    };
    let texts = migration_texts(MIGRATIONS, &conn.backend())?;
    findings.extend(texts.iter().map(|text| {
        let migration = LibraryMigration::new(text, &live, recorded.as_deref());
        let level = match migration.state {
            State::Lost | State::Interrupted => Level::Problem,
            _ => Level::Warning,
        };
        let well = text.tables.join(", ");
        Finding::of_note(level, "library tables", migration.note(), well)
    }));
    Ok(findings)
}
