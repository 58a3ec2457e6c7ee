//! A MariaDB primary with a replica that applies its binary log in parallel: a test's own.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::Text;

use crate::cluster::DATABASE;
use crate::in_front::port_of;
use crate::own_server::OwnServer;
use crate::{Server, number};

/// A primary and its replica. They are stopped when it is dropped, and at the latest with this process.
#[derive(Debug)]
pub struct MariadbPair([OwnServer; 2]);

impl MariadbPair {
    /// Starts both, or says what is not installed. Commits do not wait for the disk.
    pub fn start() -> Result<Self, String> {
        let start = |setting| OwnServer::start_with(Server::Mysql, setting);
        let pair = MariadbPair([start("--log-bin=binlog")?, start("--server-id=2")?]);
        let port = port_of(pair.0[0].address());
        let execute = |node, sql: &str| {
            let done = pair.connect_to(node, "mysql").batch_execute(sql);
            done.unwrap_or_else(|error| panic!("{sql}: {error}"));
        };
        execute(0, "SET GLOBAL innodb_flush_log_at_trx_commit = 0");
        execute(0, &format!("CREATE DATABASE {DATABASE}"));
        execute(1, "SET GLOBAL slave_parallel_threads = 4");
        let primary = format!("MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}");
        execute(
            1,
            &format!("CHANGE MASTER TO {primary}, MASTER_USER = 'root'"),
        );
        execute(1, "START SLAVE");
        Ok(pair)
    }

    /// The primary is node 0, the replica node 1.
    pub fn connect(&self, node: usize) -> MysqlConnection {
        self.connect_to(node, DATABASE)
    }

    fn connect_to(&self, node: usize, database: &str) -> MysqlConnection {
        let url = format!("{}/{database}", self.0[node].address());
        MysqlConnection::establish(&url).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    /// Waits until reads on the replica see everything that the primary has committed by now.
    pub fn wait_until_applied(&self) {
        let position = diesel::select(diesel::dsl::sql::<Text>("@@gtid_binlog_pos"));
        let position: String = position
            .get_result(&mut self.connect(0))
            .expect("it answers");
        let applied = format!("MASTER_GTID_WAIT('{position}', 300)");
        assert_eq!(number!(&applied, &mut self.connect_to(1, "mysql")), 0);
    }
}
