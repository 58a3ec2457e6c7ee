//! The transactions of plain contenders: Diesel's own, in the retry loop that an application writes around them.

use diesel::Connection;
use diesel::result::{DatabaseErrorKind, Error as DieselError, QueryResult};

/// The attempts of a transaction; as many as this crate makes by default.
const ATTEMPTS: usize = 32;

/// Runs `f` in a transaction, and again from the start when it meets a conflict.
pub fn transaction<Conn: Connection, T>(
    conn: &mut Conn,
    f: impl Fn(&mut Conn) -> QueryResult<T>,
) -> QueryResult<T> {
    let mut attempts = ATTEMPTS;
    loop {
        attempts -= 1;
        match conn.transaction(&f) {
            Err(error) if attempts > 0 && is_conflict(&error) => {}
            done => return done,
        }
    }
}

fn is_conflict(error: &DieselError) -> bool {
    match error {
        DieselError::DatabaseError(DatabaseErrorKind::SerializationFailure, _) => true,
        DieselError::DatabaseError(_, reason) => ["deadlock", "Deadlock", "locked"]
            .iter()
            .any(|conflict| reason.message().contains(conflict)),
        _ => false,
    }
}
