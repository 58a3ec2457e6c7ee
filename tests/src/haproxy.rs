//! A HAProxy of a test's own in TCP mode: in front of the server of a database, or of a primary and its standby.

use std::fmt::Write;
use std::time::Duration;

use crate::Database;
use crate::in_front::{on_port, port_of};
use crate::programs::{Place, find, keep_running};
use crate::replication::Pair;

/// A running proxy. Stopped with this process.
#[derive(Debug)]
pub struct Haproxy {
    port: u16,
}

impl Haproxy {
    /// Starts one that cuts a connection on which nothing was sent in either direction for `idle`.
    pub fn start(database: &Database, idle: Duration) -> Self {
        let server = port_of(database.url());
        let settings = |port| cuts_idle(port, server, idle);
        let started = Self::with_settings("nobody", "tcp://127.0.0.1", settings);
        started.unwrap_or_else(|missing| panic!("{missing}"))
    }

    /// Starts one that leads to whichever server of a pair takes writes, or says what is not installed.
    pub fn before(pair: &Pair) -> Result<Self, String> {
        let servers = pair.ports();
        let settings = |port| finds_primary(port, servers);
        Self::with_settings("postgres", "postgres://postgres@127.0.0.1", settings)
    }

    /// Starts one as `user` on a free port, which `settings` are told, and waits until this address answers.
    fn with_settings(
        user: &str,
        address: &str,
        settings: impl FnOnce(u16) -> String,
    ) -> Result<Self, String> {
        let program = find("haproxy").ok_or("no HAProxy is installed: apt-get install haproxy")?;
        let place = Place::of(user);
        let port = place.port;
        let file = place.file("haproxy.cfg", &settings(port));
        let in_the_foreground = ["-db".into(), "-f".into(), file.into_os_string()];
        keep_running(place.runs(program, in_the_foreground, address));
        Ok(Haproxy { port })
    }

    /// The address of a database behind the proxy.
    pub fn url(&self, database: &Database) -> String {
        on_port(database.url(), self.port)
    }

    /// The address of a database on the server of a pair that takes writes.
    pub fn url_of_primary(&self, database: &str) -> String {
        let port = self.port;
        format!("postgres://postgres@127.0.0.1:{port}/{database}?connect_timeout=2")
    }
}

fn cuts_idle(port: u16, server: u16, idle: Duration) -> String {
    let idle = idle.as_millis();
    format!(
        "defaults\n  mode tcp\n  timeout connect 5s\n  timeout client {idle}ms\n  timeout server {idle}ms\n\
         listen databases\n  bind 127.0.0.1:{port}\n\
         \x20 server database 127.0.0.1:{server}\n"
    )
}

/// Each server is asked every 200 ms whether it is in recovery. Connections end as soon as their server does not say no.
fn finds_primary(port: u16, servers: [u16; 2]) -> String {
    let parameters = b"user\0postgres\0database\0postgres\0\0";
    let length = u32::try_from(parameters.len() + 8).expect("a short text");
    let startup = format!("{length:08x}00030000{}", hex(parameters));
    let question = b"SELECT pg_is_in_recovery()\0";
    let length = u32::try_from(question.len() + 4).expect("a short text");
    let query = format!("{}{length:08x}{}", hex(b"Q"), hex(question));
    // A row of one column, whose text is `f`.
    let no = format!("{}0000000b000100000001{}", hex(b"D"), hex(b"f"));
    let ready = format!("{}0000000549", hex(b"Z"));
    let mut text = format!(
        "global\n  maxconn 600\n\
         defaults\n  mode tcp\n  timeout connect 1s\n  timeout client 1h\n  timeout server 1h\n  timeout check 1s\n\
         listen primary\n  bind 127.0.0.1:{port}\n\
         \x20 option tcp-check\n\
         \x20 tcp-check connect\n\
         \x20 tcp-check send-binary {startup}\n\
         \x20 tcp-check expect binary {ready}\n\
         \x20 tcp-check send-binary {query}\n\
         \x20 tcp-check expect binary {no}\n\
         \x20 default-server inter 200ms fall 2 rise 1 on-marked-down shutdown-sessions\n"
    );
    for (n, server) in servers.iter().enumerate() {
        let _ = writeln!(text, "  server node{n} 127.0.0.1:{server} check"); // a `String` takes everything
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // a `String` takes everything
        text
    })
}
