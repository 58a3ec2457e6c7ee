//! The databases that are measured.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded_tests::fixture::Run;
use diesel_sharded_tests::{Database, Server, TestConnection, number};

use crate::names::{MARIADB, POSTGRESQL, SQLITE};

/// A connection type whose database is measured.
pub trait Measured: TestConnection {
    const NAME: &'static str;

    /// A query for the numbers from 1 to `n`, in a column `n`, to fill tables by.
    fn numbers(n: i64) -> String;

    /// Brings the statistics of a table up to date.
    fn analyze_table(&mut self, table: &str);

    /// The size of a table in bytes, its indexes included, once it is [analyzed](Self::analyze_table).
    fn size_of(&mut self, table: &str) -> i64;

    /// An empty database whose commits wait for the disk, if each connection to it says so.
    fn synced_database() -> Database {
        Self::database()
    }
}

impl Measured for PgConnection {
    const NAME: &'static str = POSTGRESQL;

    fn numbers(n: i64) -> String {
        format!("SELECT n FROM generate_series(1, {n}) AS n")
    }

    fn analyze_table(&mut self, table: &str) {
        self.run(&format!("VACUUM ANALYZE {table}"));
    }

    fn size_of(&mut self, table: &str) -> i64 {
        number!(&format!("pg_total_relation_size('{table}')"), self)
    }

    fn synced_database() -> Database {
        Database::on_server(Server::SyncedPostgres)
    }
}

impl Measured for MysqlConnection {
    const NAME: &'static str = MARIADB;

    fn numbers(n: i64) -> String {
        // MySQL has no sequences, and recursion ends at 1,000.
        format!(
            "WITH RECURSIVE c(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM c WHERE n < 999) \
             SELECT 1 + a.n + 1000 * b.n AS n FROM c AS a, c AS b WHERE a.n + 1000 * b.n < {n}"
        )
    }

    fn analyze_table(&mut self, table: &str) {
        self.run(&format!("ANALYZE TABLE {table}"));
    }

    fn size_of(&mut self, table: &str) -> i64 {
        let size = format!(
            "CAST((SELECT data_length + index_length FROM information_schema.tables \
             WHERE table_schema = DATABASE() AND table_name = '{table}') AS SIGNED)"
        );
        number!(&size, self)
    }

    fn synced_database() -> Database {
        let database = Self::database();
        let synced = "SET GLOBAL innodb_flush_log_at_trx_commit = 1, GLOBAL sync_binlog = 1";
        let mut conn = MysqlConnection::connect(&database);
        conn.batch_execute(synced).expect("a setting");
        database
    }
}

impl Measured for SqliteConnection {
    const NAME: &'static str = SQLITE;

    fn numbers(n: i64) -> String {
        format!(
            "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {n}) SELECT n FROM c"
        )
    }

    fn analyze_table(&mut self, table: &str) {
        self.run(&format!("ANALYZE {table}"));
    }

    fn size_of(&mut self, table: &str) -> i64 {
        let of_table = format!("SELECT name FROM sqlite_schema WHERE tbl_name = '{table}'");
        number!(
            &format!("(SELECT SUM(pgsize) FROM dbstat WHERE name IN ({of_table}))"),
            self
        )
    }
}
