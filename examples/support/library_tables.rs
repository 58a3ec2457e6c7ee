//! The library's own tables, for an example that should leave none behind where there were none.

use diesel::connection::SimpleConnection;
use diesel_migrations::MigrationHarness;
use diesel_sharded::MIGRATIONS;

use super::support::{AnyConnection, Result};

/// Runs `work` on the tables. An application has `conn.run_pending_migrations(MIGRATIONS)?` instead, and keeps them.
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
