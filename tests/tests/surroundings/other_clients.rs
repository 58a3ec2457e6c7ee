//! The statements of docs/tables.md, sent by Python's clients (`tests/conformance/tables.py`) while the crate counts and folds on the same rows.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use diesel::prelude::*;
use diesel_sharded::backend::BackendOf;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::{ShardsTable, fold, update};
use diesel_sharded_tests::fixture::Run;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::schema::{self, videos_shards};
use diesel_sharded_tests::{Stop, TestConnection, patient};

/// How often each of Python's three clients counts, in turn on two rows.
const COUNTS: i64 = 200;

/// An increment beside folds and other clients on the same rows may meet many conflicts.
const PATIENT: RetryPolicy = patient().with_attempts(1_000);

/// A Python that has this module. A version manager's has none of the system's packages.
fn python_with(module: &str) -> Command {
    let has = |python: &&str| {
        let import = format!("import {module}");
        let ran = Command::new(python).args(["-c", &import]).output();
        ran.is_ok_and(|ran| ran.status.success())
    };
    let found = ["python3", "/usr/bin/python3"].into_iter().find(has);
    let packages = "Debian's python3, python3-psycopg2 and python3-pymysql";
    Command::new(found.unwrap_or_else(|| {
        panic!("no Python has `{module}`: install {packages}, as scripts/test.sh --all does")
    }))
}

/// Runs the script to its end.
fn other_clients(module: &str, url: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut python = python_with(module);
    python.arg(root.join("conformance/tables.py"));
    python.arg(root.join("../docs/tables.md"));
    python.arg(url).arg(COUNTS.to_string());
    let ran = python.output().expect("Python");
    assert!(ran.status.success(), "{ran:?}");
}

macro_rules! on {
    ($($name:ident: $conn:ty, $module:literal, $create:ident;)+) => {$(
        #[test]
        fn $name() {
            type Conn = $conn;

            let database = Conn::database();
            let conn = &mut Conn::connect(&database);
            schema::$create(conn);
            let table = ShardsTable::of(videos);
            let backend = <Conn as Connection>::Backend::backend_of(conn);
            if let Ok(function) = table.add_function_sql(&backend) {
                conn.run(&function);
            }
            table.view("videos_totals").create(conn).unwrap();

            let is_over = &AtomicBool::new(false);
            let repeatedly = |mut work: Box<dyn FnMut(&mut Conn)>| {
                let _stop = Stop(is_over);
                let conn = &mut Conn::connect(&database);
                let mut times = 0;
                while !is_over.load(Ordering::Relaxed) {
                    work(conn);
                    times += 1;
                }
                times
            };
            let counted = thread::scope(|scope| {
                let counting = scope.spawn(|| repeatedly(Box::new(|conn| {
                    let both = update(videos.filter(id.le(2))).retry(PATIENT);
                    let counted = both.set((views.eq(views + 1), likes.eq(likes + 2)));
                    assert_eq!(counted.execute(conn), Ok(2));
                })));
                scope.spawn(|| repeatedly(Box::new(|conn| {
                    let nine = update(videos.find(9)).retry(PATIENT);
                    let counted = nine.set((views.eq(views + 1), likes.eq(likes + 2)));
                    assert!(counted.execute(conn).unwrap() <= 1);
                })));
                scope.spawn(|| repeatedly(Box::new(|conn| {
                    let folded = fold(videos).keep_shards(2).retry(PATIENT).run(conn).unwrap();
                    assert!(folded.unfit.is_empty(), "{folded:?}");
                })));
                let _stop = Stop(is_over);
                other_clients($module, database.url());
                drop(_stop);
                counting.join().unwrap()
            });

            let more = counted + 3 * COUNTS / 2;
            let expected: [(i64, i64, i32); 3] = [
                (1, 100 + more, 1 + 2 * more as i32),
                (2, 200 + more, 2 + 2 * more as i32),
                (3, 1000, 0),
            ];
            let totals = videos.select((id, views.total(), likes.total())).order(id);
            assert_eq!(totals.load(conn), Ok(expected.to_vec()));
            let folded = fold(videos).keep_shards(0).run(conn).unwrap();
            assert!(folded.busy.is_empty() && folded.unfit.is_empty(), "{folded:?}");
            let bases = videos.select((id, views, likes)).order(id);
            assert_eq!(bases.load(conn), Ok(expected.to_vec()));
            assert_eq!(videos_shards::table.count().get_result(conn), Ok(0_i64));
        }
    )+};
}

on! {
    postgres: PgConnection, "psycopg2", create;
    postgres_without_foreign_key: PgConnection, "psycopg2", create_without_foreign_keys;
    mysql: MysqlConnection, "pymysql", create;
    mysql_without_foreign_key: MysqlConnection, "pymysql", create_without_foreign_keys;
    sqlite: SqliteConnection, "sqlite3", create;
}
