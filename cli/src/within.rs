//! Sessions for a while: plain names that lead to the schema of the tables that a command names, and looks that cannot write.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::backend::Dialect;

use crate::connection::AnyConnection;
use crate::statement::quoted;

/// Does something while plain names lead to this schema alone, if there is one: the catalogs are asked for plain names.
pub fn within<T>(
    schema: Option<&str>,
    conn: &mut AnyConnection,
    work: impl FnOnce(&mut AnyConnection) -> QueryResult<T>,
) -> QueryResult<T> {
    let (Some(schema), false) = (schema, conn.dialect() == Dialect::Sqlite) else {
        return work(conn);
    };
    let before = enter(&quoted(conn.dialect(), schema), conn)?;
    let done = work(conn);
    leave(before, conn)?;
    done
}

/// Whether there is a schema of this name. On SQLite the tool attaches no database.
pub fn is_schema(name: &str, conn: &mut AnyConnection) -> QueryResult<bool> {
    let find = match conn.dialect() {
        Dialect::Postgres => "SELECT '1' FROM pg_namespace WHERE nspname = ?",
        Dialect::Mysql => "SELECT '1' FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = ?",
        _ => "SELECT '1' FROM pragma_database_list WHERE name = ?",
    };
    Ok(conn.text(find, &[name])?.is_some())
}

/// Where plain names led before.
fn enter(schema: &str, conn: &mut AnyConnection) -> QueryResult<Option<String>> {
    let asked = match conn.dialect() {
        Dialect::Postgres => "SELECT current_setting('search_path')",
        _ => "SELECT CAST(DATABASE() AS CHAR)",
    };
    let before = conn.text(asked, &[])?;
    lead(schema, conn)?;
    Ok(match conn.dialect() {
        Dialect::Mysql => before.map(|name| quoted(Dialect::Mysql, &name)),
        _ => before,
    })
}

fn leave(before: Option<String>, conn: &mut AnyConnection) -> QueryResult<()> {
    match before {
        Some(before) if before.is_empty() => lead("''", conn),
        Some(before) => lead(&before, conn),
        None => Ok(()), // MySQL without a database, to which no statement leads back
    }
}

/// Lets plain names lead to what is quoted already.
fn lead(path: &str, conn: &mut AnyConnection) -> QueryResult<()> {
    conn.batch_execute(&match conn.dialect() {
        Dialect::Postgres => format!("SET search_path = {path}"),
        _ => format!("USE {path}"),
    })
}

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
            let asked = "SELECT CAST(query_only AS TEXT) FROM pragma_query_only";
            let before = conn.text(asked, &[])?.unwrap_or_default();
            conn.batch_execute("PRAGMA query_only = ON")?;
            let looked = look(conn);
            conn.batch_execute(&format!("PRAGMA query_only = {before}"))?;
            looked
        }
    }
}
