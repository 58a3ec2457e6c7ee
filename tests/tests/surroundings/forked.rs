//! Children of one process, as of a server that forks its workers: each operation of counting, done by four at once.

use std::process::Command;

use diesel::{MysqlConnection, PgConnection, SqliteConnection};
use diesel_sharded_tests::schema;

macro_rules! on {
    ($($name:ident: $conn:ty;)+) => {$(
        #[test]
        fn $name() {
            let (database, conn) = schema::database_with_counters::<$conn>();
            drop(conn); // SQLite's locks know processes, and not files that one opened twice
            every_operation_counts_as_often_as_it_should(stringify!($name), database.url());
        }
    )+};
}

on! {
    postgres: PgConnection;
    mysql: MysqlConnection;
    sqlite: SqliteConnection;
}

/// Prints the column "process forked" of one database: `operation`, then what the totals rose by, and what they should have.
fn every_operation_counts_as_often_as_it_should(database: &str, url: &str) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_forked"));
    let output = program.args([database, url]).output().expect("a process");
    let table = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    println!("{database}\n{table}");
    assert!(output.status.success(), "{table}\n{errors}");
    let wrong = table.lines().filter(|line| {
        let (rest, expected) = line.rsplit_once('\t').expect("a table");
        rest.rsplit_once('\t')
            .is_none_or(|(_, rose)| rose != expected)
    });
    assert_eq!(wrong.collect::<Vec<_>>(), [""; 0]);
    assert!(!table.is_empty());
}
