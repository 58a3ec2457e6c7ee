//! A HAProxy of a test's own in TCP mode in front of the server of a database.

use std::time::Duration;

use crate::Database;
use crate::in_front::{on_port, port_of};
use crate::programs::{Place, find, keep_running};

/// A running proxy. Stopped with this process.
#[derive(Debug)]
pub struct Haproxy {
    port: u16,
}

impl Haproxy {
    /// Starts one that cuts a connection on which nothing was sent in either direction for `idle`.
    pub fn start(database: &Database, idle: Duration) -> Self {
        let program = find("haproxy").expect("no HAProxy is installed: apt-get install haproxy");
        let place = Place::of("nobody");
        let port = place.port;
        let file = place.file(
            "haproxy.cfg",
            &cuts_idle(port, port_of(database.url()), idle),
        );
        let in_the_foreground = ["-db".into(), "-f".into(), file.into_os_string()];
        keep_running(place.runs(program, in_the_foreground, "tcp://127.0.0.1"));
        Haproxy { port }
    }

    /// The address of a database behind the proxy.
    pub fn url(&self, database: &Database) -> String {
        on_port(database.url(), self.port)
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
