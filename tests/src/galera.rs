//! A MariaDB Galera cluster of a test's own: three nodes on this machine, which the test may do anything to.
//!
//! A test talks to each node through its Unix socket, which no network namespace cuts. The nodes talk to each other through
//! loopback, or, where the test is about a network that fails, each in a network namespace of its own, joined by a bridge in a
//! fourth one.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::dsl::{select, sql};
use diesel::prelude::*;
use diesel::sql_types::Text;

use crate::cluster::{Cluster, NODES, PATIENCE};
use crate::own_server::is_alive;
use crate::private::{
    as_user, find, folder, free_port, hand_over, keep_until_the_end, option, run, spawn,
    unprivileged,
};

/// The database that a test works in.
const DATABASE: &str = "test";
const PROVIDERS: [&str; 3] = [
    "/usr/lib/galera/libgalera_smm.so",
    "/usr/lib64/galera-4/libgalera_smm.so",
    "/usr/lib64/galera/libgalera_smm.so",
];

/// A running cluster. Its nodes are stopped when it is dropped, and at the latest with this process.
#[derive(Debug)]
pub struct Galera {
    programs: Programs,
    nodes: Vec<Node>,
    switch: Option<Switch>,
    /// Further settings of each node.
    settings: &'static [&'static str],
}

#[derive(Debug)]
struct Programs {
    server: PathBuf,
    install: PathBuf,
    provider: &'static str,
}

#[derive(Debug)]
struct Node {
    folder: PathBuf,
    address: String,
    /// For what nodes say to each other, for the transfer of what a node missed, and for that of everything.
    ports: [u16; 3],
    /// 0 if it does not run.
    process: AtomicU32,
}

impl Cluster for Galera {
    const HAS_FOREIGN_KEYS: bool = true;
    const WAIT_FOR_OTHERS: &'static str = "SET SESSION wsrep_sync_wait = 1";

    /// The nodes talk through loopback.
    fn start() -> Self {
        Self::on_loopback(&[NO_SYNC])
    }

    /// Needs root, for the network namespaces.
    fn start_behind_a_switch() -> Self {
        Self::switched(&[NO_SYNC])
    }

    /// Needs root, for the network namespaces.
    fn start_durable() -> Self {
        Self::switched(&[SYNC])
    }

    fn url(&self, node: usize) -> String {
        self.nodes[node].url(DATABASE)
    }

    fn conflicts(&self) -> u64 {
        let on = |node| {
            self.number(node, "wsrep_local_cert_failures")
                + self.number(node, "wsrep_local_bf_aborts")
        };
        (0..NODES).map(on).sum()
    }

    fn kill(&self, node: usize) {
        self.nodes[node].signal("KILL");
        self.nodes[node].wait_until_gone();
    }

    fn rejoin(&self, node: usize) {
        // A node that returns before the others have missed it blocks the whole cluster.
        let alive = self
            .nodes
            .iter()
            .filter(|node| node.process.load(Ordering::Relaxed) != 0);
        self.wait_for_members((node + 1) % NODES, alive.count());
        let position = self.recovered_position(node);
        self.spawn(node, Some(position));
        self.wait_until_synced(node);
    }

    fn restart(&self) {
        let positions: Vec<_> = (0..NODES)
            .map(|node| self.recovered_position(node))
            .collect();
        let commits = |position: &str| -> i64 {
            let number = position.rsplit(':').next().unwrap_or_default();
            number.parse().expect("a position is `uuid:number`")
        };
        let most = (0..NODES).max_by_key(|node| commits(&positions[*node]));
        let first = most.expect("several nodes");
        // Without it a node that did not leave last refuses to be the first.
        let state = self.nodes[first].data().join("grastate.dat");
        let text = fs::read_to_string(&state).expect("the state of the node");
        let safe = text.replace("safe_to_bootstrap: 0", "safe_to_bootstrap: 1");
        fs::write(&state, safe).expect("the state of the node");
        self.spawn(first, Some(positions[first].clone()));
        self.wait_until_synced(first);
        for node in (0..NODES).filter(|node| *node != first) {
            self.spawn(node, Some(positions[node].clone()));
            self.wait_until_synced(node);
        }
    }

    fn cut_off(&self, node: usize) {
        self.switch().set_port(node, "down");
    }

