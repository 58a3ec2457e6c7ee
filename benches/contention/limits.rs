//! The database's limits: the same SQL without Diesel, and commits that write next to nothing.

use std::io::Write;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use diesel::prelude::*;
use diesel_sharded_benches::machine::version;
use tempfile::NamedTempFile;

use crate::arena::{Arena, Disk, SLOW_COMMITS, Stage};
use crate::contender::total_of_shards;
use crate::load::{Limit, Slice};

/// Names in the report; targets refer to [`PGBENCH`].
pub const PGBENCH: &str = "pgbench, the same SQL, a shard per client";
pub const PGBENCH_EMPTY: &str = "pgbench, empty commits";
pub const SYSBENCH: &str = "sysbench, the same SQL, a shard per client";
pub const SYSBENCH_EMPTY: &str = "sysbench, one-row commits";

/// A database with its benchmark programs, if they are installed.
pub trait Limited: Arena {
    fn limits(stage: &Stage<Self>) -> Vec<Box<dyn Limit>>;
}

impl Limited for PgConnection {
    fn limits(stage: &Stage<Self>) -> Vec<Box<dyn Limit>> {
        if version("pgbench").is_none() {
            return vec![];
        }
        let by_client = r#"UPDATE "by_client_shards" AS "by_client" SET "views" = ("by_client"."views" + :n) WHERE ("by_client"."id" = :id) AND "by_client"."shard" = :client_id"#;
        // Writes a record to the log, so that there is something to commit, and touches no table.
        let empty = "SELECT pg_logical_emit_message(true, '', '')";
        let pgbench = |name, total, script: &str| -> Box<dyn Limit> {
            Box::new(Pgbench {
                name,
                total,
                script: format!("{script};\n"),
                url: stage.url().to_owned(),
                disk: stage.disk,
            })
        };
        vec![
            pgbench(PGBENCH, Some(total_of_shards("by_client")), by_client),
            pgbench(PGBENCH_EMPTY, None, empty),
        ]
    }
}

impl Limited for MysqlConnection {
    fn limits(stage: &Stage<Self>) -> Vec<Box<dyn Limit>> {
        if version("sysbench").is_none() {
            return vec![];
        }
        let by_client = "UPDATE `by_client_shards` AS `by_client` SET `views` = (`by_client`.`views` + 1) WHERE (`by_client`.`id` = 1) AND `by_client`.`shard` = ?";
        let one_row = "UPDATE `ticks` SET `n` = `n` + 1 WHERE `id` = ?";
        let sysbench = |name, total: String, statement| -> Box<dyn Limit> {
            Box::new(Sysbench {
                name,
                total,
                statement,
                url: stage.url().to_owned(),
            })
        };
        vec![
            sysbench(SYSBENCH, total_of_shards("by_client"), by_client),
            sysbench(SYSBENCH_EMPTY, "(SELECT SUM(n) FROM ticks)".into(), one_row),
        ]
    }
}

impl Limited for SqliteConnection {
    fn limits(_: &Stage<Self>) -> Vec<Box<dyn Limit>> {
        vec![]
    }
}

struct Pgbench {
    name: &'static str,
    total: Option<String>,
    script: String,
    url: String,
    disk: Disk,
}

impl Limit for Pgbench {
    fn name(&self) -> &'static str {
        self.name
    }

    fn total(&self) -> Option<String> {
        self.total.clone()
    }

    fn run(&self, connections: usize, duration: Duration) -> Slice {
        let mut pgbench = Command::new("pgbench");
        pgbench.args(["-n", "-M", "prepared", "-f", "-", "-D", "n=1", "-D", "id=1"]);
        pgbench.args(["-c", &connections.to_string()]);
        pgbench.args(["-j", &connections.min(2).to_string()]);
        pgbench.args(["-T", &whole_seconds(duration)]);
        pgbench.arg(&self.url);
        if self.disk == Disk::Slow {
            let options = SLOW_COMMITS.map(|(name, value)| format!("-c {name}={value}"));
            pgbench.env("PGOPTIONS", options.join(" "));
        }
        let output = output_of(pgbench, &self.script);
        Slice {
            rate: number_after(&output, "tps = "),
            succeeded: number_after(&output, "actually processed: "),
            ..Slice::default()
        }
    }
}

struct Sysbench {
    name: &'static str,
    total: String,
    statement: &'static str,
    url: String,
}

impl Limit for Sysbench {
    fn name(&self) -> &'static str {
        self.name
    }

    fn total(&self) -> Option<String> {
        Some(self.total.clone())
    }

    fn run(&self, connections: usize, duration: Duration) -> Slice {
        let (user, rest) = self.url["mysql://".len()..]
            .split_once('@')
            .expect("a user");
        let (address, database) = rest.split_once('/').expect("a database");
        let (host, port) = address.split_once(':').expect("a port");
        let mut script = NamedTempFile::with_suffix(".lua").expect("a temporary file");
        let lua = format!(
            "function thread_init()
                connection = sysbench.sql.driver():connect()
                statement = connection:prepare([[{}]])
                shard = statement:bind_create(sysbench.sql.type.INT)
                statement:bind_param(shard)
                shard:set(sysbench.tid)
            end
            function event()
                statement:execute()
            end",
            self.statement
        );
        script
            .write_all(lua.as_bytes())
            .expect("room in the temporary folder");
        let mut sysbench = Command::new("sysbench");
        sysbench.arg(script.path()).arg("--db-driver=mysql");
        sysbench.arg(format!("--mysql-host={host}"));
        sysbench.arg(format!("--mysql-port={port}"));
        sysbench.arg(format!("--mysql-user={user}"));
        sysbench.arg(format!("--mysql-db={database}"));
        sysbench.arg(format!("--threads={connections}"));
        sysbench.arg(format!("--time={}", whole_seconds(duration)));
        sysbench.arg("run");
        let output = output_of(sysbench, "");
        let succeeded: usize = number_after(&output, "transactions:");
        Slice {
            rate: succeeded as f64 / number_after::<f64>(&output, "total time:"),
            succeeded,
            ..Slice::default()
        }
    }
}

/// Rounds up: neither program accepts fractions of a second.
fn whole_seconds(duration: Duration) -> String {
    duration.as_secs_f64().ceil().to_string()
}

fn output_of(mut command: Command, input: &str) -> String {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = piped.spawn().expect("it is installed");
    let mut stdin = child.stdin.take().expect("its input is piped");
    stdin
        .write_all(input.as_bytes())
        .expect("it reads the script");
    drop(stdin);
    let output = child.wait_with_output().expect("its output");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

fn number_after<N: FromStr>(text: &str, label: &str) -> N {
    let (_, rest) = text
        .split_once(label)
        .unwrap_or_else(|| panic!("no {label:?} in {text}"));
    let rest = rest.trim_start();
    let end = rest
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(rest.len());
    rest[..end]
        .parse()
        .unwrap_or_else(|_| panic!("no number after {label:?} in {text}"))
}
