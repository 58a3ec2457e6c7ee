//! Support for every example: a connection to whichever database is configured, and the results of its threads.

use std::process::ExitCode;
use std::thread::ScopedJoinHandle;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;

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

/// Runs an example, which returns whether nothing was lost. Drops its tables before, as an interrupted run may have left some, and after.
pub fn run(
    example: &str,
    tables: &[&str],
    work: impl FnOnce(&str, &mut AnyConnection) -> Result<bool>,
) -> Result<ExitCode> {
    let url = database_url(example);
    let conn = &mut connect(&url)?;
    drop_tables(tables, conn)?;
    let all_right = work(&url, conn);
    drop_tables(tables, conn)?;
    Ok(match all_right? {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn drop_tables(tables: &[&str], conn: &mut AnyConnection) -> QueryResult<()> {
    tables
        .iter()
        .try_for_each(|table| conn.batch_execute(&format!("DROP TABLE IF EXISTS {table}")))
}

/// `DATABASE_URL`, or else a SQLite file in the temporary folder.
fn database_url(example: &str) -> String {
    std::env::var("DATABASE_URL").unwrap_or_else(|_| {
        let file = std::env::temp_dir().join(format!("diesel_sharded_{example}.db"));
        file.display().to_string()
    })
}

pub fn connect(url: &str) -> Result<AnyConnection> {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    let mut conn = match scheme {
        #[cfg(feature = "postgres")]
        Some("postgres" | "postgresql") => AnyConnection::Postgres(PgConnection::establish(url)?),
        #[cfg(feature = "mysql")]
        Some("mysql") => AnyConnection::Mysql(MysqlConnection::establish(url)?),
        None => AnyConnection::Sqlite(SqliteConnection::establish(url)?),
        Some(other) => {
            return Err(format!(
                "DATABASE_URL: add `--features postgres` or `--features mysql` for {other}://"
            )
            .into());
        }
    };
    set_up(&mut conn)?;
    Ok(conn)
}

/// The usual settings of an application on SQLite: writers wait for each other, and readers for nobody.
pub fn set_up(conn: &mut AnyConnection) -> QueryResult<()> {
    #[allow(
        irrefutable_let_patterns,
        reason = "without features there is SQLite alone"
    )]
    if let AnyConnection::Sqlite(conn) = conn {
        conn.batch_execute(
            "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL",
        )?;
    }
    Ok(())
}

pub fn join<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().map_err(|_| "a thread panicked")?
}
