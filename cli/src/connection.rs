//! The database at `DATABASE_URL`.

use diesel::prelude::*;
use diesel_sharded::backend::{BackendOf, Dialect, ShardedBackend};

use crate::error::Error;

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

    /// Connects as the `diesel` CLI does: by the scheme, and to a SQLite file where there is none.
    pub fn establish_by_url(url: Option<&str>) -> Result<Self, Error> {
        let url = url.ok_or(Error::NoDatabaseUrl)?;
        let scheme = url.split_once("://").map(|(scheme, _)| scheme);
        match scheme {
            #[cfg(feature = "postgres")]
            Some("postgres" | "postgresql") => {
                let conn = PgConnection::establish(url).map_err(Error::Connection)?;
                Ok(AnyConnection::Postgres(conn))
            }
            #[cfg(feature = "mysql")]
            Some("mysql") => {
                let conn = MysqlConnection::establish(url).map_err(Error::Connection)?;
                Ok(AnyConnection::Mysql(conn))
            }
            #[cfg(feature = "sqlite")]
            None | Some("sqlite" | "file") => {
                let file = url.strip_prefix("sqlite://").unwrap_or(url);
                Ok(AnyConnection::Sqlite(open_sqlite(file)?))
            }
            scheme => Err(Error::UnknownScheme(
                scheme.unwrap_or("(none, a SQLite file)").to_owned(),
            )),
        }
    }
}

#[cfg(feature = "sqlite")]
fn open_sqlite(file: &str) -> Result<SqliteConnection, Error> {
    use diesel::connection::SimpleConnection;

    // SQLite would create an empty database.
    let is_path = !file.starts_with("file:") && file != ":memory:";
    if is_path && !std::path::Path::new(file).exists() {
        return Err(Error::NoSuchFile(file.to_owned()));
    }
    let mut conn = SqliteConnection::establish(file).map_err(Error::Connection)?;
    conn.batch_execute("PRAGMA busy_timeout = 5000")?;
    Ok(conn)
}
