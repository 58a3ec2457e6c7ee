//! A connection to whichever database is configured: the one place that names them.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Pool};

pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T> = std::result::Result<T, Error>;

#[derive(diesel::MultiConnection)]
pub enum AnyConnection {
    #[cfg(feature = "postgres")]
    Postgres(PgConnection),
    #[cfg(feature = "mysql")]
    Mysql(MysqlConnection),
    Sqlite(SqliteConnection),
}

diesel_sharded::multi_connection!(AnyConnection {
    #[cfg(feature = "postgres")]
    Postgres: Postgres,
    #[cfg(feature = "mysql")]
    Mysql: Mysql,
    Sqlite: Sqlite,
});

/// The address is the URL of a server, or a file of SQLite.
pub fn connect(url: &str) -> Result<AnyConnection> {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    let mut conn = match scheme {
        #[cfg(feature = "postgres")]
        Some("postgres" | "postgresql") => AnyConnection::Postgres(PgConnection::establish(url)?),
        #[cfg(feature = "mysql")]
        Some("mysql") => AnyConnection::Mysql(MysqlConnection::establish(url)?),
        None => AnyConnection::Sqlite(SqliteConnection::establish(url)?),
        Some(other) => {
            let features = "`--features postgres` or `--features mysql`";
            return Err(format!("DATABASE_URL: add {features} for {other}://").into());
        }
    };
    set_up(&mut conn)?;
    Ok(conn)
}

pub type Connections = Pool<ConnectionManager<AnyConnection>>;

/// A pool of at most this many connections.
pub fn pool(url: &str, size: u32) -> Result<Connections> {
    let builder = Pool::builder()
        .max_size(size)
        .connection_customizer(Box::new(Settings));
    Ok(builder.build(ConnectionManager::new(url))?)
}

#[derive(Debug)]
struct Settings;

impl CustomizeConnection<AnyConnection, diesel::r2d2::Error> for Settings {
    fn on_acquire(&self, conn: &mut AnyConnection) -> std::result::Result<(), diesel::r2d2::Error> {
        set_up(conn).map_err(diesel::r2d2::Error::QueryError)
    }
}

/// The usual settings of an application on SQLite: writers wait for each other, and readers for nobody.
fn set_up(conn: &mut AnyConnection) -> QueryResult<()> {
    #[allow(
        irrefutable_let_patterns,
        reason = "without features there is SQLite alone"
    )]
    if let AnyConnection::Sqlite(conn) = conn {
        conn.batch_execute(
            "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; \
             PRAGMA foreign_keys = ON",
        )?;
    }
    Ok(())
}
