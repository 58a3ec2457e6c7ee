//! The site on SQLite, as programs see it.

use std::net::Ipv4Addr;

use crate::support::Started;
use crate::support::program::Program;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded_tests::Database;
use diesel_sharded_web::{Config, Site};

crate::cases::on!(sqlite, Database::in_file());

async fn error_of(port: u16, url: &str) -> String {
    let config = Config {
        database_url: Some(url.to_owned()),
        addr: Ipv4Addr::LOCALHOST.into(),
        port,
        fold_every: 0,
    };
    let started = Site::start(&config).await;
    started.err().expect("an error").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_cannot_be_had_is_told() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (text, other) = (path("text"), path("other.db"));
    std::fs::write(&text, "no database, but a text ".repeat(30)).expect("a file");
    let mut conn = SqliteConnection::establish(&other).expect("a file");
    conn.batch_execute("CREATE TABLE videos (title TEXT)")
        .expect("a table");
    for (url, reason) in [
        (&*other, "which is for the site alone: "),
        ("oracle://a/b", "--features"),
        ("/nothing/here.db", "unable to open"),
        (&text, "file is not a database"),
        ("postgres://a:secret@127.0.0.1:1/b", "database_url"),
        ("mysql://a:secret@127.0.0.1:1/b", "database_url"),
    ] {
        let error = error_of(0, url).await;
        assert!(error.to_lowercase().contains(reason), "{error}");
        assert!(!error.contains("secret"), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

/// Runs the program itself; the other tests start the site in their own process.
#[tokio::test(flavor = "multi_thread")]
async fn the_program_tells_its_address_and_commits_before_it_ends() {
    let database = Database::in_file();
    let program = Program::start(database.url()).await;
    for _ in 0..3 {
        program.page("/top").await;
    }
    program.stop().await;

    let mut again = Started::on(database).await;
    assert_eq!(again.number("/", "served").await, 3);
    again.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_taken_is_told_before_anything_is_created() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let database = Database::in_file();
    let address = taken.local_addr().expect("its address");
    let error = error_of(address.port(), database.url()).await;
    assert!(
        error.starts_with(&address.to_string()) && error.ends_with("set PORT or ADDR"),
        "{error}"
    );
    assert!(!std::path::Path::new(database.url()).exists());
}
