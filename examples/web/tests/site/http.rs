//! The site on SQLite, as programs see it.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::support::program::Program;
use crate::support::{Started, text};
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded_tests::Database;
use diesel_sharded_web::{Config, Site, Source};

crate::cases::on!(sqlite, Database::in_file());

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
        ("/nothing/here.db", "there is no folder /nothing"),
        (
            "/proc/here.db",
            "DATABASE_URL: /proc/here.db: Unable to open",
        ),
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

    let again = Started::on(&database).await;
    assert_eq!(again.number("/", "served").await, 3);
    again.stop().await;
}

/// `FOLD_EVERY`, and the sentence of `/admin`.
#[tokio::test(flavor = "multi_thread")]
async fn the_admin_page_says_how_often_the_folder_runs_or_that_it_is_off() {
    for (every, said) in [
        ("0", "Off: nothing folds by itself. FOLD_EVERY is 0."),
        ("1", "Folds all videos by itself, every second."),
        ("60", "Folds all videos by itself, every 60 seconds."),
    ] {
        let database = Database::in_file();
        let variables = [("DATABASE_URL", database.url()), ("FOLD_EVERY", every)];
        let program =
            Program::start(&[], &variables.map(|(name, value)| (name, value.as_ref()))).await;
        let page = program.page("/admin").await;
        assert_eq!(text(&page, "folder-interval"), said);
        assert_eq!(page.contains("id=\"last-pass\""), every != "0", "{page}");
        program.stop().await;
    }
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
async fn wrong_arguments_and_variables_end_the_program_with_one_line() {
    for (arguments, variables, reason) in [
        (
            &["--oracle"][..],
            &[][..],
            "none of the arguments --postgres, --mariadb and --help",
        ),
        (&[], &[("PORT", "many")], "PORT: \"many\" is no port"),
        (
            &[],
            &[("FOLD_EVERY", "18446744073709551615")],
            "FOLD_EVERY: \"18446744073709551615\" is no number of seconds from 0 to 31536000",
        ),
        (
            &[],
            &[("DATABASE_URL", "/nothing/here.db")],
            "there is no folder /nothing",
        ),
    ] {
        let error = Program::fails(arguments, variables).await;
        assert!(
            error.contains(reason) && error.lines().count() == 1,
            "{error}"
        );
    }
}
