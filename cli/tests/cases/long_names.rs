//! Shards tables whose names are as long as the database takes them: all that is named after them fits too, and stays apart.

use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_sharded::backend::{Dialect, ShardedBackend};
use diesel_sharded_tests::Database;

use super::Conn;
use super::doctor::findings;
use super::{Script, empty_database, run};

fn dialect() -> Dialect {
    <Conn as Connection>::Backend::default().dialect()
}

/// Tables whose shards tables have names around the longest one, and differ only in front of `_shards`.
fn names() -> Vec<String> {
    let most = match dialect() {
        Dialect::Mysql => 64,
        _ => 63,
    };
    let plain = (54..=most)
        .flat_map(|length| ["a", "b"].map(|end| format!("{}{end}", "s".repeat(length - 8))));
    let wide = match dialect() {
        Dialect::Mysql => "\u{e4}".repeat(most - 7),
        _ => "\u{e4}".repeat((most - 7) / 2),
    };
    plain.chain([wide]).collect()
}

/// The migrations of a table under this name, up and down.
fn generated(database: &Database, arguments: &[&str]) -> (String, String) {
    let printed = run(
        database,
        &[&["generate"], arguments, &["--print"]].concat(),
        0,
    );
    let (up, down) = printed.split_once("/down.sql\n").unwrap();
    let (_, up) = up.split_once('\n').unwrap();
    let up = up.trim_end_matches(|c: char| c != ';');
    (up.to_owned(), down.to_owned())
}

fn number(conn: &mut Conn, of: &str) -> i64 {
    let number = sql::<BigInt>(&format!("SELECT COUNT(*) FROM {of}"));
    number.get_result(conn).unwrap()
}

#[test]
fn everything_that_is_named_after_a_table_fits() {
    for form in [None, Some("--no-foreign-key")] {
        let (database, mut conn) = empty_database();
        let mut downs = vec![];
        for table in names() {
            let shards = format!("{table}_shards");
            conn.script(&format!(
                "CREATE TABLE {table} (id BIGINT NOT NULL PRIMARY KEY, n BIGINT NOT NULL DEFAULT 0); INSERT INTO {table} (id) VALUES (1)"
            ));
            let arguments = [&*table, "n"].into_iter().chain(form);
            let (up, down) = generated(&database, &arguments.collect::<Vec<_>>());
            conn.script(&up);
            downs.push(down);
            if dialect() != Dialect::Sqlite {
                let (up, down) = generated(&database, &[&*table, "--function"]);
                conn.script(&up);
                downs.push(down);
            }
            conn.script(&format!(
                "INSERT INTO {shards} VALUES (1, 0, 5); DELETE FROM {table}"
            ));
            assert_eq!(number(&mut conn, &shards), 0, "{shards}");
        }
        for (level, says, _) in findings(&database, "integrity", 0) {
            assert_eq!(level, "ok", "{says}");
        }
        let indexes = findings(&database, "index", 0);
        for (.., create) in indexes.iter().filter(|(_, _, create)| !create.is_empty()) {
            conn.script(create);
        }
        assert!(levels_are_ok(&database, "index"));
        assert!(findings(&database, "triggers", 0).is_empty());
        for down in downs.iter().rev() {
            conn.script(down);
        }
    }
}

fn levels_are_ok(database: &Database, check: &str) -> bool {
    findings(database, check, 0)
        .iter()
        .all(|(level, ..)| level == "ok")
}
