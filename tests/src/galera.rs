//! A MariaDB Galera cluster of a test's own: three nodes on this machine, which the test may do anything to.
//!
//! A test talks to each node through its Unix socket, which no network namespace cuts. The nodes talk to each other through
//! loopback, or, where the test is about a network that fails, each in a network namespace of its own, joined by a bridge in a
//! fourth one.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use diesel::prelude::*;

use crate::cluster::{Cluster, DATABASE, NODES};
use crate::own_server::OwnServer;
use crate::programs::{
    Installed, Place, as_user, find, free_port, hand_over, keep_until_the_end, option, run,
};

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
    place: Place,
    address: String,
    /// For what nodes say to each other, for the transfer of what a node missed, and for that of everything.
    ports: [u16; 3],
    /// Once it has been started.
    server: OnceLock<OwnServer>,
    runs: AtomicBool,
}

impl Cluster for Galera {
    const HAS_FOREIGN_KEYS: bool = true;
    const WAIT_FOR_OTHERS: &'static str = "SET SESSION wsrep_sync_wait = 1";

    /// The nodes talk through loopback.
    fn start() -> Self {
        Self::on_loopback(&[])
    }

    /// Needs root, for the network namespaces.
    fn start_behind_a_switch() -> Self {
        Self::switched()
    }

    fn folder(&self, node: usize) -> &Path {
        &self.nodes[node].place.folder
    }

    fn query(status: &str) -> String {
        format!(
            "SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = '{status}'"
        )
    }

    fn conflicts(&self) -> u64 {
        let on = |node| {
            self.number(node, "wsrep_local_cert_failures")
                + self.number(node, "wsrep_local_bf_aborts")
        };
        (0..NODES).map(on).sum()
    }

    fn kill(&self, node: usize) {
        let Node { server, runs, .. } = &self.nodes[node];
        server.get().expect("it was started").kill();
        runs.store(false, Ordering::Relaxed);
    }

    fn rejoin(&self, node: usize) {
        // A node that returns before the others have missed it blocks the whole cluster.
        let alive = self.others(node).count();
        self.wait_for_members((node + 1) % NODES, alive);
        let position = self.recovered_position(node);
        self.spawn(node, Some(&position));
        self.wait_until_synced(node);
    }

    fn cut_off(&self, node: usize) {
        self.switch().set_port(node, "down");
    }

    fn plug_in(&self, node: usize) {
        self.switch().set_port(node, "up");
        self.wait_until(node, "wsrep_cluster_status", "Primary");
        self.wait_until_synced(node);
    }

    fn log(&self, node: usize) -> String {
        fs::read_to_string(self.folder(node).join("log")).unwrap_or_default()
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
        Self::on_loopback(&["innodb-snapshot-isolation=ON"])
    }

