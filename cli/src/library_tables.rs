//! The library's own tables, and the record of the migrations that create them.

use diesel::migration::CREATE_MIGRATIONS_TABLE;
use diesel::prelude::*;
use diesel_sharded::described::MigrationText;

use crate::connection::AnyConnection;
use crate::live::LiveTables;
use crate::output::Note;
use crate::shell;

/// Diesel's table of the migrations that have run.
pub const RECORDS: &str = "__diesel_schema_migrations";

/// One of the library's migrations, and what became of it in a database.
pub struct LibraryMigration<'t> {
    pub text: &'t MigrationText,
    pub state: State,
    /// Its tables that are not there, as far as this role may see.
    pub missing: Vec<&'static str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It ran and is recorded.
    Complete,
    /// None of its tables is there, and nothing is recorded.
    Pending,
    /// All of its tables are there without a record.
    Unrecorded,
    /// Some of its tables are there without a record, as where `CREATE TABLE` commits and a run was interrupted.
    Interrupted,
    /// It is recorded, and tables of it are not there.
    Lost,
}

impl<'t> LibraryMigration<'t> {
    /// Without a record that can be read, the tables that are there are taken for recorded.
    pub fn new(text: &'t MigrationText, live: &LiveTables, recorded: Option<&[String]>) -> Self {
        let tables = text.tables.iter().copied();
        let missing: Vec<_> = tables
            .filter(|table| !live.tables.contains_key(*table))
            .collect();
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

    /// What is not as it should be, and what to do: statements, a command or a sentence, each on its own lines.
    pub fn note(&self) -> Option<Note> {
        let version = self.text.version;
        let (all, missing) = (self.text.tables.join(", "), self.missing.join(", "));
        let setup = shell::command(["setup"]);
        let write = format!(
            "run what is missing of {}/up.sql, which `{}` writes",
            self.text.folder,
            shell::command(["setup", "--write"])
        );
        Some(match self.state {
            State::Complete => return None,
            State::Pending => {
                let needed = match self.text.tables.first() {
                    Some(&"diesel_sharded_batches") => "coalescers need it",
                    Some(&"diesel_sharded_idempotency_keys") => "idempotency keys need it",
                    _ => "named counters and `resize` need them",
                };
                Note::new(format!("{all}: not there; {needed}"), setup)
            }
            State::Unrecorded => Note::new(
                format!("{all}: there, but their migration is not recorded, and would fail"),
                record(version),
            ),
            State::Interrupted => {
                let tables = self.text.tables.iter().copied();
                let there: Vec<_> = tables.filter(|t| !self.missing.contains(t)).collect();
                Note::new(
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
            State::Lost => Note::new(
                format!(
                    "{missing}: not there, as far as this role may see, though the migration is recorded"
                ),
                match self.missing.len() == self.text.tables.len() {
                    true => {
                        format!("DELETE FROM {RECORDS} WHERE version = '{version}';\n{setup}")
                    }
                    false => write,
                },
            ),
        })
    }
}

/// The statements that record a migration, also where none was ever recorded.
fn record(version: &str) -> String {
    let words: Vec<_> = CREATE_MIGRATIONS_TABLE.split_whitespace().collect();
    format!(
        "{} INSERT INTO {RECORDS} (version) VALUES ('{version}');",
        words.join(" ")
    )
}

/// The versions that are recorded.
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
