//! The library's own tables, and the record of the migrations that create them.

use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::MIGRATIONS;
use diesel_sharded::described::{MigrationText, migration_texts};

use crate::connection::AnyConnection;
use crate::library_tables::{LibraryMigration, RECORDS, State, recorded};
use crate::live::LiveTables;

use super::finding::Finding;

const CHECK: &str = "library tables";

pub fn check(conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    let live = LiveTables::read(conn)?;
    let mut findings = vec![];
    let recorded = match recorded(&live, conn) {
        Err(DieselError::DatabaseError(_, refused)) => {
            findings.push(Finding::warning(
                CHECK,
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
        (Some(wrong), _) => level(CHECK, wrong, migration.remedy()),
        (None, State::Pending) => level(
            CHECK,
            format!("{all}: not there; {}", needed_for(migration.text)),
            migration.remedy(),
        ),
        (None, _) => Finding::ok(CHECK, all),
    }
}

fn needed_for(text: &MigrationText) -> &'static str {
    match text.tables.first() {
        Some(&"diesel_sharded_batches") => "coalescers need it",
        Some(&"diesel_sharded_idempotency_keys") => "idempotency keys need it",
        _ => "named counters and `resize` need them",
    }
}
