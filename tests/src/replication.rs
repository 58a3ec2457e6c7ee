//! A PostgreSQL primary with its standby, by streaming replication: a test's own, which it may do anything to.
//!
//! The standby receives the log through a [`Link`], which a test can cut. Tests and clients reach both servers directly.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::sql_types::Text;

use crate::ask_until;
use crate::in_front::port_of;
use crate::link::Link;
use crate::own_server::OwnServer;
use crate::programs::{
    Installed, as_user, hand_over, postgres_programs, postgres_with, run, unprivileged,
};

/// Settings of both servers. They are in a file of the data, where pg_rewind finds them too.
const SETTINGS: [&str; 4] = [
    "fsync=on",
    "wal_keep_size=512MB",
    "wal_retrieve_retry_interval=200ms",
    "hot_standby=on",
];

/// How a commit on the primary waits for the standby.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replication {
    /// Until the standby has the commit on its disk: `synchronous_commit = on`.
    On,
    /// Until reads on the standby see it too: `synchronous_commit = remote_apply`.
    RemoteApply,
}

/// A primary and its standby. They are stopped when it is dropped, and at the latest with this process.
#[derive(Debug)]
pub struct Pair {
    nodes: [Node; 2],
    /// The node that is the primary.
    primary: usize,
}

#[derive(Debug)]
struct Node {
    server: OwnServer,
    /// Leads to this server, for the other one.
    link: Link,
}

impl Node {
    fn of(installed: Installed) -> Self {
        let server = OwnServer::of(installed);
        let link = Link::to(server.address());
        Node { server, link }
    }

    fn url(&self, database: &str) -> String {
        format!("{}/{database}", self.server.address())
    }

