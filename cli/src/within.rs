//! The schema of the tables that a command names.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::backend::Dialect;

use crate::connection::AnyConnection;
use crate::statement::{Statement, Value, quoted};

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
        Dialect::Postgres => "SELECT '1' FROM pg_namespace WHERE nspname = ",
        Dialect::Mysql => "SELECT '1' FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = ",
        _ => "SELECT '1' FROM pragma_database_list WHERE name = ",
    };
    let find = Statement::default().sql(find);
    let rows = find.bind(Value::Text(name.to_owned())).rows(conn)?;
    Ok(!rows.is_empty())
}

/// Where plain names led before.
fn enter(schema: &str, conn: &mut AnyConnection) -> QueryResult<Option<String>> {
    let asked = match conn.dialect() {
        Dialect::Postgres => "SELECT current_setting('search_path')",
        _ => "SELECT CAST(DATABASE() AS CHAR)",
    };
    let rows = Statement::default().sql(asked).rows(conn)?;
    let before = rows.first().and_then(|row| row.get(0)).map(str::to_owned);
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
