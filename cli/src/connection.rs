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

    /// Connects as the `diesel` CLI does: by the scheme, and to a SQLite file where there is none. It also takes the addresses of
    /// other tools: `mariadb://…`, `sqlite:…`.
    pub fn establish_by_url(url: Option<&str>) -> Result<Self, Error> {
        let url = url.ok_or(Error::NoDatabaseUrl)?;
        match scheme(url) {
            #[cfg(feature = "postgres")]
            ("postgres" | "postgresql", _) => {
                let conn = PgConnection::establish(url).map_err(Error::Connection)?;
                Ok(AnyConnection::Postgres(conn))
            }
            #[cfg(feature = "mysql")]
            ("mysql" | "mariadb", rest) => {
                let url = format!("mysql:{rest}");
                let conn = MysqlConnection::establish(&url).map_err(Error::Connection)?;
                Ok(AnyConnection::Mysql(conn))
            }
            #[cfg(feature = "sqlite")]
            ("sqlite", rest) => {
                let file = rest.strip_prefix("//").unwrap_or(rest);
                Ok(AnyConnection::Sqlite(open_sqlite(file)?))
            }
            #[cfg(feature = "sqlite")]
            ("" | "file", _) => Ok(AnyConnection::Sqlite(open_sqlite(url)?)),
            #[cfg(not(feature = "sqlite"))]
            ("", _) => Err(Error::UnknownScheme("(none, a SQLite file)".to_owned())),
            (scheme, _) => Err(Error::UnknownScheme(scheme.to_owned())),
        }
    }
}

/// The scheme of an address without its `:`, and what follows it. A path has none, also `C:\videos.db` and `a:b.db`.
fn scheme(url: &str) -> (&str, &str) {
    match url.split_once(':') {
        Some((scheme, rest)) if rest.starts_with("//") || scheme == "sqlite" => (scheme, rest),
        _ => ("", url),
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

#[cfg(test)]
mod tests {
    use super::scheme;

    #[test]
    fn schemes_are_told_from_paths() {
        for (url, parts) in [
            ("mariadb://h/d", ("mariadb", "//h/d")),
            ("sqlite:a.db", ("sqlite", "a.db")),
            ("sqlite:///var/a.db", ("sqlite", "///var/a.db")),
            ("sqlite::memory:", ("sqlite", ":memory:")),
            (":memory:", ("", ":memory:")),
            ("a:b.db", ("", "a:b.db")),
            ("file:a.db?mode=ro", ("", "file:a.db?mode=ro")),
            ("C:\\a.db", ("", "C:\\a.db")),
        ] {
            assert_eq!(scheme(url), parts, "{url}");
        }
    }
}
