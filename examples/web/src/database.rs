//! Connections to whichever database is configured, and the threads that they run in.

use std::fmt::Display;
use std::sync::Arc;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, CustomizeConnection, Pool};
use diesel_sharded::shard_choice::ShardChoice;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::config::{Kind, shown};
use crate::error::PageError;
use crate::{Result, schema};

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

pub type Connections = Pool<ConnectionManager<AnyConnection>>;

/// The pages' connections. A request waits for its turn without a thread, however many there are.
#[derive(Clone)]
pub struct Database {
    pub kind: Kind,
    url: String,
    connections: Connections,
    turns: Arc<Semaphore>,
}

impl Database {
    /// Connects, and creates the tables that are missing.
    pub fn open(url: &str) -> Result<Self> {
        let kind = Kind::of(url)?;
        let mut conn = connect(url)?;
        let migrated = schema::migrate(&mut conn);
        let hint = "the site needs a database of its own";
        migrated.map_err(|error| failure(url, &format!("{error}; {hint}")))?;
        let size = match kind {
            Kind::Sqlite => {
                // With its one writer at a time SQLite gains nothing by shards, and by default keeps to one. Here they are to be
                // seen on `/admin`.
                ShardChoice::Striped.set_global();
                4
            }
            Kind::Postgres | Kind::Mysql => 16,
        };
        Ok(Database {
            kind,
            url: url.to_owned(),
            connections: pool(url, size)?,
            turns: Arc::new(Semaphore::new(size as usize)),
        })
    }

    /// Runs `work` on a connection, in a thread that may wait for the database.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut AnyConnection) -> QueryResult<T> + Send + 'static,
    ) -> std::result::Result<T, PageError> {
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let turn = turn.map_err(PageError::internal)?;
        let connections = self.connections.clone();
        let worked = spawn_blocking(move || {
            let _turn = turn; // is over when the connection is back in the pool
            let mut conn = connections.get().map_err(PageError::internal)?;
            Ok(work(&mut conn).map_err(diesel_sharded::Error::from)?)
        });
        worked.await.map_err(PageError::internal)?
    }

    /// A connection beside the pages'.
    pub fn connect(&self) -> Result<AnyConnection> {
        connect(&self.url)
    }

    /// Connections beside the pages', for background work.
    pub fn background(&self) -> Result<Connections> {
        pool(&self.url, 3)
    }
}

fn pool(url: &str, size: u32) -> Result<Connections> {
    let builder = Pool::builder()
        .max_size(size)
        .connection_customizer(Box::new(Settings));
    Ok(builder.build(ConnectionManager::new(url))?)
}

fn connect(url: &str) -> Result<AnyConnection> {
    let established = match Kind::of(url)? {
        #[cfg(feature = "postgres")]
        Kind::Postgres => PgConnection::establish(url).map(AnyConnection::Postgres),
        #[cfg(feature = "mysql")]
        Kind::Mysql => MysqlConnection::establish(url).map(AnyConnection::Mysql),
        _ => SqliteConnection::establish(url).map(AnyConnection::Sqlite),
    };
    let mut conn = established.map_err(|error| failure(url, &error))?;
    set_up(&mut conn).map_err(|error| failure(url, &error))?;
    Ok(conn)
}

/// A failure to open the database, in one line.
fn failure(url: &str, error: &dyn Display) -> crate::Error {
    let error = error.to_string();
    let error = error.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("DATABASE_URL: {}: {error}", shown(url)).into()
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

#[derive(Debug)]
struct Settings;

impl CustomizeConnection<AnyConnection, diesel::r2d2::Error> for Settings {
    fn on_acquire(&self, conn: &mut AnyConnection) -> std::result::Result<(), diesel::r2d2::Error> {
        set_up(conn).map_err(diesel::r2d2::Error::QueryError)
    }
}
