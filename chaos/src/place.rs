//! A database on a server of its own, on which rounds are played.

use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::R2D2Connection;
use diesel::sql_types::Text;
use diesel_sharded_tests::Server;
use diesel_sharded_tests::own_server::OwnServer;
use tempfile::TempDir;

use crate::backend::{Backend, ChaosConnection, Locks, Settings};
use crate::checker::Aftermath;
use crate::operation::{Answer, Store};
use crate::sql_store::SqlStore;
use crate::workload::{BASE, Round};
use crate::{until, with_connection};

/// The settings of the connections that prepare and judge rounds.
pub(crate) const PATIENT: Settings = Settings {
    deadline: Duration::from_secs(60),
    locks: Locks::Waited,
};

/// A database with the clients' tables. Its commits wait for the disk.
#[derive(Debug)]
pub struct Place {
    pub backend: Backend,
    pub url: String,
    /// `None` for SQLite, and where the fault keeps the servers.
    server: Option<OwnServer>,
    folder: TempDir,
}

impl Place {
    /// Starts the server and creates the tables.
    ///
    /// # Panics
    /// If the server is not installed.
    pub fn new(backend: Backend) -> Self {
        let server = match backend {
            Backend::Postgres => Some(OwnServer::start(Server::SyncedPostgres)),
            Backend::Mariadb => Some(OwnServer::mysql_with_binary_log(".".as_ref())),
            Backend::Sqlite => None,
        };
        match server {
            Some(server) => Place::of(
                backend,
                server.unwrap_or_else(|missing| panic!("{missing}")),
            ),
            None => {
                let folder = TempDir::new().expect("a temporary folder");
                let url = folder.path().join("chaos.db").display().to_string();
                Place {
                    folder,
                    ..Place::at(backend, url)
                }
            }
        }
    }

    /// Creates a database on this server, and the tables.
    pub fn of(backend: Backend, server: OwnServer) -> Self {
        let is_mariadb = backend == Backend::Mariadb;
        let database = if is_mariadb { "mysql" } else { "postgres" };
        let [its_own, url] = [database, "chaos"].map(|name| format!("{}/{name}", server.address()));
        with_connection!(backend, Conn => {
            let mut conn = Conn::establish(&its_own).expect("the server answers");
            conn.batch_execute("CREATE DATABASE chaos").expect("a database");
        });
        Place {
            server: Some(server),
            ..Place::at(backend, url)
        }
    }

    /// Creates the tables in an empty database on servers that the fault keeps by itself.
    pub fn at(backend: Backend, url: String) -> Self {
        let place = Place {
            backend,
            url,
            server: None,
            folder: TempDir::new().expect("a temporary folder"),
        };
        place.create_tables();
        place
    }

    /// Creates the clients' tables in the database at `url`.
    pub fn create_tables(&self) {
        with_connection!(self.backend, Conn => self.connect::<Conn>().create_tables());
    }

    pub fn connect<Conn: ChaosConnection>(&self) -> Conn {
        let mut conn = Conn::establish(&self.url)
            .unwrap_or_else(|error| panic!("no connection to {}: {error}", self.url));
        conn.set_up(PATIENT).expect("settings");
        conn
    }

    /// Returns the server.
    ///
    /// # Panics
    /// If it has none, as on SQLite.
    pub fn server(&mut self) -> &mut OwnServer {
        self.server.as_mut().expect("a database with a server")
    }

    /// Runs a statement.
    pub fn execute(&self, statement: &str) {
        with_connection!(self.backend, Conn => {
            let done = self.connect::<Conn>().batch_execute(statement);
            done.unwrap_or_else(|error| panic!("{statement}: {error}"));
        });
    }

    /// Limits each statement's wait for a lock to a second, MariaDB's least limit. Without one it would wait as long as the lock is held.
    pub fn limit_waits_for_locks(&self) {
        self.execute(match self.backend {
            Backend::Postgres => "ALTER DATABASE chaos SET lock_timeout = '1s'",
            _ => "SET GLOBAL innodb_lock_wait_timeout = 1",
        });
    }

    /// Runs a query that returns one text, in the column `answer`.
    pub fn ask(&self, question: &str) -> String {
        #[derive(QueryableByName)]
        struct Row {
            #[diesel(sql_type = Text)]
            answer: String,
        }
        with_connection!(self.backend, Conn => {
            let row = diesel::sql_query(question).get_result::<Row>(&mut self.connect::<Conn>());
            row.unwrap_or_else(|error| panic!("{question}: {error}")).answer
        })
    }

    /// Returns the folder of the database and its logs.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Inserts the rows of a round.
    pub fn prepare(&self, round: Round) {
        with_connection!(self.backend, Conn => {
            let inserted = self.connect::<Conn>().insert_rows(&round.rows(), BASE);
            inserted.expect("the rows of a round");
        });
    }

    /// Reads all totals and tokens once no other connection is left. The server has then committed or rolled back everything that
    /// killed clients had sent.
    pub fn aftermath(&self, round: Round) -> Aftermath {
        with_connection!(self.backend, Conn => {
            let mut conn = self.connect::<Conn>();
            until("connections of killed clients are closed", || conn.others().expect("the server answers") == 0);
            conn.ping().expect("the server answers");
            let tokens = conn.tokens(&round.tokens_prefix()).expect("the tokens");
            let mut store = SqlStore::<Conn>::new(&self.url, PATIENT, None);
            store.prepare();
            let totals = round.reads().into_iter().flat_map(|read| match store.run(&read) {
                Ok(Answer::Totals(totals)) => totals,
                answer => panic!("{read:?}: {answer:?}"),
            });
            Aftermath {
                totals: totals.collect(),
                tokens,
            }
        })
    }
}
