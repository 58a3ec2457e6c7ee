//! The machine and the servers that were measured.

use std::fs;
use std::thread;

use diesel::prelude::*;
use diesel_sharded_tests::TestConnection;
use serde_json::{Value, json};

use crate::limits::version;

/// Describes the machine, the servers, the programs, and the settings that matter most.
pub fn describe() -> Value {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    json!({
        "cpu": model.map(|(_, model)| model),
        "cores": thread::available_parallelism().map_or(0, usize::from),
        "kernel": kernel.trim(),
        "PostgreSQL": version_of::<PgConnection>(),
        "MariaDB": version_of::<MysqlConnection>(),
        "SQLite": version_of::<SqliteConnection>(),
        "Redis": version("redis-server"),
        "pgbench": version("pgbench").unwrap_or_else(|| "not installed, not measured: apt-get install postgresql-contrib".into()),
        "sysbench": version("sysbench").unwrap_or_else(|| "not installed, not measured: apt-get install sysbench".into()),
        "no fsync": "PostgreSQL fsync=off; MariaDB innodb_flush_log_at_trx_commit=0; SQLite WAL, synchronous=NORMAL",
        "local disk": "PostgreSQL fsync=on; MariaDB innodb_flush_log_at_trx_commit=1; SQLite WAL, synchronous=FULL",
        "local disk + 1 ms": "PostgreSQL fsync=on, commit_delay=1000, commit_siblings=0",
    })
}

fn version_of<Conn: TestConnection>() -> String {
    Conn::connect(&Conn::database()).version()
}
