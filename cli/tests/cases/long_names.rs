//! Shards tables whose names are as long as the database takes them: all that is named after them fits too, and stays apart.

use diesel_sharded::backend::Dialect;

use super::doctor::findings;
use super::{Script, dialect, empty_database, generated, number};

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

#[test]
fn everything_that_is_named_after_a_table_fits() {
    for form in ["", "--no-foreign-key"] {
        let (database, mut conn) = empty_database();
        let mut downs = vec![];
        for table in names() {
            let shards = format!("{table}_shards");
            conn.script(&format!(
                "CREATE TABLE {table} (id BIGINT NOT NULL PRIMARY KEY, n BIGINT NOT NULL DEFAULT 0); INSERT INTO {table} (id) VALUES (1)"
            ));
            let (up, down) = generated(&database, &format!("{table} n {form}"));
            conn.script(&up);
            downs.push(down);
            if dialect() != Dialect::Sqlite {
                let (up, down) = generated(&database, &format!("{table} --function"));
                conn.script(&up);
                downs.push(down);
            }
            conn.script(&format!(
                "INSERT INTO {shards} VALUES (1, 0, 5); DELETE FROM {table}"
            ));
            let left = number(&mut conn, &format!("(SELECT COUNT(*) FROM {shards})"));
            assert_eq!(left, 0, "{shards}");
        }
        for (level, says, _) in findings(&database, "integrity", 0) {
            assert_eq!(level, "ok", "{says}");
        }
        let indexes = findings(&database, "index", 0);
        for (.., create) in indexes.iter().filter(|(_, _, create)| !create.is_empty()) {
            conn.script(create);
        }
        for (level, says, _) in findings(&database, "index", 0) {
            assert_eq!(level, "ok", "{says}");
        }
        assert!(findings(&database, "triggers", 0).is_empty());
        for down in downs.iter().rev() {
            conn.script(down);
        }
    }
}
