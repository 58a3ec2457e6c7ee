//! Looks that cannot write, whatever functions a query calls.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::backend::Dialect;

use crate::connection::AnyConnection;
use crate::statement::Statement;

/// Runs `look` in a transaction that is read only, or on SQLite on a connection that is. Nothing of the session stays changed.
pub fn read_only<T, E: From<DieselError>>(
    conn: &mut AnyConnection,
    look: impl FnOnce(&mut AnyConnection) -> Result<T, E>,
) -> Result<T, E> {
    const SET: &str = "SET TRANSACTION READ ONLY";
    match conn.dialect() {
        Dialect::Postgres => conn.transaction(|conn| {
            conn.batch_execute(SET)?;
            look(conn)
        }),
        Dialect::Mysql => {
            conn.batch_execute(SET)?; // of the next transaction alone
            conn.transaction(look)
        }
        _ => {
            let asked =
                Statement::default().sql("SELECT CAST(query_only AS TEXT) FROM pragma_query_only");
            let rows = asked.rows(conn)?;
            let before = rows.first().map_or(Ok("0"), |row| row.text(0))?;
            conn.batch_execute("PRAGMA query_only = ON")?;
            let looked = look(conn);
            conn.batch_execute(&format!("PRAGMA query_only = {before}"))?;
            looked
        }
    }
}
