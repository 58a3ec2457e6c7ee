//! The lines of docs/operations.md that back up and restore a database, beside clients that count and fold: every total of the
//! restored database is exact, and it goes on.

use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::{Counter, fold, update};
use diesel_sharded_tests::documents::read;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{
    Database, Stop, TestConnection, count, insert, mysql_client, number, schema,
};

/// The block of the page that begins with the comment `# DATABASE:`.
fn lines_of(database: &str) -> String {
    let page = read("docs/operations.md");
    let mut blocks = page.split("```sh\n").skip(1);
    let block = blocks.find(|block| block.starts_with(&format!("# {database}: ")));
    let block = block.expect("a block").split("```").next();
    block.expect("its text").to_owned()
}

/// Runs the lines. The database is told as the page tells it: by an address, or by its name and the settings of MySQL's clients.
fn back_up_and_restore(lines: &str, from: &Database, to: &Database) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut bash = Command::new("bash");
    bash.args(["-euc", lines]).current_dir(&folder);
    let is_mysql = from.url().starts_with("mysql:");
    let name = |database: &Database| match is_mysql {
        true => mysql_client(database.url()).1.to_owned(),
        false => database.url().to_owned(),
    };
    if is_mysql {
        let (settings, _) = mysql_client(from.url());
        fs::write(folder.path().join(".my.cnf"), settings).expect("settings");
        bash.env("HOME", folder.path());
    }
    bash.env("DATABASE", name(from)).env("RESTORED", name(to));
    bash.envs([("DATABASE_URL", from.url()), ("RESTORED_URL", to.url())]);
    let ran = bash.output().expect("bash");
    assert!(ran.status.success(), "scripts/test.sh installs it: {ran:?}");
}

/// A commit beside folds of the same rows may meet many conflicts.
const PATIENT: RetryPolicy = diesel_sharded_tests::patient().with_attempts(1_000);

macro_rules! on {
    ($database:ident, $conn:ty, $name:literal) => {
        #[test]
        fn $database() {
            type Conn = $conn;
            const EACH: i64 = 1_000;

            fn totals(conn: &mut Conn) -> Vec<(i64, i64)> {
                let all = videos.select((id, views.total())).order(id);
                all.load(conn).expect("totals")
            }

            /// Counts, folds and deletions do what they did before.
            fn go_on(conn: &mut Conn) {
                assert_eq!(count!(videos.find(7), views.eq(views + 1), conn), 1);
                fold(videos).run(conn).unwrap();
                assert_eq!(count!(videos, views.eq(views + 1), conn), 20);
                assert_eq!(totals(conn)[6], (7, EACH + 2));
                conn.batch_execute("DELETE FROM videos WHERE id = 7")
                    .unwrap();
                assert_eq!(number!("COUNT(*) FROM videos_shards WHERE id = 7", conn), 0);
            }

            let (from, conn) = &mut schema::database_with_counters::<Conn>();
            conn.batch_execute("DELETE FROM videos").unwrap();
            for key in 1..=20_i64 {
                let names = (slug.eq(format!("slug {key}")), title.eq("title"));
                insert!(videos, (id.eq(key), names, views.eq(0), likes.eq(0)), conn);
            }
            update(videos)
                .set(views.eq(views + EACH))
                .execute(conn)
                .unwrap();
            Counter::named("page:/").add(7, conn).unwrap();

            let is_over = AtomicBool::new(false);
            thread::scope(|scope| {
                // No commit changes a total: the base loses what the shards gain, and a fold moves it back.
                let (is_over, from) = (&is_over, &from);
                let _stop = Stop(is_over);
                scope.spawn(move || {
                    let conn = &mut Conn::connect(from);
                    while !is_over.load(Ordering::Relaxed) {
                        let moved = retry::transaction(conn, PATIENT, |conn| {
                            let taken = diesel::update(videos).set(views.eq(views - 5));
                            taken.execute(conn)?;
                            update(videos).set(views.eq(views + 5)).execute(conn)
                        });
                        assert_eq!(moved, Ok(20));
                    }
                });
                scope.spawn(move || {
                    let conn = &mut Conn::connect(from);
                    while !is_over.load(Ordering::Relaxed) {
                        fold(videos).run(conn).unwrap();
                    }
                });
                for _ in 0..3 {
                    let to = Conn::database();
                    back_up_and_restore(&lines_of($name), from, &to);
                    let restored = &mut Conn::connect(&to);
                    let expected: Vec<_> = (1..=20).map(|key| (key, EACH)).collect();
                    assert_eq!(totals(restored), expected);
                    assert_eq!(Counter::named("page:/").get(restored), Ok(7));
                    go_on(restored);
                }
            });
        }
    };
}

on!(postgres, PgConnection, "PostgreSQL");
on!(mysql, MysqlConnection, "MySQL, MariaDB");
on!(sqlite, SqliteConnection, "SQLite");
