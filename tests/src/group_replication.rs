//! A group of MySQL servers of a test's own that all accept writes (Group Replication, multi-primary), in containers of the image that
//! `scripts/images.sh mysql` builds.
//!
//! A test talks to each node through its Unix socket, in a folder that the container shares. The nodes talk to each other through a
//! network of their own, from which Docker can disconnect one.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;

use crate::ask_until;
use crate::cluster::{Cluster, DATABASE, NODES, url_by_socket};
use crate::container;
use crate::programs::{folder, keep_until_the_end};

const IMAGE: &str = "diesel-sharded-mysql:9";

/// A running group.
#[derive(Debug)]
pub struct GroupReplication {
    network: String,
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    container: String,
    address: String,
    folder: PathBuf,
    network: String,
    /// Those that the nodes do not have in common.
    settings: Vec<String>,
}

impl Cluster for GroupReplication {
    const HAS_FOREIGN_KEYS: bool = false;
    const WAIT_FOR_OTHERS: &'static str = "SET SESSION group_replication_consistency = 'BEFORE'";

    fn start() -> Self {
        Self::of("0")
    }

    fn start_behind_a_switch() -> Self {
        Self::start()
    }

    fn folder(&self, node: usize) -> &Path {
        &self.nodes[node].folder
    }

    fn query(status: &str) -> String {
        status.to_owned()
    }

    fn conflicts(&self) -> u64 {
        let of = "SELECT CAST(MAX(COUNT_CONFLICTS_DETECTED) AS CHAR) FROM performance_schema.replication_group_member_stats";
        let number = self.status(0, of).expect("a node that answers");
        number.parse().expect("a number")
    }

    fn kill(&self, node: usize) {
        docker(&["kill", &self.nodes[node].container]);
    }

    fn rejoin(&self, node: usize) {
        docker(&["start", &self.nodes[node].container]);
        self.join(node);
    }

    fn cut_off(&self, node: usize) {
        docker(&[
            "network",
            "disconnect",
            &self.network,
            &self.nodes[node].container,
        ]);
    }

    fn plug_in(&self, node: usize) {
        let Node {
            container, address, ..
        } = &self.nodes[node];
        docker(&[
            "network",
            "connect",
            "--ip",
            address,
            &self.network,
            container,
        ]);
        self.nodes[node].administrate("STOP GROUP_REPLICATION");
        self.join(node);
    }

    fn log(&self, node: usize) -> String {
        self.nodes[node].log()
    }

    fn wait_for_members(&self, node: usize, members: usize) {
        let online = "SELECT CAST(COUNT(*) AS CHAR) FROM performance_schema.replication_group_members WHERE MEMBER_STATE = 'ONLINE'";
        self.wait_until(node, online, &members.to_string());
    }

    fn wait_until_it_refuses(&self, node: usize) {
        self.wait_until(node, "SELECT CAST(@@super_read_only AS CHAR)", "1");
    }
}

impl GroupReplication {
    /// A cluster whose nodes write each commit before they acknowledge it.
    pub fn start_durable() -> Self {
        Self::of("1")
    }

    fn of(flush: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("sharded-{}-{number}", process::id());
        let subnet = subnet(&name);
        let addresses: Vec<_> = (0..NODES)
            .map(|node| format!("{subnet}.{}", node + 2))
            .collect();
        let seeds: Vec<_> = addresses
            .iter()
            .map(|address| format!("{address}:33061"))
            .collect();
        let seeds = seeds.join(",");
        let nodes = addresses.into_iter().enumerate().map(|(number, address)| {
            let node = Node {
                container: format!("{name}-{number}"),
                folder: folder(),
                network: name.clone(),
                settings: vec![
                    format!("--server-id={}", number + 1),
                    format!("--report-host={address}"),
                    format!("--innodb-flush-log-at-trx-commit={flush}"),
                    format!("--sync-binlog={flush}"),
                    format!("--loose-group-replication-local-address={address}:33061"),
                    format!("--loose-group-replication-group-seeds={seeds}"),
                ],
                address,
            };
            // At last the network, which no container uses any more.
            let remove = r#"docker rm --force --volumes "$1"; rm -rf "$2"; docker network rm "$3""#;
            let folder = node.folder.as_os_str();
            let (container, network) = (OsStr::new(&node.container), OsStr::new(&node.network));
            keep_until_the_end(remove, [container, folder, network]);
            node.run();
            node
        });
        let group = GroupReplication {
            nodes: nodes.collect(),
            network: name,
        };
        for node in &group.nodes {
            node.forget_its_birth();
        }
        group.bootstrap(0);
        group.nodes[0].administrate(&format!("CREATE DATABASE {DATABASE}"));
        for node in 1..NODES {
            group.join(node);
        }
        group
    }

