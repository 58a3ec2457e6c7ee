//! The library's own tables, and the record of the migrations that create them.

use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::MIGRATIONS;
use diesel_sharded::described::{MigrationText, migration_texts};

use crate::connection::AnyConnection;
use crate::live::LiveTables;
use crate::statement::Statement;

use super::finding::Finding;

/// Diesel's table of the migrations that have run.
const RECORDS: &str = "__diesel_schema_migrations";

pub fn check(conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    let live = LiveTables::read(conn)?;
    let mut findings = vec![];
    let recorded = match live.tables.contains_key(RECORDS) {
        true => recorded(conn, &mut findings)?,
        false => Some(vec![]),
    };
    let texts = migration_texts(MIGRATIONS, &conn.backend())?;
    let of = |text: &MigrationText| {
        let tables = text.tables.iter().copied();
        let missing: Vec<_> = tables
            .filter(|table| !live.tables.contains_key(*table))
            .collect();
        let is_recorded = match &recorded {
            Some(recorded) => recorded.iter().any(|version| version == text.version),
            None => missing.is_empty(), // as it should be
        };
        finding(text, is_recorded, &missing)
    };
    findings.extend(texts.iter().map(of));
    Ok(findings)
}

/// The versions that are recorded, if this role may read them.
fn recorded(
    conn: &mut AnyConnection,
    findings: &mut Vec<Finding>,
) -> QueryResult<Option<Vec<String>>> {
    let versions = Statement::default()
        .sql("SELECT version FROM ")
        .name(RECORDS);
    match versions.rows(conn) {
        Ok(rows) => {
            let versions = rows.iter().map(|row| row.text(0).map(str::to_owned));
            versions.collect::<QueryResult<_>>().map(Some)
        }
        Err(DieselError::DatabaseError(_, refused)) => {
            findings.push(Finding::warning(
                "library tables",
                format!(
                    "the record of migrations cannot be read: {}",
                    refused.message()
                ),
                format!("Run this as the role that migrates, or GRANT SELECT ON {RECORDS}"),
            ));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn finding(text: &MigrationText, is_recorded: bool, missing: &[&str]) -> Finding {
    let (check, all) = ("library tables", text.tables.join(", "));
    let none_there = missing.len() == text.tables.len();
    match (is_recorded, missing.is_empty()) {
        (true, true) => Finding::ok(check, all),
        (false, true) => Finding::warning(
            check,
            format!("{all}: there, but their migration is not recorded, and would fail"),
            format!(
                "INSERT INTO {RECORDS} (version) VALUES ('{}');",
                text.version
            ),
        ),
        (false, false) if none_there => Finding::warning(
            check,
            format!("{all}: not there; {}", needed_for(text)),
            "diesel-sharded setup",
        ),
        _ => Finding::problem(
            check,
            format!(
                "{}: not there, as far as this role may see, though {}",
                missing.join(", "),
                match is_recorded {
                    true => "the migration is recorded",
                    false => "others of the same migration are",
                }
            ),
            format!(
                "run what is missing of {}/up.sql, which `diesel-sharded setup --write` writes",
                text.folder
            ),
        ),
    }
}

fn needed_for(text: &MigrationText) -> &'static str {
    match text.tables.first() {
        Some(&"diesel_sharded_batches") => "coalescers need it",
        Some(&"diesel_sharded_idempotency_keys") => "idempotency keys need it",
        _ => "named counters and `resize` need them",
    }
}
