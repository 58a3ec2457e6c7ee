//! Columns of a shards table that are not as the library would create them now, as after a change of the parent's columns.

use diesel_sharded::backend::Dialect;
use diesel_sharded::described::{DescribedTable, declared_type};

use crate::live::{LiveColumn, LiveTable};
use crate::statement::{quoted, quoted_table};

use super::finding::Finding;

const CHECK: &str = "columns";

pub fn check(
    dialect: Dialect,
    sharded: &DescribedTable,
    parent: &LiveTable,
    shards: &LiveTable,
) -> Vec<Finding> {
    let key = sharded.key().iter().filter_map(|column| {
        let there = shards.column(column.name())?;
        let wanted = parent.column(column.name())?;
        let same = plain(&there.sql_type) == plain(&wanted.sql_type)
            && there.collation == wanted.collation;
        (!same).then(|| drift(dialect, sharded, there, &full_type(wanted), ""))
    });
    let fields = sharded.fields().iter().filter_map(|field| {
        let there = shards.column(field.name())?;
        let wanted = declared_type(dialect, field);
        let same = plain(&there.sql_type) == plain(wanted);
        (!same).then(|| drift(dialect, sharded, there, wanted, " DEFAULT 0"))
    });
    let findings: Vec<_> = key.chain(fields).collect();
    match findings.is_empty() {
        true => vec![Finding::ok(
            CHECK,
            format!(
                "those of {} have the types that they would be created with",
                sharded.shards_table()
            ),
        )],
        false => findings,
    }
}

fn drift(
    dialect: Dialect,
    sharded: &DescribedTable,
    there: &LiveColumn,
    wanted: &str,
    default: &str,
) -> Finding {
    let shards = sharded.shards_table();
    let table = quoted_table(dialect, shards);
    let column = quoted(dialect, &there.name);
    let remedy = match dialect {
        Dialect::Postgres => format!("ALTER TABLE {table} ALTER COLUMN {column} TYPE {wanted};"),
        Dialect::Mysql => {
            format!("ALTER TABLE {table} MODIFY {column} {wanted} NOT NULL{default};")
        }
        _ => {
            "Revert the migration that created the shards table, which folds, and generate it again"
                .to_owned()
        }
    };
    Finding::warning(
        CHECK,
        format!(
            "{shards}.{} is {}, and would be created as {} now: a count may overflow early, or a fold not fit",
            there.name,
            full_type(there),
            wanted.to_lowercase()
        ),
        remedy,
    )
}

fn full_type(column: &LiveColumn) -> String {
    match &column.collation {
        Some(collation) => format!("{} {collation}", column.sql_type),
        None => column.sql_type.clone(),
    }
}

/// A type without what says nothing: `INTEGER`, `int` and MariaDB's `int(11)` are one.
fn plain(sql_type: &str) -> String {
    let sql_type = sql_type.to_lowercase().replace(' ', "");
    let (name, rest) = match sql_type.split_once('(') {
        Some((name, rest)) => (name, rest.split_once(')').unwrap_or((rest, ""))),
        None => (sql_type.as_str(), ("", "")),
    };
    let name = name.replace("integer", "int");
    match name.ends_with("int") || rest.0.is_empty() {
        true => name + rest.1,
        false => format!("{name}({}){}", rest.0, rest.1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_are_one() {
        for (one, other) in [
            ("INTEGER", "int(11)"),
            ("bigint(20) unsigned", "BIGINT UNSIGNED"),
            ("DECIMAL(20, 0)", "decimal(20,0)"),
            ("DOUBLE PRECISION", "double precision"),
        ] {
            assert_eq!(plain(one), plain(other));
        }
        for (one, other) in [
            ("integer", "bigint"),
            ("decimal(10,2)", "decimal(20,2)"),
            ("bigint", "bigint unsigned"),
            ("varchar(5)", "varchar(6)"),
        ] {
            assert_ne!(plain(one), plain(other));
        }
    }
}
