//! The same site on PostgreSQL and on MariaDB.

use std::os::unix::fs::PermissionsExt;

use diesel_sharded_tests::{Database, Server};

use crate::support::program::Program;
use crate::support::{eventually, number};

crate::cases::on!(postgresql, Database::on_server(Server::Postgres));
crate::cases::on!(mariadb, Database::on_server(Server::Mysql));

/// A server of the program's own is gone with it, however it ends.
async fn the_program_brings(argument: &str) {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let everybody = std::fs::Permissions::from_mode(0o1777); // as /tmp has: the server is another user
    std::fs::set_permissions(folder.path(), everybody).expect("permissions");
    let is_empty = || {
        let mut entries = std::fs::read_dir(folder.path()).expect("a folder");
        entries.next().is_none()
    };
    let variables = [("TMPDIR", folder.path().as_os_str())];
    let program = Program::start(&[argument], &variables).await;
    let page = program.page("/watch/7").await;
    assert_eq!(number(&page, "views"), 3_541_121);
    assert!(!is_empty(), "it is in the temporary folder");
    program.stop().await;
    assert!(is_empty());

    // While the server's data is prepared.
    Program::interrupted(&[argument], &variables, || !is_empty()).await;
    assert!(is_empty());

    let program = Program::start(&[argument], &variables).await;
    program.kill().await;
    eventually("it is gone", async || is_empty()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_brings_a_postgresql_of_its_own() {
    the_program_brings("--postgres").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_program_brings_a_mariadb_of_its_own() {
    the_program_brings("--mariadb").await;
}
