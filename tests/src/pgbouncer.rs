//! A PgBouncer of a test's own, in front of the PostgreSQL server that the test process shares.

use crate::container::start_pgbouncer;
use crate::in_front::{on_port, port_of};
use crate::programs::{Place, find, free_port, keep_running};
use crate::{Database, Server};

/// When the pooler hands a server's connection to another client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolMode {
    /// After each transaction.
    Transaction,
    /// When the client disconnects.
    Session,
}

impl PoolMode {
    fn name(self) -> &'static str {
        match self {
            PoolMode::Transaction => "transaction",
            PoolMode::Session => "session",
        }
    }
}

/// A running pooler with few server connections. Stopped with this process.
#[derive(Debug)]
pub struct PgBouncer {
    port: u16,
}

impl PgBouncer {
    /// Starts one with this many connections to the server for each database.
    pub fn start(mode: PoolMode, server_connections: usize) -> Self {
        let program =
            find("pgbouncer").expect("no PgBouncer is installed: apt-get install pgbouncer");
        let place = Place::of("postgres");
        let port = place.port;
        let (server_port, mode) = (port_of(Server::Postgres.address()), mode.name());
        let text = format!(
            "[databases]\n\
             * = host=127.0.0.1 port={server_port} user=postgres\n\
             [pgbouncer]\n\
             listen_addr = 127.0.0.1\n\
             listen_port = {port}\n\
             unix_socket_dir =\n\
             auth_type = any\n\
             pool_mode = {mode}\n\
             default_pool_size = {server_connections}\n\
             max_client_conn = 300\n\
             server_fast_close = 1\n\
             ignore_startup_parameters = extra_float_digits\n"
        );
        let settings = place.file("pgbouncer.ini", &text).into_os_string();
        keep_running(place.runs(program, [settings], "postgres://postgres@127.0.0.1"));
        PgBouncer { port }
    }

    /// The same, with a version that keeps the clients' prepared statements on every connection to the server, in a container.
    pub fn start_newer(mode: PoolMode, server_connections: usize) -> Self {
        let port = free_port();
        let server_port = port_of(Server::Postgres.address());
        start_pgbouncer(port, server_port, mode.name(), server_connections);
        PgBouncer { port }
    }

    /// The address of `database` behind the pooler.
    pub fn url(&self, database: &Database) -> String {
        on_port(database.url(), self.port)
    }
}
