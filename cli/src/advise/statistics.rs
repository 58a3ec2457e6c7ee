//! The database's own statistics about the statements that it ran, the statements that run now, and what shards gave in the benchmark.

use std::collections::BTreeMap;

use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::backend::Dialect;

use crate::connection::AnyConnection;
use crate::error::Error;
use crate::statement::quoted;

/// A kind of statements, since the server's statistics began.
pub struct Digest {
    pub text: String,
    pub calls: u64,
    pub total_ms: f64,
}

/// The database's statistics at one moment.
pub struct Statistics {
    pub digests: Vec<Digest>,
    /// How many rows of each table were updated: MariaDB's digests leave out statements that a client prepared.
    pub row_updates: BTreeMap<String, u64>,
}

impl Statistics {
    /// They are refused with the way to switch them on.
    pub fn read(conn: &mut AnyConnection) -> Result<Self, Error> {
        let (source, remedy) = match conn.dialect() {
            Dialect::Postgres => (
                postgres(conn)?,
                "The extension has to be in shared_preload_libraries.",
            ),
            _ => (
                mysql(conn)?,
                "GRANT SELECT ON performance_schema.* to this role.",
            ),
        };
        let rows = conn.rows(&source, &[]).map_err(|error| {
            refused(error, "The statistics of statements cannot be read", remedy)
        })?;
        if let [Some(HIDDEN)] = rows.iter().map(|row| row.get(0)).collect::<Vec<_>>()[..] {
            return Err(Error::refused(
                "The statements of other roles are hidden from this one: GRANT pg_read_all_stats to it.",
            ));
        }
        let digests = rows.iter().map(|row| {
            Ok(Digest {
                text: row.text(0)?.to_owned(),
                calls: row.parse(1)?,
                total_ms: row.parse(2)?,
            })
        });
        Ok(Statistics {
            digests: digests.collect::<QueryResult<_>>()?,
            row_updates: row_updates(conn)?,
        })
    }
}

/// The database's refusal with what it means, or any other error.
fn refused(error: DieselError, says: &str, remedy: &str) -> Error {
    match error {
        DieselError::DatabaseError(_, refused) => {
            Error::Refused(format!("{says}: {}. {remedy}", refused.message()))
        }
        error => error.into(),
    }
}

fn row_updates(conn: &mut AnyConnection) -> QueryResult<BTreeMap<String, u64>> {
    if conn.dialect() != Dialect::Mysql {
        return Ok(BTreeMap::new());
    }
    let updates = "SELECT CAST(OBJECT_NAME AS CHAR), CAST(COUNT_UPDATE AS CHAR) \
         FROM performance_schema.table_io_waits_summary_by_table WHERE OBJECT_SCHEMA = DATABASE() AND COUNT_UPDATE > 0";
    let rows = conn.rows(updates, &[])?;
    rows.iter()
        .map(|row| Ok((row.text(0)?.to_owned(), row.parse(1)?)))
        .collect()
}

/// PostgreSQL's pattern of an update, behind comments or not. It has no backslash, which some sessions read otherwise.
const IS_UPDATE: &str = "^([[:space:]]|/[*].*[*]/|--[^\n]*\n)*update[[:space:]]";

const HIDDEN: &str = "<insufficient privilege>";

/// The query, refused where the extension is off. An ordinary role may not ask for the setting by its name, and sees no row of it.
fn postgres(conn: &mut AnyConnection) -> Result<String, Error> {
    let state = "SELECT (SELECT n.nspname::text FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace \
         WHERE e.extname = 'pg_stat_statements'), \
         (SELECT setting FROM pg_settings WHERE name = 'shared_preload_libraries')";
    let rows = conn.rows(state, &[])?;
    let get = |column| rows.first().and_then(|row| row.get(column));
    if let Some(schema) = get(0) {
        return Ok(format!(
            "SELECT CASE WHEN query = '{HIDDEN}' THEN query ELSE min(query) END, CAST(SUM(calls) AS TEXT), \
                 CAST(SUM(total_exec_time) AS TEXT) FROM {}.pg_stat_statements \
             WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) \
                 AND (query ~* '{IS_UPDATE}' OR query = '{HIDDEN}') GROUP BY query ORDER BY 1",
            quoted(Dialect::Postgres, schema)
        ));
    }
    let is_loaded = get(1).is_some_and(|libraries| libraries.contains("pg_stat_statements"));
    Err(Error::refused(match is_loaded {
        true => {
            "PostgreSQL keeps no statistics of statements that this database may read: CREATE EXTENSION pg_stat_statements;"
        }
        false => {
            "PostgreSQL keeps no statistics of statements: set shared_preload_libraries = 'pg_stat_statements' in postgresql.conf, \
             restart it, and run CREATE EXTENSION pg_stat_statements;"
        }
    }))
}

/// The query, refused where the schema is off.
fn mysql(conn: &mut AnyConnection) -> Result<String, Error> {
    let state = "SELECT IF(@@performance_schema, '1', '0')";
    match conn.text(state, &[])?.as_deref() {
        Some("1") => Ok(catalog!("mysql/", "digests").to_owned()),
        _ => Err(Error::refused(
            "The server keeps no statistics of statements: set performance_schema = ON under [mysqld] in its configuration, and restart it.",
        )),
    }
}

/// An update that runs.
pub struct Running {
    pub text: String,
    pub waits: bool,
}

/// The updates of other sessions in this database, refused where they are not seen.
pub fn look(conn: &mut AnyConnection) -> Result<Vec<Running>, Error> {
    let running = match conn.dialect() {
        Dialect::Postgres => &format!(
            "SELECT query, CASE WHEN wait_event_type = 'Lock' THEN '1' ELSE '0' END FROM pg_stat_activity \
                 WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid() AND query ~* '{IS_UPDATE}'"
        ),
        _ => catalog!("mysql/", "running"),
    };
    let rows = conn.rows(running, &[]);
    let rows =
        rows.map_err(|error| refused(error, "Waits are not seen", "GRANT PROCESS to this role."))?;
    let running = rows.iter().map(|row| {
        Ok(Running {
            text: row.text(0)?.to_owned(),
            waits: row.get(1) == Some("1"),
        })
    });
    running.collect()
}

/// How many times the counts of one row 32 threads make by `update`, as the reference page on benchmarks says.
pub fn assumption(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => {
            "Assumed: the writers wait for one row, as the 32 threads of the library's benchmark (documentation, page benchmarks). There \
             shards made 5.1 times the counts of one row on PostgreSQL, and 14.5 times where a commit took 1 ms."
        }
        _ => {
            "Assumed: the writers wait for one row, as the 32 threads of the library's benchmark (documentation, page benchmarks). There \
             shards made 2.4 times the counts of one row on MariaDB."
        }
    }
}
