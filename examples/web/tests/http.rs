//! The site on SQLite, as programs see it.

mod cases;
mod support;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded_tests::Database;
use diesel_sharded_web::{Config, Site};
use rustix::process::{Pid, Signal, kill_process};
use support::{Started, text};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

cases::on!(sqlite, Database::in_file());

/// The retry policy reports the conflicts that the page shows.
#[tokio::test(flavor = "multi_thread")]
async fn a_conflict_is_tried_again_and_shown() {
    let database = Database::in_file();
    let site = Started::on(&database).await;
    let before = site.total(7).await;
    let mut writer = SqliteConnection::establish(database.url()).expect("the site's file");
    writer.batch_execute("BEGIN IMMEDIATE").expect("a lock");
    let (views, ()) = tokio::join!(site.number("/watch/7", "views"), async {
        tokio::time::sleep(Duration::from_secs(6)).await; // a second more than writers wait for each other
        writer.batch_execute("COMMIT").expect("no lock");
    });
    assert_eq!(views, before + 1);
    let page = site.page("/admin").await;
    let (_, busy) = page
        .split_once("Database busy (SQLite)</th><td>")
        .expect("a row");
    assert!(!busy.starts_with("0<"), "{busy}");
    assert_eq!(text(&page, "total"), "3,541,121");
    site.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_cannot_be_had_is_told() {
    let mut told = vec![
        ("oracle://a/b", "oracle:// is none of postgres://, mysql://"),
        ("/nothing/here.db", "DATABASE_URL: unable to open"),
    ];
    if !cfg!(feature = "postgres") {
        told.push(("postgres://a/b", "add `--features postgres`"));
    }
    if !cfg!(feature = "mysql") {
        told.push(("mysql://a/b", "add `--features mysql`"));
    }
    for (url, reason) in told {
        let config = Config {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            database_url: url.to_owned(),
            fold_every: Duration::MAX,
        };
        let started = Site::start(&config).await;
        let error = started.err().expect("an error").to_string();
        assert!(
            error.to_lowercase().contains(&reason.to_lowercase()),
            "{error}"
        );
    }
}

/// Runs the program itself; the other tests start the site in their own process.
#[tokio::test(flavor = "multi_thread")]
async fn the_program_tells_its_address_and_commits_before_it_ends() {
    let database = Database::in_file();
    let mut program = Command::new(env!("CARGO_BIN_EXE_diesel_sharded_web"))
        .env("PORT", "0")
        .env("DATABASE_URL", database.url())
        .env_remove("ADDR")
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(program.stdout.take().expect("it is piped")).lines();
    let first = lines.next_line().await.expect("text").expect("a line");
    let (url, how_to_stop) = first.split_once(' ').expect("an address and more");
    assert_eq!(how_to_stop, "(Ctrl-C stops it)");
    for _ in 0..3 {
        let page = reqwest::get(format!("{url}/top")).await.expect("an answer");
        assert!(page.status().is_success());
    }
    let id = program.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    kill_process(id.expect("it runs"), Signal::INT).expect("a signal");
    let ended = program.wait().await.expect("it ends");
    assert!(ended.success(), "{ended}");
    let last = lines.next_line().await.expect("text").expect("a line");
    assert_eq!(last, "stopped: every count is in the database");

    let again = Started::on(&database).await;
    assert_eq!(again.number("/", "served").await, 3);
    again.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_that_is_taken_is_told() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let database = Database::in_file();
    let config = Config {
        address: taken.local_addr().expect("its address"),
        database_url: database.url().to_owned(),
        fold_every: Duration::MAX,
    };
    let error = Site::start(&config)
        .await
        .err()
        .expect("an error")
        .to_string();
    assert!(error.ends_with("set PORT or ADDR"), "{error}");
}