    fn on_loopback(settings: &'static [&'static str]) -> Self {
        let node = |_| Node::at("127.0.0.1".into(), [(); 3].map(|()| free_port()));
        Self::of((0..NODES).map(node).collect(), None, settings)
    }

    fn switched() -> Self {
        let switch = Switch::new();
        let node = |node| Node::at(Switch::address(node), [4567, 4568, 4444]);
        Self::of((0..NODES).map(node).collect(), Some(switch), &[])
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
        let Place { folder, owner, .. } = &self.nodes[0].place;
        run(as_user(self.programs.install.clone(), *owner)
            .args([
                "--no-defaults",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                "--innodb-log-file-size=8M",
            ])
            .arg(option("--tmpdir=", folder))
            .arg(option("--datadir=", &self.nodes[0].data())));
    }

    /// The last position of a node that crashed. A distribution's service asks for it too before it starts the node.
    fn recovered_position(&self, node: usize) -> String {
        let settings = option("--defaults-file=", &self.write_settings(node, None));
        let owner = self.nodes[node].place.owner;
        let mut recover = as_user(self.programs.server.clone(), owner);
        recover.args([&settings, "--wsrep-recover"]);
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

    /// A status variable of a node, as a number.
    fn number(&self, node: usize, name: &str) -> u64 {
        let value = self.status(node, name).expect("a node that answers");
        value.parse().unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// Waits until a node has all that the others have.
    fn wait_until_synced(&self, node: usize) {
        self.wait_until(node, "wsrep_local_state_comment", "Synced");
    }

    /// The other nodes, as far as they run.
    fn others(&self, of: usize) -> impl Iterator<Item = &Node> {
        let others = self.nodes.iter().enumerate();
        let others =
            others.filter(move |(node, other)| *node != of && other.runs.load(Ordering::Relaxed));
        others.map(|(_, other)| other)
    }

    /// Writes the settings with which a node starts next. Returns their file.
    fn write_settings(&self, node: usize, position: Option<&str>) -> PathBuf {
        let others: Vec<_> = self.others(node).map(Node::talks_at).collect();
        let this = &self.nodes[node];
        let (Node { place, address, .. }, talks_at) = (this, this.talks_at());
        let [_, missed, everything] = this.ports;
        let folder = place.folder.display();
        let mut text = format!(
            "{SETTINGS}\
             tmpdir={folder}\n\
             datadir={folder}/data\n\
             socket={folder}/socket\n\
             pid-file={folder}/pid\n\
             wsrep-provider={provider}\n\
             wsrep-cluster-address=gcomm://{others}\n\
             wsrep-node-name=node{node}\n\
             wsrep-node-address={talks_at}\n\
             wsrep-sst-receive-address={address}:{everything}\n\
             wsrep-provider-options=gmcast.listen_addr=tcp://{talks_at};ist.recv_addr={address}:{missed};gcache.size=32M\n",
            provider = self.programs.provider,
            others = others.join(","),
        );
        let position = position.map(|position| format!("wsrep-start-position={position}"));
        for setting in self.settings.iter().copied().chain(position.as_deref()) {
            text.push_str(&format!("{setting}\n"));
        }
        place.file("settings", &text)
    }

    fn spawn(&self, node: usize, position: Option<&str>) {
        let settings = option("--defaults-file=", &self.write_settings(node, position));
        let Node {
            place,
            server,
            runs,
            ..
        } = &self.nodes[node];
        runs.store(true, Ordering::Relaxed);
        if let Some(server) = server.get() {
            return server.start_again();
        }
        let program = self.programs.server.clone().into();
        let (command, owner) = match &self.switch {
            None => (vec![program, settings.into()], place.owner),
            // A process enters a namespace as root; the server then drops that privilege by itself.
            Some(switch) => {
                let mut command = switch.inside(node);
                command.extend([program, settings.into(), "--user=mysql".into()]);
                (command, None)
            }
        };
        server.get_or_init(|| {
            OwnServer::starting(Installed {
                command,
                owner,
                environment: vec![],
                folder: place.folder.clone(),
                address: String::new(),
            })
        });
    }
}

/// The log is as small as it can be, for a short start. The nodes keep commits together: one alone may lose the last second.
const SETTINGS: &str = "[mysqld]
skip-networking
max-connections=300
binlog-format=ROW
innodb-autoinc-lock-mode=2
innodb-log-file-size=8M
innodb-flush-log-at-trx-commit=0
wsrep-on=ON
wsrep-cluster-name=test
wsrep-slave-threads=4
wsrep-sst-method=rsync
";

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
    fn at(address: String, ports: [u16; 3]) -> Self {
        let node = Node {
            place: Place::of("mysql"),
            address,
            ports,
            server: OnceLock::new(),
            runs: AtomicBool::new(false),
        };
        fs::create_dir(node.data()).expect("a folder");
        hand_over(&node.data(), node.place.owner);
        node
    }

    fn data(&self) -> PathBuf {
        self.place.folder.join("data")
    }

    fn talks_at(&self) -> String {
        format!("{}:{}", self.address, self.ports[0])
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
