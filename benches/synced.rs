//! Databases whose commits wait for the disk.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded_tests::{Database, Server, TestConnection};

/// A connection type whose server can wait for the disk.
pub trait Synced: TestConnection {
    /// An empty database whose commits wait for the disk.
    fn synced_database() -> Database;
}

impl Synced for PgConnection {
    fn synced_database() -> Database {
        Database::on_server(Server::SyncedPostgres)
    }
}

impl Synced for MysqlConnection {
    fn synced_database() -> Database {
        let database = Database::on_server(Server::Mysql);
        let synced = "SET GLOBAL innodb_flush_log_at_trx_commit = 1";
        let mut conn = MysqlConnection::connect(&database);
        conn.batch_execute(synced).expect("a setting");
        database
    }
}
