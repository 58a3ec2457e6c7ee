//! Tests that every database runs.

mod counts;
mod diesel_cli;
pub mod doctor;
pub mod fold;
mod generate;
mod life;
mod long_names;
mod out_of_range;
mod peaks;
mod recount;
mod setup;
mod status;
mod terminal;

use std::path::Path;
use std::process::{Command, Output};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::ShardsTable;
use diesel_sharded::backend::{Dialect, ShardedBackend};
use diesel_sharded::prelude::*;
use diesel_sharded_tests::schema::videos as table;
use diesel_sharded_tests::{Database, TestConnection};

use super::Conn;

pub fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diesel-sharded"));
    for variable in ["DATABASE_URL", "MIGRATION_DIRECTORY"] {
        command.env_remove(variable);
    }
    command.current_dir(folder);
    command
}

pub fn on(database: &Database, arguments: &[&str]) -> Command {
    let mut command = command(&std::env::temp_dir());
    command.args(arguments).env("DATABASE_URL", database.url());
    command
}

pub fn tool(database: &Database, arguments: &[&str]) -> Output {
    on(database, arguments).output().unwrap()
}

/// Runs the tool, which has to end with this code; what it prints, and what it notes.
pub fn run_noting(database: &Database, arguments: &[&str], code: i32) -> (String, String) {
    let output = tool(database, arguments);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{arguments:?}: {output:?}"
    );
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

pub fn run(database: &Database, arguments: &[&str], code: i32) -> String {
    run_noting(database, arguments, code).0
}

#[track_caller]
pub fn assert_says(text: &str, part: &str) {
    assert!(text.contains(part), "no {part:?} in {text}");
}

/// Statements that have to succeed.
pub trait Script: SimpleConnection {
    #[track_caller]
    fn script(&mut self, sql: &str) {
        let done = self.batch_execute(sql);
        done.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

impl<C: SimpleConnection> Script for C {}

/// Runs a command line as it was printed; what it prints.
pub fn run_printed(database: &Database, line: &str) -> String {
    let tool = Path::new(env!("CARGO_BIN_EXE_diesel-sharded"));
    let folder = tool.parent().unwrap().display();
    let output = Command::new("sh")
        .arg("-c")
        .arg(format!("PATH='{folder}':\"$PATH\"; {line}"))
        .current_dir(std::env::temp_dir())
        .env("DATABASE_URL", database.url())
        .output()
        .unwrap();
    assert!(output.status.success(), "{line}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// `generate` ends with an error that says so, and writes nothing.
pub fn refused(database: &Database, arguments: &[&str], says: &str) {
    let folder = tempfile::tempdir().unwrap();
    let generate = command(folder.path())
        .env("DATABASE_URL", database.url())
        .arg("generate")
        .args(arguments)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&generate.stderr);
    assert_eq!(generate.status.code(), Some(1), "{arguments:?}: {stderr}");
    assert!(stderr.contains(says), "{arguments:?}: {stderr}");
    assert_eq!(
        folder.path().read_dir().unwrap().count(),
        0,
        "{arguments:?}"
    );
}

pub fn empty_database() -> (Database, Conn) {
    let database = Conn::database();
    let conn = Conn::connect(&database);
    (database, conn)
}

/// Gives a table shards by what the tool prints.
pub fn shard(database: &Database, conn: &mut Conn, table: &str, fields: &[&str]) {
    let arguments: Vec<_> = ["generate", table].iter().chain(fields).copied().collect();
    let printed = run(database, &[&arguments[..], &["--print"]].concat(), 0);
    let (up, _) = printed.split_once("/down.sql").unwrap();
    let (_, up) = up.split_once('\n').unwrap();
    let up = up.trim_end_matches(|c: char| c != ';');
    conn.script(up);
}

/// A database with so many videos, whose views and likes are all on shards: 1 and 2 on each of them.
pub fn videos(number: usize, shards: usize) -> (Database, Conn) {
    let (database, mut conn) = empty_database();
    conn.script(
        "CREATE TABLE videos (id BIGINT PRIMARY KEY, slug VARCHAR(100) NOT NULL, title VARCHAR(100) NOT NULL, \
             views BIGINT NOT NULL DEFAULT 0, likes INTEGER NOT NULL DEFAULT 0, channel VARCHAR(100))",
    );
    ShardsTable::of(table::table).create(&mut conn).unwrap();
    let ids: Vec<_> = (1..=number).collect();
    for ids in ids.chunks(500) {
        let rows: Vec<_> = ids
            .iter()
            .map(|i| format!("({i}, 's{i}', '', 0, 0, NULL)"))
            .collect();
        let insert = format!("INSERT INTO videos VALUES {}", rows.join(", "));
        conn.script(&insert);
    }
    for shard in 0..shards {
        let insert = format!("INSERT INTO videos_shards SELECT id, {shard}, 1, 2 FROM videos");
        conn.script(&insert);
    }
    (database, conn)
}

/// A database with posts, without rows, whose views `generate` has given shards with this option.
pub fn posts(option: &str) -> (Database, Conn) {
    let (database, mut conn) = empty_database();
    conn.script("CREATE TABLE posts (id BIGINT PRIMARY KEY, views BIGINT NOT NULL DEFAULT 0)");
    shard(&database, &mut conn, "posts", &["views", option]);
    (database, conn)
}

pub fn dialect() -> Dialect {
    <Conn as Connection>::Backend::default().dialect()
}

/// Of each video the key, the total of its views and the base.
pub fn totals(conn: &mut Conn) -> Vec<(i64, i64, i64)> {
    table::table
        .select((table::id, table::views.total(), table::views))
        .order(table::id)
        .load(conn)
        .unwrap()
}
