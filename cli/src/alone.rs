//! Work that no second process does at the same time in this database.

use diesel::connection::SimpleConnection;
use diesel::result::Error as DieselError;
use diesel_sharded::backend::Dialect;
use diesel_sharded::retry::{Isolation, Transaction};

use crate::connection::AnyConnection;
use crate::error::Error;
use crate::statement::Statement;

/// How long MySQL waits for the lock; the others wait as long as their settings let them.
const SECONDS: u32 = 60;

/// Its lock, for the database alone. Names of locks have 64 characters at most, and MySQL from 9.6 on has no `MD5`.
const LOCK: &str = "CONCAT('diesel_sharded_setup_', LEFT(SHA2(COALESCE(DATABASE(), ''), 256), 40))";

/// Does this work while no other process does any by this function. It is done as a whole or not at all, except on MySQL, where each
/// statement that creates a table commits.
pub fn alone<T>(
    conn: &mut AnyConnection,
    mut work: impl FnMut(&mut AnyConnection) -> Result<T, Error>,
) -> Result<T, Error> {
    if conn.dialect() == Dialect::Mysql {
        let is_held = lock(conn)?;
        let done = work(conn);
        if is_held {
            let released = ask(conn, &format!("RELEASE_LOCK({LOCK})"));
            return done.and_then(|done| Ok(released.map(|_| done)?));
        }
        return done;
    }
    // Each statement sees what was committed while it waited.
    let transaction = Transaction::new().isolation(Isolation::ReadCommitted);
    transaction.run(conn, |conn| {
        if conn.dialect() == Dialect::Postgres {
            let lock = i64::from_be_bytes(*b"diesel_s");
            conn.batch_execute(&format!("SELECT pg_advisory_xact_lock({lock})"))?;
        }
        work(conn)
    })
}

/// Whether the lock is held now. A cluster may have none; its nodes run statements that create tables one after another.
fn lock(conn: &mut AnyConnection) -> Result<bool, Error> {
    match ask(conn, &format!("GET_LOCK({LOCK}, {SECONDS})")) {
        Ok(Some(held)) if held == "1" => Ok(true),
        Ok(_) => Err(Error::Locked { seconds: SECONDS }),
        Err(DieselError::DatabaseError(_, refused)) if refused.message().contains("GET_LOCK") => {
            Ok(false)
        }
        Err(error) => Err(error.into()),
    }
}

fn ask(conn: &mut AnyConnection, function: &str) -> Result<Option<String>, DieselError> {
    let asked = Statement::default().sql(&format!("SELECT CAST({function} AS CHAR)"));
    let rows = asked.rows(conn)?;
    Ok(rows.first().and_then(|row| row.get(0)).map(str::to_owned))
}