    fn bootstrap(&self, node: usize) {
        let node = &self.nodes[node];
        node.administrate("SET GLOBAL group_replication_bootstrap_group = ON");
        node.administrate("START GROUP_REPLICATION USER = 'repl', PASSWORD = 'repl'");
        node.administrate("SET GLOBAL group_replication_bootstrap_group = OFF");
    }

    fn join(&self, node: usize) {
        let start = "START GROUP_REPLICATION USER = 'repl', PASSWORD = 'repl'";
        // The others may not have missed yet the node that was here before.
        let started = || self.nodes[node].try_to_administrate(start);
        ask_until(|| self.log(node), started);
        let state = "SELECT MEMBER_STATE FROM performance_schema.replication_group_members WHERE MEMBER_ID = @@server_uuid";
        self.wait_until(node, state, "ONLINE");
    }
}

impl Node {
    fn run(&self) {
        const START: &str = r#"set -e
mkdir -p /data
chown mysql /data /socket
chmod 755 /socket
rm -f /socket/*
[ -e /data/mysql ] || mysqld --no-defaults --user=mysql --datadir=/data --initialize-insecure
cat >/init.sql <<'SQL'
SET SQL_LOG_BIN = 0;
CREATE USER IF NOT EXISTS repl@'%' IDENTIFIED BY 'repl';
GRANT REPLICATION SLAVE, BACKUP_ADMIN, GROUP_REPLICATION_STREAM, CONNECTION_ADMIN ON *.* TO repl@'%';
SET SQL_LOG_BIN = 1;
SQL
chown mysql /init.sql
exec mysqld "$@""#;
        let volume = format!("{}:/socket", self.folder.display());
        let place = ["--network", &self.network, "--ip", &self.address];
        let mut arguments = vec!["run", "--detach", "--name", &self.container];
        arguments.extend(place);
        arguments.extend(["--volume", &volume, "--entrypoint", "/bin/sh", IMAGE]);
        arguments.extend(["-c", START, "start"]);
        arguments.extend(SETTINGS);
        arguments.extend(self.settings.iter().map(String::as_str));
        docker(&arguments);
    }

    /// The statements of its first start are no transactions of the group's.
    fn forget_its_birth(&self) {
        self.administrate("RESET BINARY LOGS AND GTIDS");
    }

    fn wait_until_it_answers(&self) -> MysqlConnection {
        let url = url_by_socket(&self.folder, "mysql");
        ask_until(|| self.log(), || MysqlConnection::establish(&url))
    }

    fn administrate(&self, sql: &str) {
        let done = self.try_to_administrate(sql);
        done.unwrap_or_else(|e| panic!("{sql}: {e}\n{}", self.log()));
    }

    fn try_to_administrate(&self, sql: &str) -> QueryResult<()> {
        self.wait_until_it_answers().batch_execute(sql)
    }

    fn log(&self) -> String {
        let logged = container::docker(&["logs", "--tail", "50", &self.container]);
        logged.unwrap_or_else(|error| error)
    }
}

impl Drop for GroupReplication {
    fn drop(&mut self) {
        for node in &self.nodes {
            remove(&node.container);
            let _ = fs::remove_dir_all(&node.folder); // the keeper tries it again
        }
    }
}

const SETTINGS: [&str; 21] = [
    "--no-defaults",
    "--user=mysql",
    "--datadir=/data",
    "--socket=/socket/socket",
    "--init-file=/init.sql",
    "--bind-address=0.0.0.0",
    "--mysqlx=OFF",
    "--max-connections=300",
    "--skip-name-resolve",
    "--gtid-mode=ON",
    "--enforce-gtid-consistency=ON",
    "--log-bin=binlog",
    "--plugin-load-add=group_replication.so",
    "--loose-group-replication-group-name=aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa",
    "--loose-group-replication-start-on-boot=OFF",
    "--loose-group-replication-single-primary-mode=OFF",
    "--loose-group-replication-enforce-update-everywhere-checks=ON",
    "--loose-group-replication-recovery-get-public-key=1",
    "--loose-group-replication-unreachable-majority-timeout=5",
    "--loose-group-replication-member-expel-timeout=0",
    "--loose-group-replication-autorejoin-tries=0",
];

/// A network of this name, and the beginning of its addresses.
fn subnet(name: &str) -> String {
    let first = process::id() % 200;
    let mut refused = String::new();
    for subnet in (first..first + 20).map(|n| format!("10.77.{n}")) {
        let range = format!("{subnet}.0/24");
        match container::docker(&["network", "create", "--subnet", &range, name]) {
            Ok(_) => return subnet,
            Err(error) => refused = error,
        }
    }
    panic!("no network for containers: {refused}");
}

fn docker(arguments: &[&str]) {
    let done = container::docker(arguments);
    done.unwrap_or_else(|error| {
        panic!("no container of {IMAGE}: start Docker's engine, and build the image by scripts/images.sh mysql ({error})")
    });
}

fn remove(container: &str) {
    let _ = container::docker(&["rm", "--force", "--volumes", container]); // the keeper tries it again
}
