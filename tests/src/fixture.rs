//! A database with a connection to it.

use crate::Database;

/// The fields are dropped in their order: a database that is dropped before its connection waits for ever for an open transaction.
#[derive(Debug)]
pub struct Fixture<Conn> {
    pub conn: Conn,
    pub database: Database,
}

impl<Conn> From<(Database, Conn)> for Fixture<Conn> {
    fn from((database, conn): (Database, Conn)) -> Self {
        Fixture { conn, database }
    }
}
