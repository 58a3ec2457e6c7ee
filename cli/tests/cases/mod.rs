//! Tests that every database runs.

mod counts;
mod diesel_cli;
pub mod doctor;
mod fold;
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
use std::process::{Child, Command, Output, Stdio};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::ShardsTable;
use diesel_sharded::backend::{Dialect, ShardedBackend};
use diesel_sharded::prelude::*;
use diesel_sharded_tests::schema::{self, videos as table};
use diesel_sharded_tests::{Database, TestConnection};
use serde_json::Value;

use super::Conn;

pub fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_diesel-sharded"));
    for variable in ["DATABASE_URL", "MIGRATION_DIRECTORY"] {
        command.env_remove(variable);
    }
    command.current_dir(folder);
    command
}

/// The words of a command line. What stands between quotes is one word, or a part of it.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut open) = (vec![], None, None);
    for c in line.chars() {
        match c {
            c if open == Some(c) => open = None,
            '\'' | '"' if open.is_none() => {
                open = Some(c);
                word.get_or_insert_with(String::new);
            }
            c if c.is_whitespace() && open.is_none() => words.extend(word.take()),
            c => word.get_or_insert_with(String::new).push(c),
        }
    }
    words.extend(word);
    words
}

/// The tool in this folder, with the database at this address.
pub fn at(url: &str, folder: &Path, line: &str) -> Command {
    let mut command = command(folder);
    command.args(words(line)).env("DATABASE_URL", url);
    command
}

pub fn on(database: &Database, line: &str) -> Command {
    at(database.url(), &std::env::temp_dir(), line)
}

/// The code with which the tool ended, what it printed, and what it noted.
pub type Ended = (Option<i32>, String, String);

pub fn ended(output: Output) -> Ended {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let (printed, noted) = (text(output.stdout), text(output.stderr));
    (output.status.code(), printed, noted)
}

/// Begins a run of the tool, which [`end`] waits for.
pub fn spawn(database: &Database, line: &str) -> Child {
    let mut tool = on(database, line);
    let tool = tool.stdout(Stdio::piped()).stderr(Stdio::piped());
    tool.spawn().unwrap()
}

pub fn end(tool: Child) -> Ended {
    ended(tool.wait_with_output().unwrap())
}

/// Sends a signal, such as `-INT`.
pub fn signal(tool: &Child, signal: &str) {
    let mut kill = Command::new("kill");
    let killed = kill.args([signal, &tool.id().to_string()]).status();
    assert!(killed.unwrap().success());
}

/// Runs the tool, which has to end with this code; what it prints, and what it notes.
#[track_caller]
fn ran(mut tool: Command, code: i32) -> (String, String) {
    let (ended, printed, noted) = ended(tool.output().unwrap());
    assert_eq!(ended, Some(code), "{tool:?}: {printed}{noted}");
    (printed, noted)
}

#[track_caller]
pub fn run_at(url: &str, line: &str, code: i32) -> (String, String) {
    ran(at(url, &std::env::temp_dir(), line), code)
}

/// In a folder; what it prints and notes.
#[track_caller]
pub fn run_in(folder: &Path, database: &Database, line: &str, code: i32) -> String {
    let (printed, noted) = ran(at(database.url(), folder, line), code);
    printed + &noted
}

#[track_caller]
pub fn run_noting(database: &Database, line: &str, code: i32) -> (String, String) {
    run_at(database.url(), line, code)
}

#[track_caller]
pub fn run(database: &Database, line: &str, code: i32) -> String {
    run_noting(database, line, code).0
}

#[track_caller]
pub fn json_of(database: &Database, line: &str, code: i32) -> Value {
    serde_json::from_str(&run(database, line, code)).unwrap()
}

#[track_caller]
pub fn assert_says(text: &str, part: &str) {
    assert!(text.contains(part), "no {part:?} in {text}");
}

