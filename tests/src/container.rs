//! Servers in containers, through testcontainers, of the images that `scripts/images.sh` builds.

use std::process::Command;

use testcontainers::core::{IntoContainerPort, WaitFor};
use testcontainers::runners::SyncRunner;
use testcontainers::{GenericImage, ImageExt};

use crate::Server;
use crate::private::keep;

/// Starts a container; `MYSQL_IMAGE=mysql:9` takes MySQL instead of MariaDB.
pub fn start(server: Server) -> String {
    let (image, port, ready, user) = match server {
        Server::Postgres => (
            std::env::var("POSTGRES_IMAGE").unwrap_or_else(|_| "postgres:18".into()),
            5432,
            "database system is ready to accept connections",
            "postgres://postgres",
        ),
        Server::SyncedPostgres => unreachable!("it is always a private one"),
        Server::Mysql => (
            std::env::var("MYSQL_IMAGE").unwrap_or_else(|_| "mariadb:11.8".into()),
            3306,
            "port: 3306",
            "mysql://test",
        ),
    };
    let (name, tag) = image.split_once(':').unwrap_or((&image, "latest"));
    let container = GenericImage::new(format!("diesel-sharded-{name}"), tag.to_owned())
        .with_exposed_port(port.tcp())
        .with_wait_for(WaitFor::message_on_stderr(ready))
        .start()
        .unwrap_or_else(|error| {
            panic!(
                "no server for {server:?}: install one (scripts/test.sh does on Debian), set \
                 {}_DATABASE_URL, or build the container images with scripts/images.sh ({error})",
                format!("{server:?}").to_uppercase()
            )
        });
    let port = container
        .get_host_port_ipv4(port)
        .expect("the container's port");
    keep(&mut keeper_of(container.id()));
    std::mem::forget(container); // would be removed here and now
    format!("{user}@127.0.0.1:{port}")
}

/// Starts a PgBouncer that keeps prepared statements, on a port of this machine's in front of another one.
pub fn start_pgbouncer(port: u16, server_port: u16, pool_mode: &str, server_connections: usize) {
    let container = GenericImage::new("diesel-sharded-pgbouncer", "1")
        .with_wait_for(WaitFor::message_on_stderr("process up"))
        .with_network("host")
        .with_env_var("LISTEN_PORT", port.to_string())
        .with_env_var("SERVER_PORT", server_port.to_string())
        .with_env_var("POOL_MODE", pool_mode)
        .with_env_var("SERVER_CONNECTIONS", server_connections.to_string())
        .start()
        .unwrap_or_else(|error| {
            panic!("no PgBouncer: build its image with scripts/images.sh ({error})")
        });
    keep(&mut keeper_of(container.id()));
    std::mem::forget(container); // would be removed here and now
}

/// Removes the container when its standard input closes.
fn keeper_of(container: &str) -> Command {
    let mut keeper = Command::new("/bin/sh");
    keeper.args([
        "-c",
        "cat >/dev/null; docker rm --force --volumes \"$1\"",
        "keeper",
        container,
    ]);
    keeper
}