    fn plug_in(&self, node: usize) {
        self.switch().set_port(node, "up");
        self.wait_until(node, "wsrep_cluster_status", "Primary");
        self.wait_until_synced(node);
    }

    fn go_on_alone(&self, node: usize) {
        let conn = &mut self.administrate(node).expect("a node that answers");
        // The second is the name where the provider is a plugin, as in MariaDB 11.8.
        let orders = [
            "wsrep_provider_options = 'pc.bootstrap=YES'",
            "wsrep_provider_pc_bootstrap = ON",
        ];
        let answers = orders.map(|order| conn.batch_execute(&format!("SET GLOBAL {order}")));
        let is_heard = answers.iter().any(Result::is_ok);
        assert!(is_heard, "no node without a majority: {answers:?}");
        self.wait_until(node, "wsrep_cluster_status", "Primary");
    }

    /// A status variable of a node, as `SHOW STATUS` gives it.
    fn status(&self, node: usize, name: &str) -> ConnectionResult<String> {
        let value = format!(
            "(SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = '{name}')"
        );
        let value = select(sql::<Text>(&value)).get_result(&mut self.administrate(node)?);
        value.map_err(ConnectionError::CouldntSetupConfiguration)
    }

    fn log(&self, node: usize) -> String {
        fs::read_to_string(self.nodes[node].folder.join("log")).unwrap_or_default()
    }

    fn wait_for_members(&self, node: usize, members: usize) {
        self.wait_until(node, "wsrep_cluster_size", &members.to_string());
    }

    fn wait_until_it_refuses(&self, node: usize) {
        self.wait_until(node, "wsrep_cluster_status", "non-Primary");
    }
}

impl Galera {
    /// The nodes talk through loopback, and abort a transaction that locks a row that another one changed since its snapshot.
    pub fn start_with_snapshot_isolation() -> Self {
        Self::on_loopback(&[NO_SYNC, "--innodb-snapshot-isolation=ON"])
    }

