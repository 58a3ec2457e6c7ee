//! The connection to a database, and its address: the forms that it has, where it came from, how it is shown. Also temporary settings of
//! the session: the schema of plain names, and read-only transactions.

use std::fmt;
use std::path::PathBuf;

use clap::ArgMatches;
use clap::parser::ValueSource;
use diesel::ConnectionError;
use diesel::connection::SimpleConnection;
#[cfg(feature = "mysql")]
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::result::Error as DieselError;
#[cfg(feature = "mysql")]
use diesel::sql_types::Bool;
use diesel_sharded::backend::{BackendOf, Dialect, ShardedBackend};

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

    /// Connects as the `diesel` CLI does: the scheme selects the database, and an address without a scheme is a SQLite file. It also
    /// accepts the addresses of other tools: `mariadb://…`, `sqlite:…`.
    pub fn establish_at(address: Address<'_>) -> Result<Self, Error> {
        match address.scheme() {
            _ if address.text.trim().is_empty() => Err(address.refused("it is empty")),
            #[cfg(feature = "postgres")]
            ("postgres" | "postgresql", _) => {
                address.open(address.text).map(AnyConnection::Postgres)
            }
            #[cfg(feature = "mysql")]
            ("mysql" | "mariadb", rest) => {
                let mut conn: MysqlConnection = address.open(&format!("mysql:{rest}"))?;
                // Without a database, no query would find any tables.
                match diesel::select(sql::<Bool>("DATABASE() IS NULL")).get_result(&mut conn)? {
                    true => Err(address.refused("it has no database behind the server's name")),
                    false => Ok(AnyConnection::Mysql(conn)),
                }
            }
            #[cfg(feature = "sqlite")]
            ("sqlite", rest) => open_sqlite(rest.strip_prefix("//").unwrap_or(rest), address),
            #[cfg(feature = "sqlite")]
            ("" | "file", _) => open_sqlite(address.text, address),
            #[cfg(not(feature = "sqlite"))]
            ("", _) => Err(address.refused("this build opens no SQLite files")),
            (scheme, _) => Err(address.refused(format!("this build does not know {scheme}://"))),
        }
    }
}

#[cfg(feature = "sqlite")]
fn open_sqlite(file: &str, address: Address<'_>) -> Result<AnyConnection, Error> {
    // SQLite would create the file, as an empty database.
    let is_path = !file.starts_with("file:") && file != ":memory:";
    if is_path && !std::path::Path::new(file).is_file() {
        let why = "there is no such SQLite file, which `diesel setup` would create";
        return Err(address.refused(why));
    }
    let mut conn: SqliteConnection = address.open(file)?;
    conn.batch_execute("PRAGMA busy_timeout = 5000")?;
    match conn.batch_execute("PRAGMA schema_version") {
        Err(DieselError::DatabaseError(_, says)) if says.message().contains("not a database") => {
            Err(address.refused("this file is no SQLite database"))
        }
        opened => Ok(opened.map(|()| AnyConnection::Sqlite(conn))?),
    }
}

/// Does `work` while plain names refer to this schema only, if there is one. The catalogs are queried by plain names.
pub fn within<T>(
    schema: Option<&str>,
    conn: &mut AnyConnection,
    work: impl FnOnce(&mut AnyConnection) -> QueryResult<T>,
) -> QueryResult<T> {
    let (Some(schema), dialect) = (schema, conn.dialect()) else {
        return work(conn);
    };
    let (lead, back) = match dialect {
        Dialect::Postgres => ("SET search_path =", "RESET search_path".to_owned()),
        Dialect::Mysql => ("USE", format!("USE {}", quoted(dialect, &conn.database()?))),
        _ => return work(conn),
    };
    conn.batch_execute(&format!("{lead} {}", quoted(dialect, schema)))?;
    let done = work(conn);
    conn.batch_execute(&back)?;
    done
}

/// Runs `look` in a read-only transaction, or on SQLite on a read-only connection. Afterwards the session is as before.
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
            conn.batch_execute(SET)?; // for the next transaction only
            conn.transaction(look)
        }
        _ => {
            conn.batch_execute("PRAGMA query_only = ON")?;
            let looked = look(conn);
            conn.batch_execute("PRAGMA query_only = OFF")?;
            looked
        }
    }
}

