//! The database's own statistics about the statements that it ran.

use std::collections::BTreeMap;

use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::backend::Dialect;

use crate::connection::AnyConnection;
use crate::statement::{Row, Statement, quoted};

/// A kind of statements, since the server's statistics began.
pub struct Digest {
    pub text: String,
    pub calls: u64,
    pub total_ms: f64,
}

/// The statements that update, or how to switch their statistics on.
pub fn read(conn: &mut AnyConnection) -> QueryResult<Result<Vec<Digest>, String>> {
    let source = match conn.dialect() {
        Dialect::Postgres => postgres(conn)?,
        _ => mysql(conn)?,
    };
    let rows = match source.map(|sql| Statement::default().sql(&sql).rows(conn)) {
        Ok(Err(DieselError::DatabaseError(_, refused))) => {
            return Ok(Err(format!(
                "The statistics of statements cannot be read: {}. {}",
                refused.message(),
                match conn.dialect() {
                    Dialect::Postgres => "The extension has to be in shared_preload_libraries.",
                    _ => "GRANT SELECT ON performance_schema.* to this role.",
                }
            )));
        }
        Ok(rows) => rows?,
        Err(off) => return Ok(Err(off)),
    };
    if rows.iter().any(|row| row.get(0) == Some(HIDDEN)) && rows.len() == 1 {
        return Ok(Err(
            "The statements of other roles are hidden from this one: GRANT pg_read_all_stats to it.".to_owned(),
        ));
    }
    let digests = rows.iter().map(digest);
    digests.collect::<QueryResult<_>>().map(Ok)
}

/// How many rows of each table were updated: MariaDB's digests leave out statements that a client prepared.
pub fn row_updates(conn: &mut AnyConnection) -> QueryResult<BTreeMap<String, u64>> {
    if conn.dialect() != Dialect::Mysql {
        return Ok(BTreeMap::new());
    }
    let updates = "SELECT CAST(OBJECT_NAME AS CHAR), CAST(COUNT_UPDATE AS CHAR) \
         FROM performance_schema.table_io_waits_summary_by_table WHERE OBJECT_SCHEMA = DATABASE() AND COUNT_UPDATE > 0";
    let rows = Statement::default().sql(updates).rows(conn)?;
    rows.iter()
        .map(|row| Ok((row.text(0)?.to_owned(), row.parse(1)?)))
        .collect()
}

/// PostgreSQL's pattern of an update, behind comments or not. It has no backslash, which some sessions read otherwise.
pub const IS_UPDATE: &str = "^([[:space:]]|/[*].*[*]/|--[^\n]*\n)*update[[:space:]]";

const HIDDEN: &str = "<insufficient privilege>";

fn digest(row: &Row) -> QueryResult<Digest> {
    Ok(Digest {
        text: row.text(0)?.to_owned(),
        calls: row.parse(1)?,
        total_ms: row.parse(2)?,
    })
}

/// The query, or how to switch the extension on. An ordinary role may not ask for the setting by its name, and sees no row of it.
fn postgres(conn: &mut AnyConnection) -> QueryResult<Result<String, String>> {
    let state = "SELECT (SELECT n.nspname::text FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace \
         WHERE e.extname = 'pg_stat_statements'), \
         (SELECT setting FROM pg_settings WHERE name = 'shared_preload_libraries')";
    let rows = Statement::default().sql(state).rows(conn)?;
    let get = |column| rows.first().and_then(|row| row.get(column));
    if let Some(schema) = get(0) {
        return Ok(Ok(format!(
            "SELECT CASE WHEN query = '{HIDDEN}' THEN query ELSE min(query) END, CAST(SUM(calls) AS TEXT), \
                 CAST(SUM(total_exec_time) AS TEXT) FROM {}.pg_stat_statements \
             WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) \
                 AND (query ~* '{IS_UPDATE}' OR query = '{HIDDEN}') GROUP BY query ORDER BY 1",
            quoted(Dialect::Postgres, schema)
        )));
    }
    let is_loaded = get(1).is_some_and(|libraries| libraries.contains("pg_stat_statements"));
    Ok(Err(match is_loaded {
        true => "PostgreSQL keeps no statistics of statements that this database may read: CREATE EXTENSION pg_stat_statements;",
        false => {
            "PostgreSQL keeps no statistics of statements: set shared_preload_libraries = 'pg_stat_statements' in postgresql.conf, \
             restart it, and run CREATE EXTENSION pg_stat_statements;"
        }
    }
    .to_owned()))
}

/// The query, or how to switch the schema on.
fn mysql(conn: &mut AnyConnection) -> QueryResult<Result<String, String>> {
    let state = "SELECT IF(@@performance_schema, '1', '0')";
    let rows = Statement::default().sql(state).rows(conn)?;
    let is_on = rows.first().and_then(|row| row.get(0)) == Some("1");
    Ok(match is_on {
        true => Ok(
            "SELECT CAST(DIGEST_TEXT AS CHAR), CAST(COUNT_STAR AS CHAR), CAST(SUM_TIMER_WAIT / 1000000000 AS CHAR) \
             FROM performance_schema.events_statements_summary_by_digest \
             WHERE SCHEMA_NAME = DATABASE() AND DIGEST_TEXT LIKE 'UPDATE%'"
                .to_owned(),
        ),
        false => Err(
            "The server keeps no statistics of statements: set performance_schema = ON under [mysqld] in its configuration, and restart it."
                .to_owned(),
        ),
    })
}
