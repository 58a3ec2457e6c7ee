//! The site on SQLite, as programs see it.

use std::net::{Ipv4Addr, SocketAddr};

use crate::support::Started;
use crate::support::program::Program;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded_tests::Database;
use diesel_sharded_web::{Config, Site, Source};

crate::cases::on!(sqlite, Database::in_file());

async fn error_of(address: SocketAddr, url: &str) -> String {
    let config = Config {
        address,
        database: Source::Url(url.to_owned()),
        fold_every: None,
    };
    let started = Site::start(&config).await;
    started.err().expect("an error").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_cannot_be_had_is_told() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let text = folder.path().join("text");
    std::fs::write(
        &text,
        "no database, but a text that is long enough to be read as one".repeat(10),
    )
    .expect("a file");
    let text = text.display().to_string();
    let other = folder.path().join("other.db").display().to_string();
    let mut conn = SqliteConnection::establish(&other).expect("a file");
    conn.batch_execute("CREATE TABLE videos (title TEXT)")
        .expect("a table");
    let mut told = vec![
        (other.as_str(), "the site needs a database of its own"),
        ("oracle://a/b", "oracle:// is none of postgres://, mysql://"),
        ("/nothing/here.db", "/nothing/here.db: Unable to open"),
        (&text, "text: file is not a database"),
    ];
    match cfg!(feature = "postgres") {
        true => told.push((
            "postgres://a:secret@127.0.0.1:1/b",
            "DATABASE_URL: postgres://a@127.0.0.1:1/b: ",
        )),
        false => told.push(("postgres://a/b", "--features postgres")),
    }
    match cfg!(feature = "mysql") {
        true => told.push((
            "mysql://a:secret@127.0.0.1:1/b",
            "DATABASE_URL: mysql://a@127.0.0.1:1/b: ",
        )),
        false => told.push(("mysql://a/b", "--features mysql")),
    }
    for (url, reason) in told {
        let error = error_of(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), url).await;
        assert!(
            error.to_lowercase().contains(&reason.to_lowercase()),
            "{error}"
        );
        assert!(
            !error.contains("secret") && error.lines().count() == 1,
            "{error}"
        );
    }
}

/// Runs the program itself; the other tests start the site in their own process.
#[tokio::test(flavor = "multi_thread")]
async fn the_program_tells_its_address_and_commits_before_it_ends() {
    let database = Database::in_file();
    let program = Program::start(&[], &[("DATABASE_URL", database.url().as_ref())]).await;
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
    let error = error_of(address, database.url()).await;
    assert!(
        error.starts_with(&address.to_string()) && error.ends_with("set PORT or ADDR"),
        "{error}"
    );
    assert!(!std::path::Path::new(database.url()).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_arguments_and_variables_end_the_program_with_a_reason() {
    for (arguments, variable, reason) in [
        (
            &["--postgres", "--mariadb"][..],
            ("PORT", "0"),
            "cannot be used with '--mariadb'",
        ),
        (
            &["--postgres"],
            ("DATABASE_URL", "a.db"),
            "cannot be used with '--database-url",
        ),
        (&[], ("FOLD_EVERY", "-1"), "for '--fold-every"),
        (
            &[],
            ("DATABASE_URL", "/nothing/here.db"),
            "/nothing/here.db: unable to open",
        ),
    ] {
        let error = Program::fails(arguments, &[variable]).await;
        assert!(error.contains(reason), "{error}");
    }
}
