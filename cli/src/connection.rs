//! The database at `DATABASE_URL`, and sessions for a while: plain names that lead to a schema, and looks that cannot write.

use diesel::connection::SimpleConnection;
#[cfg(feature = "mysql")]
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
#[cfg(feature = "mysql")]
use diesel::sql_types::Bool;
use diesel_sharded::backend::{BackendOf, Dialect, ShardedBackend};

use crate::address::Address;
use crate::error::Error;
use crate::statement::quoted;

#[derive(diesel::MultiConnection)]
pub enum AnyConnection {
    #[cfg(feature = "postgres")]
    Postgres(PgConnection),
    #[cfg(feature = "mysql")]
    Mysql(MysqlConnection),
    #[cfg(feature = "sqlite")]
    Sqlite(SqliteConnection),
}

diesel_sharded::multi_connection!(AnyConnection {
    #[cfg(feature = "postgres")]
    Postgres: Postgres,
    #[cfg(feature = "mysql")]
    Mysql: Mysql,
    #[cfg(feature = "sqlite")]
    Sqlite: Sqlite,
});

pub type Backend = <AnyConnection as Connection>::Backend;

impl AnyConnection {
    pub fn backend(&self) -> Backend {
        Backend::backend_of(self)
    }

    pub fn dialect(&self) -> Dialect {
        self.backend().dialect()
    }

    /// Connects as the `diesel` CLI does: by the scheme, and to a SQLite file where there is none. It also takes the addresses of
    /// other tools: `mariadb://…`, `sqlite:…`.
    pub fn establish_at(address: Address<'_>) -> Result<Self, Error> {
        match address.scheme() {
            _ if address.text.trim().is_empty() => Err(address.refused("it is empty")),
            #[cfg(feature = "postgres")]
            ("postgres" | "postgresql", _) => {
                let conn = PgConnection::establish(address.text);
                Ok(AnyConnection::Postgres(
                    conn.map_err(|error| address.failed(&error))?,
                ))
            }
            #[cfg(feature = "mysql")]
            ("mysql" | "mariadb", rest) => {
                let url = format!("mysql:{rest}");
                let conn = MysqlConnection::establish(&url);
                let mut conn = conn.map_err(|error| address.failed(&error))?;
                // Without one every look would find no tables.
                match diesel::select(sql::<Bool>("DATABASE() IS NULL")).get_result(&mut conn)? {
                    true => Err(address.refused("it has no database behind the server's name")),
                    false => Ok(AnyConnection::Mysql(conn)),
                }
            }
            #[cfg(feature = "sqlite")]
            ("sqlite", rest) => {
                let file = rest.strip_prefix("//").unwrap_or(rest);
                Ok(AnyConnection::Sqlite(open_sqlite(file, address)?))
            }
            #[cfg(feature = "sqlite")]
            ("" | "file", _) => Ok(AnyConnection::Sqlite(open_sqlite(address.text, address)?)),
            #[cfg(not(feature = "sqlite"))]
            ("", _) => Err(address.refused("this build opens no SQLite files")),
            (scheme, _) => Err(address.refused(format!("this build does not know {scheme}://"))),
        }
    }
}

#[cfg(feature = "sqlite")]
fn open_sqlite(file: &str, address: Address<'_>) -> Result<SqliteConnection, Error> {
    // SQLite would create an empty database.
    let is_path = !file.starts_with("file:") && file != ":memory:";
    if is_path && !std::path::Path::new(file).is_file() {
        return Err(
            address.refused("there is no such SQLite file, which `diesel setup` would create")
        );
    }
    let conn = SqliteConnection::establish(file);
    let mut conn = conn.map_err(|error| address.failed(&error))?;
    conn.batch_execute("PRAGMA busy_timeout = 5000")?;
    match conn.batch_execute("PRAGMA schema_version") {
        Err(DieselError::DatabaseError(_, says)) if says.message().contains("not a database") => {
            Err(address.refused("this file is no SQLite database"))
        }
        opened => opened.map(|()| conn).map_err(Error::from),
    }
}

/// Does something while plain names lead to this schema alone, if there is one: the catalogs are asked for plain names.
pub fn within<T>(
    schema: Option<&str>,
    conn: &mut AnyConnection,
    work: impl FnOnce(&mut AnyConnection) -> QueryResult<T>,
) -> QueryResult<T> {
    let (Some(schema), false) = (schema, conn.dialect() == Dialect::Sqlite) else {
        return work(conn);
    };
    let dialect = conn.dialect();
    let (asked, lead) = match dialect {
        Dialect::Postgres => ("SELECT current_setting('search_path')", "SET search_path ="),
        _ => ("SELECT CAST(DATABASE() AS CHAR)", "USE"),
    };
    let before = conn.text(asked, &[])?.map(|before| match dialect {
        Dialect::Mysql => quoted(dialect, &before),
        _ if before.is_empty() => "''".to_owned(),
        _ => before,
    });
    conn.batch_execute(&format!("{lead} {}", quoted(dialect, schema)))?;
    let done = work(conn);
    // To MySQL without a database no statement leads back.
    if let Some(before) = before {
        conn.batch_execute(&format!("{lead} {before}"))?;
    }
    done
}

/// Whether there is a schema of this name.
pub fn is_schema(name: &str, conn: &mut AnyConnection) -> QueryResult<bool> {
    let schema = catalog!(conn.dialect(), "schema");
    Ok(conn.text(schema, &[name])?.is_some())
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