    fn on_loopback(settings: &'static [&'static str]) -> Self {
        let nodes = (0..NODES).map(|_| Node {
            folder: folder(),
            address: "127.0.0.1".into(),
            ports: [free_port(), free_port(), free_port()],
            process: AtomicU32::new(0),
        });
        Self::of(nodes.collect(), None, settings)
    }

    fn switched(settings: &'static [&'static str]) -> Self {
        let switch = Switch::new();
        let nodes = (0..NODES).map(|node| Node {
            folder: folder(),
            address: Switch::address(node),
            ports: [4567, 4568, 4444],
            process: AtomicU32::new(0),
        });
        Self::of(nodes.collect(), Some(switch), settings)
    }

    fn of(nodes: Vec<Node>, switch: Option<Switch>, settings: &'static [&'static str]) -> Self {
        let galera = Galera {
            programs: Programs::find(),
            nodes,
            switch,
            settings,
        };
        galera.install();
        galera.spawn(0, None);
        galera.wait_until_synced(0);
        diesel::sql_query(format!("CREATE DATABASE {DATABASE}"))
            .execute(&mut galera.administrate(0).expect("it has just answered"))
            .expect("a database");
        for node in 1..NODES {
            galera.spawn(node, None);
        }
        for node in 1..NODES {
            galera.wait_until_synced(node);
        }
        galera
    }

    /// The first node's database; the others are given theirs when they join.
    fn install(&self) {
        let owner = unprivileged("mysql");
        for node in &self.nodes {
            hand_over(&node.folder, owner);
            run(as_user("mkdir".into(), owner).arg(node.data()));
        }
        run(as_user(self.programs.install.clone(), owner)
            .args([
                "--no-defaults",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                LOG_FILE_SIZE,
            ])
            .arg(option("--tmpdir=", &self.nodes[0].folder))
            .arg(option("--datadir=", &self.nodes[0].data())));
    }

    fn administrate(&self, node: usize) -> ConnectionResult<MysqlConnection> {
        MysqlConnection::establish(&self.nodes[node].url("mysql"))
    }

    /// The last position of a node that crashed. A distribution's service asks for it too before it starts the node.
    fn recovered_position(&self, node: usize) -> String {
        let node = &self.nodes[node];
        let mut recover = as_user(self.programs.server.clone(), unprivileged("mysql"));
        recover
            .args(SETTINGS)
            .args(["--wsrep-recover", "--wsrep-cluster-address=gcomm://"])
            .arg(format!("--wsrep-provider={}", self.programs.provider))
            .arg(option("--tmpdir=", &node.folder))
            .arg(option("--datadir=", &node.data()))
            .arg(option("--socket=", &node.folder.join("recovery")))
            .arg(option("--pid-file=", &node.folder.join("recovery.pid")));
        let output = recover.output().expect("the server's program");
        let log = String::from_utf8_lossy(&output.stderr);
        let position = log
            .lines()
            .find_map(|line| line.split_once("Recovered position: "));
        let (_, position) = position.unwrap_or_else(|| panic!("no position: {log}"));
        position.trim().to_owned()
    }

    fn switch(&self) -> &Switch {
        let switch = self.switch.as_ref();
        switch.expect("nodes on loopback cannot be cut off: start them behind a switch")
    }

    /// The same as a number.
    fn number(&self, node: usize, name: &str) -> u64 {
        let value = self.status(node, name).expect("a node that answers");
        value.parse().unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Waits until a node has all that the others have.
    fn wait_until_synced(&self, node: usize) {
        self.wait_until(node, "wsrep_local_state_comment", "Synced");
    }

    fn spawn(&self, node: usize, position: Option<String>) {
        let others: Vec<_> = (0..NODES)
            .filter(|other| {
                *other != node && self.nodes[*other].process.load(Ordering::Relaxed) != 0
            })
            .map(|other| self.nodes[other].talks_at())
            .collect();
        let Node {
            folder,
            address,
            ports: [_, missed, everything],
            ..
        } = &self.nodes[node];
        let talks_at = self.nodes[node].talks_at();
        let pid_file = folder.join("pid");
        let _ = fs::remove_file(&pid_file); // of a process that was killed
        let (mut command, owner) = match &self.switch {
            None => (vec![], unprivileged("mysql")),
            // A process enters a namespace as root; the server then drops that privilege by itself.
            Some(switch) => (switch.inside(node), None),
        };
        command.push(self.programs.server.clone().into());
        command.extend(SETTINGS.map(OsString::from));
        command.extend(self.settings.iter().map(OsString::from));
        for (name, path) in [
            ("--tmpdir=", folder.clone()), // a server that starts removes what others have in theirs
            ("--datadir=", folder.join("data")),
            ("--socket=", self.nodes[node].socket()),
            ("--pid-file=", pid_file.clone()),
        ] {
            command.push(option(name, &path).into());
        }
        if self.switch.is_some() {
            command.push("--user=mysql".into());
        }
        for setting in [
            format!("--wsrep-provider={}", self.programs.provider),
            format!("--wsrep-cluster-address=gcomm://{}", others.join(",")),
            format!("--wsrep-node-name=node{node}"),
            format!("--wsrep-node-address={talks_at}"),
            format!("--wsrep-sst-receive-address={address}:{everything}"),
            format!(
                "--wsrep-provider-options=gmcast.listen_addr=tcp://{talks_at};ist.recv_addr={address}:{missed};gcache.size=32M"
            ),
        ] {
            command.push(setting.into());
        }
        command
            .extend(position.map(|position| format!("--wsrep-start-position={position}").into()));
        spawn(command, owner, folder, &[]);
        let process = process_of(&pid_file, folder);
        self.nodes[node].process.store(process, Ordering::Relaxed);
    }
}

/// As small as it can be, for a short start.
const LOG_FILE_SIZE: &str = "--innodb-log-file-size=8M";

/// The nodes keep commits together: one alone may lose the last second.
const NO_SYNC: &str = "--innodb-flush-log-at-trx-commit=0";
/// Each node has a commit on its disk before it acknowledges it.
const SYNC: &str = "--innodb-flush-log-at-trx-commit=1";

const SETTINGS: [&str; 10] = [
    "--no-defaults",
    "--skip-networking",
    "--max-connections=300",
    "--binlog-format=ROW",
    "--innodb-autoinc-lock-mode=2",
    LOG_FILE_SIZE,
    "--wsrep-on=ON",
    "--wsrep-cluster-name=test",
    "--wsrep-slave-threads=4",
    "--wsrep-sst-method=rsync",
];

