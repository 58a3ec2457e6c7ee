//! Servers in containers of the images that `scripts/images.sh` builds.

use std::process::Command;

use crate::programs::keep_until_the_end;
use crate::{Server, ask_until};

/// Starts a container; `MYSQL_IMAGE=mysql:9` takes MySQL instead of MariaDB.
pub fn start(server: Server) -> String {
    let (image, port, ready, user) = match server {
        Server::Postgres => (
            std::env::var("POSTGRES_IMAGE").unwrap_or_else(|_| "postgres:18".into()),
            "5432",
            "database system is ready to accept connections",
            "postgres://postgres",
        ),
        Server::SyncedPostgres => unreachable!("it is always a private one"),
        Server::Mysql => (
            std::env::var("MYSQL_IMAGE").unwrap_or_else(|_| "mariadb:11.8".into()),
            "3306",
            "port: 3306",
            "mysql://test",
        ),
    };
    let image = format!("diesel-sharded-{image}");
    let started =
        run(&["--publish", port, &image], ready).and_then(|id| docker(&["port", &id, port]));
    let addresses = started.unwrap_or_else(|error| {
        panic!(
            "no server for {server:?}: install one (scripts/test.sh does on Debian), set \
             {}_DATABASE_URL, or build the container images with scripts/images.sh ({error})",
            format!("{server:?}").to_uppercase()
        )
    });
    let address = addresses
        .lines()
        .next()
        .and_then(|line| line.rsplit_once(':'));
    let (_, port) = address.expect("the container's port");
    format!("{user}@127.0.0.1:{port}")
}

/// Starts a PgBouncer that keeps prepared statements, on a port of this machine's in front of another one.
pub fn start_pgbouncer(port: u16, server_port: u16, pool_mode: &str, server_connections: usize) {
    let settings = [
        format!("LISTEN_PORT={port}"),
        format!("SERVER_PORT={server_port}"),
        format!("POOL_MODE={pool_mode}"),
        format!("SERVER_CONNECTIONS={server_connections}"),
    ];
    let mut arguments = vec!["--network", "host"];
    arguments.extend(settings.iter().flat_map(|setting| ["--env", setting]));
    arguments.push("diesel-sharded-pgbouncer:1");
    run(&arguments, "process up").unwrap_or_else(|error| {
        panic!("no PgBouncer: build its image with scripts/images.sh ({error})")
    });
}

/// Starts a container that is removed with this process, and waits until it has logged `ready`. Returns its id.
fn run(arguments: &[&str], ready: &str) -> Result<String, String> {
    let id = docker(&[&["run", "--detach"], arguments].concat())?;
    let id = id.lines().next().unwrap_or_default().to_owned();
    keep_until_the_end("docker rm --force --volumes \"$1\"", [&id]);
    ask_until(String::new, || match docker(&["logs", &id])? {
        logged if logged.contains(ready) => Ok(()),
        logged => Err(format!("it is not ready: {logged}")),
    });
    Ok(id)
}

/// What a command of Docker's prints.
pub(crate) fn docker(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("docker").args(arguments).output();
    let output = output.map_err(|error| format!("docker: {error}"))?;
    let printed =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    match output.status.success() {
        true => Ok(printed.concat()),
        false => Err(printed.concat()),
    }
}