/// Goes through lines of `CODE: COMMAND LINE`, with which the tool has to end so. Behind `=>` stands what it prints then, or with the
/// codes of errors notes; behind `2>` what it notes; behind `!>` neither; behind `==` all that it prints. Lines between them are
/// `sql: STATEMENTS`, `shard: TABLE FIELDS`, `generate: ARGUMENTS`, whose up.sql is run, `refused: ARGUMENTS => WHY`, `none: TABLE WHERE …`,
/// which finds no row, and `schema: of the tests`.
#[track_caller]
pub fn session(database: &Database, steps: &str) {
    let mut conn = Conn::connect(database);
    let steps = steps.lines().map(str::trim);
    for step in steps.filter(|step| !step.is_empty()) {
        let (kind, step) = step.split_once(": ").unwrap();
        let Ok(code) = kind.parse() else {
            match (kind, step.split_once(' ').unwrap()) {
                ("sql", _) => conn.script(step),
                ("shard", (table, fields)) => shard(database, &mut conn, table, &[fields]),
                ("generate", _) => conn.script(&generated(database, step).0),
                ("refused", _) => refused(database, step),
                ("schema", _) => schema::create(&mut conn),
                ("none", _) => {
                    let rows = number(&mut conn, &format!("(SELECT COUNT(*) FROM {step})"));
                    assert_eq!(rows, 0, "{step}");
                }
                _ => assert!(kind == "videos" || kind.contains('/'), "{kind}: {step}"),
            }
            continue;
        };
        let operators = ["=>", "2>", "!>", "=="].map(|operator| format!(" {operator} "));
        let mut rest = step.to_owned();
        for operator in &operators {
            rest = rest.replace(operator, &format!("\0{}", operator.trim()));
        }
        let mut parts = rest.split('\0');
        let line = parts.next().unwrap();
        let (printed, noted) = run_noting(database, line, code);
        for (operator, text) in parts.map(|part| part.split_at(2)) {
            match operator {
                "==" => assert_eq!(printed.trim_end(), text, "{line}"),
                "!>" => assert!(!(printed.clone() + &noted).contains(text), "{line}: {text}"),
                "=>" if !matches!(code, 1 | 2) => assert_says(&printed, text),
                _ => assert_says(&noted, text),
            }
        }
    }
}

/// Goes through the sessions of a text, each below its heading and with a database of its own: an empty one, or first `videos: NUMBER
/// SHARDS`. `sql/DIALECT:` and the like are for that database alone, and a `|` is the quote around its names.
pub fn sessions(text: &str) {
    let (name, quote) = match dialect() {
        Dialect::Postgres => ("postgres", "\""),
        Dialect::Mysql => ("mysql", "`"),
        _ => ("sqlite", "\""),
    };
    let text = text.replace('|', quote);
    let text = text.replace(&format!("/{name}: "), ": ");
    for part in format!("\n{text}").split("\n# ").skip(1) {
        let (heading, steps) = part.split_once('\n').unwrap();
        println!("# {heading}"); // above the step that fails
        let first = steps
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("videos: "));
        let (database, _conn) = match first.and_then(|numbers| numbers.split_once(' ')) {
            Some((number, shards)) => videos(number.parse().unwrap(), shards.parse().unwrap()),
            None => empty_database(),
        };
        session(&database, steps);
    }
}

#[test]
fn sessions_of_every_database() {
    sessions(include_str!("../sessions/all.txt"));
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

/// `generate` of each of these lines ends with the error that is behind its `=>`, and writes nothing.
#[track_caller]
pub fn refused(database: &Database, lines: &str) {
    let lines = lines.lines().filter_map(|line| line.split_once(" => "));
    for (line, says) in lines {
        let folder = tempfile::tempdir().unwrap();
        let line = format!("generate {line}");
        let refused = run_in(folder.path(), database, &line, 1);
        assert!(refused.contains(says), "{line}: {refused}");
        let written = folder.path().read_dir().unwrap().count();
        assert_eq!(written, 0, "{line}");
    }
}

/// The number that an expression gives.
pub fn number(conn: &mut Conn, expression: &str) -> i64 {
    let number = diesel::dsl::sql::<diesel::sql_types::BigInt>(expression);
    diesel::select(number).get_result(conn).unwrap()
}

pub fn empty_database() -> (Database, Conn) {
    let database = Conn::database();
    let conn = Conn::connect(&database);
    (database, conn)
}

/// What `generate --print` prints of a migration of this name.
pub fn migration(name: &str, up: &str, down: &str) -> String {
    format!("-- {name}/up.sql\n{up};\n\n-- {name}/down.sql\n{down};\n")
}

/// The texts of `up.sql` and `down.sql` that `generate` prints.
pub fn generated(database: &Database, line: &str) -> (String, String) {
    let printed = run(database, &format!("generate {line} --print"), 0);
    let (up, down) = printed.split_once("/down.sql\n").unwrap();
    let (_, up) = up.split_once('\n').unwrap();
    let up = up.trim_end_matches(|c: char| c != ';');
    (up.to_owned(), down.to_owned())
}

/// Gives a table shards by what the tool prints.
pub fn shard(database: &Database, conn: &mut Conn, table: &str, fields: &[&str]) {
    let line = format!("\"{table}\" {}", fields.join(" "));
    let (up, _) = generated(database, &line);
    conn.script(&up);
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