    fn connect(&self) -> PgConnection {
        let url = self.url("postgres");
        PgConnection::establish(&url).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    fn execute(&self, sql: &str) {
        let done = self.connect().batch_execute(sql);
        done.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    fn ask(&self, question: &str) -> QueryResult<String> {
        let question = diesel::dsl::sql::<Text>(question);
        diesel::select(question).get_result(&mut self.connect())
    }
}

impl Pair {
    /// Starts both, or says what is not installed.
    pub fn start() -> Result<Self, String> {
        let bin = postgres_programs()?;
        let primary = Node::of(postgres_with(&bin, |data, owner| {
            let mut initdb = as_user(bin.join("initdb"), owner);
            initdb.arg("-D").arg(data);
            // pg_rewind asks for checksums.
            run(initdb.args([
                "-U",
                "postgres",
                "--auth=trust",
                "--no-sync",
                "--data-checksums",
            ]));
            let settings = SETTINGS.map(|setting| format!("{setting}\n")).concat();
            append(&data.join("postgresql.conf"), &settings);
        }));
        let standby = Node::of(postgres_with(&bin, |data, owner| {
            let mut backup = as_user(bin.join("pg_basebackup"), owner);
            backup.arg("-D").arg(data).arg("-d");
            backup.arg(primary.url("postgres"));
            run(backup.args(["--checkpoint=fast", "--no-sync"]));
            follow(data, primary.link.port());
        }));
        let pair = Pair {
            nodes: [primary, standby],
            primary: 0,
        };
        pair.wait_until_it_streams();
        Ok(pair)
    }

    fn primary(&self) -> &Node {
        &self.nodes[self.primary]
    }

    fn standby(&self) -> &Node {
        &self.nodes[1 - self.primary]
    }

    /// The address of whichever server takes writes, as libpq and tokio-postgres look for it.
    pub fn url(&self, database: &str) -> String {
        let port = |node: usize| port_of(self.nodes[node].server.address());
        let (first, second) = (port(0), port(1));
        format!(
            "postgres://postgres@127.0.0.1:{first},127.0.0.1:{second}/{database}\
             ?target_session_attrs=read-write&connect_timeout=2"
        )
    }

    /// The address of the primary alone.
    pub fn primary_url(&self, database: &str) -> String {
        self.primary().url(database)
    }

    /// The address of the standby alone.
    pub fn standby_url(&self, database: &str) -> String {
        self.standby().url(database)
    }

    /// Changes how the primary's commits wait, and returns when the standby has everything and the new way holds.
    pub fn replicate(&self, replication: Replication) {
        let commit = match replication {
            Replication::On => "on",
            Replication::RemoteApply => "remote_apply",
        };
        for set in [
            format!("ALTER SYSTEM SET synchronous_commit = '{commit}'"),
            "ALTER SYSTEM SET synchronous_standby_names = '*'".to_owned(),
            "SELECT pg_reload_conf()".to_owned(),
        ] {
            self.primary().execute(&set);
        }
        self.wait_until_the_standby("sync_state", "sync");
    }

    /// Waits until the standby receives the primary's log, and has written all of it.
    fn wait_until_it_streams(&self) {
        self.wait_until_the_standby("state", "streaming");
        self.wait_until_it_has_all("flush_lsn");
    }

    /// Waits until reads on the standby see everything that the primary has committed by now.
    pub fn wait_until_applied(&self) {
        self.wait_until_it_has_all("replay_lsn");
    }

    fn wait_until_it_has_all(&self, up_to: &str) {
        let end = self.primary().ask("pg_current_wal_lsn()::text");
        let end = end.expect("the primary answers");
        self.wait_until_the_standby(&format!("({up_to} >= '{end}')"), "true");
    }

    fn wait_until_the_standby(&self, what: &str, value: &str) {
        let question =
            format!("COALESCE((SELECT ({what})::text FROM pg_stat_replication), 'gone')");
        let logs = || {
            let logs = self.nodes.iter();
            let logs = logs.map(|node| fs::read_to_string(node.server.folder().join("log")));
            format!("the logs: {:#?}", logs.collect::<Vec<_>>())
        };
        ask_until(logs, || match self.primary().ask(&question) {
            Ok(answer) if answer == value => Ok(()),
            answer => Err(format!("{what} is {answer:?}")),
        });
    }

    /// Kills all processes of the primary (SIGKILL).
    pub fn kill_the_primary(&self) {
        self.primary().server.kill();
    }

    /// Kills all processes of the server that is not the primary: after [`promote`](Self::promote), the old one.
    pub fn kill_the_other(&self) {
        self.standby().server.kill();
    }

    /// Makes the standby the primary. It waits for no standby from now on, and the old primary is not told.
    pub fn promote(&mut self) {
        // Nobody would be there for whom its commits could wait.
        for sql in [
            "ALTER SYSTEM SET synchronous_standby_names = ''",
            "SELECT pg_reload_conf()",
            "SELECT pg_promote(true, 60)",
        ] {
            self.standby().execute(sql);
        }
        self.primary = 1 - self.primary;
        let is_primary = self.primary().ask("(NOT pg_is_in_recovery())::text");
        assert_eq!(is_primary.expect("the primary answers"), "true");
    }

    /// Makes the other server, which was killed, the standby: what it alone has committed is undone (`pg_rewind`).
    pub fn rejoin(&mut self) {
        // Without a checkpoint its control file does not name the timeline yet.
        self.primary().execute("CHECKPOINT");
        let bin = postgres_programs().expect("it runs");
        let data = self.standby().server.folder().join("data");
        // It names a process that was killed and not yet reaped.
        fs::remove_file(data.join("postmaster.pid")).expect("a server that was killed");
        let mut rewind = as_user(bin.join("pg_rewind"), unprivileged("postgres"));
        rewind.arg(format!("--target-pgdata={}", data.display()));
        rewind.arg(format!("--source-server={}", self.primary_url("postgres")));
        run(&mut rewind);
        follow(&data, self.primary().link.port());
        let standby = 1 - self.primary;
        self.nodes[standby].server.restart();
        self.wait_until_it_streams();
    }

    /// Cuts the link by which the standby receives the log: neither server notices.
    pub fn cut_the_link(&self) {
        self.primary().link.cut();
    }

    /// Joins the links again.
    pub fn join_the_links(&self) {
        for node in &self.nodes {
            node.link.join();
        }
    }

    /// Lets the standby receive the log, and apply nothing more of it: its answers stay as they are.
    pub fn pause_replay(&self) {
        self.standby().execute("SELECT pg_wal_replay_pause()");
        ask_until(String::new, || {
            match self.standby().ask("pg_get_wal_replay_pause_state()") {
                Ok(state) if state == "paused" => Ok(()),
                answer => Err(format!("the standby's replay is {answer:?}")),
            }
        });
    }

    /// Stops the standby where it is (SIGSTOP).
    pub fn pause_the_standby(&self) {
        self.standby().server.pause();
    }

    /// Lets the standby go on, and waits until it has everything again.
    pub fn resume_the_standby(&self) {
        self.standby().server.resume();
        self.wait_until_it_streams();
    }
}

/// Makes the server with this data the standby of the one at this port.
fn follow(data: &Path, port: u16) {
    // The last line of a name holds.
    let primary = format!("primary_conninfo = 'host=127.0.0.1 port={port} user=postgres'\n");
    append(&data.join("postgresql.auto.conf"), &primary);
    let signal = data.join("standby.signal");
    fs::write(&signal, "").expect("the data's folder");
    hand_over(&signal, unprivileged("postgres"));
}

fn append(file: &Path, text: &str) {
    let appended = OpenOptions::new()
        .append(true)
        .open(file)
        .and_then(|mut file| file.write_all(text.as_bytes()));
    appended.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}
