//! What a counter cache does at its edges, on each database that has them: the total is that of the rows, or the statement is refused,
//! or the guide says that they differ.

use std::thread;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::ShardsTable;
use diesel_sharded::prelude::*;
use diesel_sharded_tests::fixture::{Fixture, Run};
use diesel_sharded_tests::schema::videos;
use diesel_sharded_tests::{TestConnection, number, until};

use super::{WAITS_ON_POSTGRES, cache};

const PAGE: &str = include_str!("../../../../src/reference/counter_caches.md");

#[derive(Debug, Clone, Copy, PartialEq)]
enum Word {
    /// Each total is the number of its rows.
    Exact,
    /// A statement, or `create`, failed, and nothing was changed.
    Refused,
    /// They differ, and a row of the guide's table begins so.
    Documented(&'static str),
}

use Word::{Documented, Exact, Refused};

/// A paragraph of `edges.txt`: its title; statements that make the parent, where it is another one than `PARENT`, and the child; those of
/// two sessions; and a word for each database that has such statements.
struct Edge {
    case: &'static str,
    lines: Vec<(&'static str, &'static str)>,
}

const EDGES: &str = include_str!("edges.txt");

const PARENT: &str = "CREATE TABLE videos (id BIGINT PRIMARY KEY, views BIGINT NOT NULL DEFAULT 0, likes INTEGER NOT NULL DEFAULT 0)";

impl Edge {
    fn read(paragraph: &'static str) -> Self {
        let (case, lines) = paragraph.split_once('\n').expect("a title");
        let line = |line: &'static str| line.split_once(' ').expect("what it is");
        Edge {
            case,
            lines: lines.lines().map(line).collect(),
        }
    }

    fn statements(&self, of: &str) -> Vec<&'static str> {
        let lines = self.lines.iter().filter(|(is, _)| *is == of);
        lines.map(|(_, statement)| *statement).collect()
    }

    /// What is said of a database.
    fn word(&self, database: &str) -> Option<Word> {
        let is = |is: &str| is.strip_suffix(':') == Some(database);
        let (_, word) = self.lines.iter().find(|(line, _)| is(line))?;
        Some(match *word {
            "exact" => Exact,
            "refused" => Refused,
            row => Documented(row),
        })
    }
}

/// Runs a case on one database: what it came to, and what was seen.
macro_rules! come_to {
    ($conn:ty, $edge:expr) => {{
        let edge: &Edge = $edge;
        let [conn, second] = &mut *Fixture::<$conn, _>::empty();
        let _ = conn.batch_execute("PRAGMA foreign_keys = ON"); // there is none on servers
        let mut parent = edge.statements("parent");
        if parent.is_empty() {
            parent.push(PARENT);
        }
        parent.push("INSERT INTO videos (id) VALUES (1), (2), (3)");
        for sql in parent.into_iter().chain(edge.statements("child")) {
            conn.run(sql);
        }
        ShardsTable::of(videos::table).create(conn).unwrap();
        let created = cache().create(conn);
        conn.run("INSERT INTO comments VALUES (1, 3), (2, 3), (3, 1)");
        let totals = |conn: &mut $conn| {
            let totals = videos::table.select((videos::id, videos::likes.total()));
            totals.order(videos::id).load::<(i64, i32)>(conn).unwrap()
        };
        let rows = |conn: &mut $conn| {
            let ids = videos::table.select(videos::id).order(videos::id);
            let ids = ids.load::<i64>(conn).unwrap();
            let count = |id| {
                let rows = number!(
                    &format!("COUNT(*) FROM comments WHERE video_id = {id}"),
                    conn
                );
                (id, i32::try_from(rows).unwrap())
            };
            ids.into_iter().map(count).collect::<Vec<_>>()
        };
        let before = totals(conn);
        let counted = if created.is_ok() { [1, 0, 2] } else { [0; 3] };
        let expected: Vec<_> = (1..=3).zip(counted).collect();
        assert_eq!(before, expected, "{}", edge.case);
        let (mut drifts, mut done) = (vec![], created);
        for (session, statement) in &edge.lines {
            done = done.and_then(|()| match *session {
                "first" => conn.batch_execute(statement),
                "second" => second.batch_execute(statement),
                "drifts" => thread::scope(|scope| {
                    let found = scope.spawn(|| cache().verify().drifts(conn));
                    until("it waits", || number!(WAITS_ON_POSTGRES, second) > 0);
                    second.batch_execute("COMMIT")?;
                    drifts = found.join().unwrap()?;
                    Ok(())
                }),
                _ => Ok(()),
            });
        }
        match done {
            Err(error) => {
                let _ = conn.batch_execute("ROLLBACK");
                let after = totals(conn);
                let kept = before.iter().all(|total| after.contains(total));
                let seen = format!("{error}; {before:?}, {after:?}");
                (kept.then_some(Refused), seen)
            }
            Ok(()) => {
                let (totals, rows) = (totals(conn), rows(conn));
                let equal = totals == rows && drifts.is_empty();
                let seen = format!("{totals:?}, {rows:?}, {drifts:?}");
                (Some(if equal { Exact } else { Documented("") }), seen)
            }
        }
    }};
}

/// Compares all cases of one database with their words.
fn check(database: &str, come_to: impl Fn(&Edge) -> (Option<Word>, String)) {
    let mut wrong = vec![];
    let mut checked = 0;
    for paragraph in EDGES.trim().trim_start_matches("# ").split("\n\n# ") {
        let edge = Edge::read(paragraph);
        let Some(word) = edge.word(database) else {
            continue;
        };
        checked += 1;
        let (is, seen) = come_to(&edge);
        let as_said = match word {
            Documented(row) => is == Some(Documented("")) && PAGE.contains(&format!("\n| {row}")),
            word => is == Some(word),
        };
        if !as_said {
            let case = edge.case;
            wrong.push(format!("{case}: {is:?} in place of {word:?}: {seen}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked > 10, "{checked}");
}

#[test]
fn edges_on_postgres() {
    check("PostgreSQL", |edge| come_to!(PgConnection, edge));
}

#[test]
fn edges_on_mysql() {
    let [conn] = &mut *Fixture::<MysqlConnection, _>::empty();
    let is_mariadb = conn.version().contains("MariaDB");
    check("MySQL", |edge| match edge.case {
        // MySQL 9.7 updates the row in place, and its shards stay. Earlier ones replace it.
        "REPLACE INTO the parent without one" if !is_mariadb => {
            match come_to!(MysqlConnection, edge) {
                (Some(Exact), seen) => (Some(Documented("")), seen),
                other => other,
            }
        }
        _ => come_to!(MysqlConnection, edge),
    });
}

#[test]
fn edges_on_sqlite() {
    check("SQLite", |edge| come_to!(SqliteConnection, edge));
}