/// The environment variable with the address.
pub const VARIABLE: &str = "DATABASE_URL";

/// The forms of an address that this build accepts.
const FORMS: &[&str] = &[
    #[cfg(feature = "postgres")]
    "postgres://USER:PASSWORD@HOST/DATABASE",
    #[cfg(feature = "mysql")]
    "mysql://USER:PASSWORD@HOST/DATABASE (or mariadb://)",
    #[cfg(feature = "sqlite")]
    "sqlite:FILE",
    #[cfg(feature = "sqlite")]
    "the path of a SQLite file",
];

/// The origin of the address. `file` is the `.env` that was read, if the environment had no address before.
pub fn origin(matches: &ArgMatches, file: Option<PathBuf>) -> String {
    match (matches.value_source("database_url"), file) {
        (Some(ValueSource::CommandLine), _) => "--database-url".to_owned(),
        (_, Some(file)) => format!("{VARIABLE} in {}", file.display()),
        _ => format!("{VARIABLE} in the environment"),
    }
}

/// An address, and where it came from.
#[derive(Debug, Clone, Copy)]
pub struct Address<'a> {
    pub text: &'a str,
    pub origin: &'a str,
}

impl<'a> Address<'a> {
    /// The scheme without its `:`, and the rest. A path has no scheme; `C:\videos.db` and `a:b.db` are paths.
    fn scheme(self) -> (&'a str, &'a str) {
        match self.text.split_once(':') {
            Some((scheme, rest)) if rest.starts_with("//") || scheme == "sqlite" => (scheme, rest),
            _ => ("", self.text),
        }
    }

    fn open<C: Connection>(self, url: &str) -> Result<C, Error> {
        C::establish(url).map_err(|error| self.failed(&error))
    }

    /// The error of a connection that could not be opened, without the password. A client library may quote a part of an address that it
    /// does not understand.
    fn failed(self, error: &ConnectionError) -> Error {
        let says = error.to_string();
        let says = says.trim_end();
        let says = match password(self.text) {
            Some(password) if !password.is_empty() => says.replace(password, "***"),
            _ => says.to_owned(),
        };
        Error::Refused(format!(
            "no connection to the database, whose address is from {}: {says}",
            self.origin
        ))
    }

    /// The error that this address leads to no database. It does not show an address with an `@`, which may contain a password.
    fn refused(self, why: impl fmt::Display) -> Error {
        let shown = match self.text.contains('@') {
            true => "the address".to_owned(),
            false => format!("`{}`", self.text),
        };
        Error::Refused(format!(
            "{shown}, from {}, leads to no database: {why}. These forms work: {}",
            self.origin,
            FORMS.join(", ")
        ))
    }
}

/// The password in `scheme://user:password@host/database`, even if it contains a `/` that should have been encoded.
fn password(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("://")?;
    let (place, _) = rest.split_once('?').unwrap_or((rest, ""));
    let (login, _) = place.rsplit_once('@')?;
    let (_, password) = login.split_once(':')?;
    Some(password)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_are_told_from_paths() {
        for (text, parts) in [
            ("mariadb://h/d", ("mariadb", "//h/d")),
            ("sqlite:a.db", ("sqlite", "a.db")),
            ("sqlite:///var/a.db", ("sqlite", "///var/a.db")),
            ("sqlite::memory:", ("sqlite", ":memory:")),
            (":memory:", ("", ":memory:")),
            ("a:b.db", ("", "a:b.db")),
            ("file:a.db?mode=ro", ("", "file:a.db?mode=ro")),
            ("C:\\a.db", ("", "C:\\a.db")),
        ] {
            let address = Address { text, origin: "" };
            assert_eq!(address.scheme(), parts, "{text}");
        }
    }

    #[test]
    fn passwords_are_found() {
        for (text, found) in [
            ("postgres://app:a:b@c@h:5432/d?x=y", Some("a:b@c")),
            ("mysql://app@h/d", None),
            ("mysql://app:a/b@h/d", Some("a/b")),
            ("a:b@c.db", None),
        ] {
            assert_eq!(password(text), found);
        }
    }
}
