//! The statements that run now, and which of them wait for a lock.

use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::backend::Dialect;

use crate::connection::AnyConnection;
use crate::statement::Statement;

use super::statistics::IS_UPDATE;

/// An update that runs.
pub struct Running {
    pub text: String,
    pub waits: bool,
}

/// The updates of other sessions in this database, or why they are not seen.
pub fn look(conn: &mut AnyConnection) -> QueryResult<Result<Vec<Running>, String>> {
    let running = match conn.dialect() {
        Dialect::Postgres => &format!(
            "SELECT query, CASE WHEN wait_event_type = 'Lock' THEN '1' ELSE '0' END FROM pg_stat_activity \
                 WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid() AND query ~* '{IS_UPDATE}'"
        ),
        _ => {
            "SELECT CAST(p.INFO AS CHAR), CASE WHEN t.trx_state = 'LOCK WAIT' THEN '1' ELSE '0' END \
             FROM information_schema.PROCESSLIST p LEFT JOIN information_schema.INNODB_TRX t ON t.trx_mysql_thread_id = p.ID \
             WHERE p.DB = DATABASE() AND p.COMMAND IN ('Query', 'Execute') AND p.ID <> CONNECTION_ID() AND p.INFO LIKE '%UPDATE%'"
        }
    };
    match Statement::default().sql(running).rows(conn) {
        Err(DieselError::DatabaseError(_, refused)) => Ok(Err(format!(
            "Waits are not seen: {}. GRANT PROCESS to this role.",
            refused.message()
        ))),
        rows => {
            let rows = rows?;
            let running = rows.iter().map(|row| {
                Ok(Running {
                    text: row.text(0)?.to_owned(),
                    waits: row.get(1) == Some("1"),
                })
            });
            running.collect::<QueryResult<_>>().map(Ok)
        }
    }
}