impl Programs {
    fn find() -> Self {
        let missing = "no MariaDB server with Galera is installed: apt-get install mariadb-server galera-4 rsync";
        let program = |name| find(name).unwrap_or_else(|| panic!("{missing} (no {name})"));
        let provider = PROVIDERS.iter().find(|file| Path::new(file).exists());
        program("rsync"); // by which a node that missed too much is given everything
        Programs {
            server: program("mariadbd"),
            install: program("mariadb-install-db"),
            provider: provider.unwrap_or_else(|| panic!("{missing} (none of {PROVIDERS:?})")),
        }
    }
}

impl Node {
    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    fn url(&self, database: &str) -> String {
        let socket = self.socket();
        format!(
            "mysql://root@localhost/{database}?unix_socket={}",
            socket.display()
        )
    }

    fn talks_at(&self) -> String {
        format!("{}:{}", self.address, self.ports[0])
    }

    fn signal(&self, signal: &str) {
        let process = self.process.load(Ordering::Relaxed);
        let kill = format!("kill -{signal} {process}");
        let sent = Command::new("/bin/sh").args(["-c", &kill]).status();
        assert!(sent.is_ok_and(|status| status.success()), "{kill}");
    }

    fn wait_until_gone(&self) {
        let process = self.process.swap(0, Ordering::Relaxed);
        let patience = Instant::now() + PATIENCE;
        while is_alive(process) {
            assert!(Instant::now() < patience, "process {process} does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.process.load(Ordering::Relaxed) != 0 {
            self.signal("KILL");
        }
    }
}

/// The server's process, as soon as it has written it down.
fn process_of(pid_file: &Path, folder: &Path) -> u32 {
    let patience = Instant::now() + PATIENCE;
    loop {
        let written = fs::read_to_string(pid_file).ok();
        if let Some(process) = written.and_then(|text| text.trim().parse().ok()) {
            return process;
        }
        if Instant::now() >= patience {
            let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
            panic!("the server did not start\n{log}");
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Network namespaces for the nodes, and one for the bridge that joins them. Deleted at the latest with this process.
#[derive(Debug)]
struct Switch {
    name: String,
}

impl Switch {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let switch = Switch {
            name: format!("sharded-{}-{number}", process::id()),
        };
        let bridge = switch.bridge();
        assert!(
            find("ip").is_some(),
            "no network namespaces: apt-get install iproute2"
        );
        let namespaces = (0..NODES)
            .map(|node| switch.namespace(node))
            .chain([bridge.clone()]);
        for namespace in namespaces {
            keep_until_the_end("ip netns delete \"$1\"", [&namespace]);
            ip(&format!("netns add {namespace}"));
        }
        ip(&format!("-n {bridge} link add bridge type bridge"));
        ip(&format!("-n {bridge} link set bridge up"));
        for node in 0..NODES {
            let (namespace, address) = (switch.namespace(node), Switch::address(node));
            ip(&format!(
                "link add node netns {namespace} type veth peer name port{node} netns {bridge}"
            ));
            ip(&format!("-n {bridge} link set port{node} master bridge up"));
            ip(&format!("-n {namespace} address add {address}/24 dev node"));
            ip(&format!("-n {namespace} link set lo up"));
            ip(&format!("-n {namespace} link set node up"));
        }
        switch
    }

    fn address(node: usize) -> String {
        format!("10.0.0.{}", node + 1)
    }

    fn bridge(&self) -> String {
        format!("{}-bridge", self.name)
    }

    fn namespace(&self, node: usize) -> String {
        format!("{}-{node}", self.name)
    }

    /// The command that runs another one in the namespace of a node.
    fn inside(&self, node: usize) -> Vec<OsString> {
        let ip = find("ip").expect("it was there before");
        let mut command = vec![ip.into_os_string()];
        command.extend(["netns", "exec"].map(OsString::from));
        command.push(self.namespace(node).into());
        command
    }

    fn set_port(&self, node: usize, state: &str) {
        ip(&format!("-n {} link set port{node} {state}", self.bridge()));
    }
}

fn ip(arguments: &str) {
    let program = find("ip").expect("it was there before");
    let output = Command::new(program).args(arguments.split(' ')).output();
    let output = output.expect("it can be run");
    assert!(
        output.status.success(),
        "no network namespaces, without which nodes cannot be cut off from each other: run this as root, or in a container \
         with --privileged (ip {arguments}: {})",
        String::from_utf8_lossy(&output.stderr)
    );
}
