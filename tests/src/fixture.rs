//! Connections together with the database that they are to.

use std::array;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use diesel::connection::SimpleConnection;
use diesel_migrations::MigrationHarness;
use diesel_sharded::backend::ShardedBackend;

use crate::schema::{self, Creates};
use crate::{Database, TestConnection};

/// As many connections as the test names, to a database of their own: `let [conn, other] = &mut *Fixture::with_tables();`. They are closed
/// before the database is dropped, since MariaDB drops none in which a transaction is open.
#[derive(Debug)]
pub struct Fixture<Conn, const N: usize> {
    conns: [Conn; N],
    database: Arc<Database>,
}

impl<Conn: TestConnection, const N: usize> Fixture<Conn, N> {
    /// To an empty database.
    pub fn empty() -> Self {
        Self::to(Conn::database())
    }

    /// With the tables of `schema`.
    pub fn with_tables() -> Self
    where
        Conn: Creates,
    {
        let (database, _) = schema::database::<Conn>();
        Self::to(database)
    }

    /// With the library's own tables too.
    pub fn with_counters() -> Self
    where
        Conn: Creates + MigrationHarness<Conn::Backend>,
        Conn::Backend: ShardedBackend,
    {
        let (database, _) = schema::database_with_counters::<Conn>();
        Self::to(database)
    }

    pub fn to(database: Database) -> Self {
        Fixture {
            conns: array::from_fn(|_| Conn::connect(&database)),
            database: Arc::new(database),
        }
    }

    /// For tests that connect themselves.
    pub fn parts(&mut self) -> (&Arc<Database>, &mut [Conn; N]) {
        (&self.database, &mut self.conns)
    }
}

impl<Conn, const N: usize> Deref for Fixture<Conn, N> {
    type Target = [Conn; N];

    fn deref(&self) -> &[Conn; N] {
        &self.conns
    }
}

impl<Conn, const N: usize> DerefMut for Fixture<Conn, N> {
    fn deref_mut(&mut self) -> &mut [Conn; N] {
        &mut self.conns
    }
}

/// SQL that has to succeed.
pub trait Run: SimpleConnection {
    #[track_caller]
    fn run(&mut self, sql: &str) {
        if let Err(error) = self.batch_execute(sql) {
            panic!("{sql}: {error}");
        }
    }
}

impl<Conn: SimpleConnection + ?Sized> Run for Conn {}

/// Texts that the database computes from a text of SQL.
#[macro_export]
macro_rules! texts {
    ($sql:expr, $conn:expr) => {
        diesel::RunQueryDsl::load::<String>(
            diesel::select(diesel::dsl::sql::<diesel::sql_types::Text>($sql)),
            $conn,
        )
        .unwrap()
    };
}

/// One connection, and its database. They are dropped in this order.
#[derive(Debug)]
pub struct Connected<Conn> {
    pub conn: Conn,
    pub database: Database,
}

impl<Conn> From<(Database, Conn)> for Connected<Conn> {
    fn from((database, conn): (Database, Conn)) -> Self {
        Connected { conn, database }
    }
}
