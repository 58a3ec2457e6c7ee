//! Rules of a shards table by which counts stay exact, as the library would create them: the default of a field, its `CHECK`, and what
//! the foreign key does.

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::DescribedTable;

use crate::beside::Beside;
use crate::connection::AnyConnection;
use crate::live::{LiveTable, LiveTables};
use crate::statement::{quoted, quoted_table};
use crate::within::within;

use super::finding::Finding;

const CHECK: &str = "rules";

/// The remedy where a table cannot be altered.
const AGAIN: &str =
    "Revert the migration that created the shards table, which folds, and generate it again";

pub fn check(
    live: &LiveTables,
    sharded: &DescribedTable,
    shards: &LiveTable,
    conn: &mut AnyConnection,
) -> QueryResult<Vec<Finding>> {
    let mut findings = defaults(sharded, shards, conn.dialect());
    let is_all_seen = within(live.schema(), conn, |conn| sees_constraints(shards, conn))?;
    if is_all_seen {
        findings.extend(checks(live, sharded, shards, conn)?);
        findings.extend(foreign_key(sharded, shards, conn)?);
    }
    if findings.is_empty() {
        let name = sharded.shards_table();
        findings.push(Finding::ok(
            CHECK,
            match is_all_seen {
                true => format!(
                    "defaults, checks and foreign key of {name} are as it would be created"
                ),
                false => format!(
                    "defaults of {name} are as it would be created; its checks and its foreign key this role may not see"
                ),
            },
        ));
    }
    Ok(findings)
}

/// MySQL and MariaDB hide them from a role that may only read and write the rows.
fn sees_constraints(shards: &LiveTable, conn: &mut AnyConnection) -> QueryResult<bool> {
    if conn.dialect() != Dialect::Mysql {
        return Ok(true);
    }
    let primary_key = "SELECT '1' FROM information_schema.TABLE_CONSTRAINTS \
         WHERE TABLE_SCHEMA = DATABASE() AND CONSTRAINT_TYPE = 'PRIMARY KEY' AND TABLE_NAME = ?";
    Ok(conn.text(primary_key, &[&shards.name])?.is_some())
}

fn checks(
    live: &LiveTables,
    sharded: &DescribedTable,
    shards: &LiveTable,
    conn: &mut AnyConnection,
) -> QueryResult<Vec<Finding>> {
    let expected = sharded.checks_sql(&conn.backend())?;
    let mut findings = vec![];
    for (field, expected) in sharded.fields().iter().zip(expected) {
        let Some(expected) = expected else {
            continue;
        };
        let found = within(live.schema(), conn, |conn| {
            Beside::read(conn, shards, &[field.name()], "")
        })?;
        if found.checks.is_empty() {
            findings.push(Finding::warning(
                CHECK,
                format!(
                    "{}.{} has no CHECK: a shard that leaves its range may be kept as another number",
                    sharded.shards_table(),
                    field.name()
                ),
                alter(sharded, conn.dialect(), &format!("ADD {expected}")),
            ));
        }
    }
    Ok(findings)
}

fn alter(sharded: &DescribedTable, dialect: Dialect, how: &str) -> String {
    match dialect {
        Dialect::Sqlite => AGAIN.to_owned(),
        _ => {
            let table = quoted_table(dialect, sharded.shards_table());
            format!("ALTER TABLE {table} {how};")
        }
    }
}

/// A shard is inserted by its key and its number alone.
fn defaults(sharded: &DescribedTable, shards: &LiveTable, dialect: Dialect) -> Vec<Finding> {
    let fields = sharded.fields().iter();
    let columns = fields.filter_map(|field| shards.column(field.name()));
    let wrong = columns.filter(|column| !column.default.as_deref().is_some_and(is_zero));
    let finding = wrong.map(|column| {
        let name = format!("{}.{}", sharded.shards_table(), column.name);
        let says = match &column.default {
            Some(default) => {
                format!(
                    "{name} begins at {default} in place of 0: each new shard changes the total"
                )
            }
            None => format!("{name} has no default: no new shard can be created"),
        };
        let set = format!(
            "ALTER COLUMN {} SET DEFAULT 0",
            quoted(dialect, &column.name)
        );
        Finding::problem(CHECK, says, alter(sharded, dialect, &set))
    });
    finding.collect()
}

/// `0`, `0.00`, `'0'::numeric`, `(0)::double precision`
fn is_zero(default: &str) -> bool {
    let (value, _) = default.split_once("::").unwrap_or((default, ""));
    let value = value.trim_matches(['(', ')', '\'', ' ']);
    value.parse::<f64>().is_ok_and(|number| number == 0.0)
}

/// SQLite has triggers beside it.
fn foreign_key(
    sharded: &DescribedTable,
    shards: &LiveTable,
    conn: &AnyConnection,
) -> QueryResult<Vec<Finding>> {
    let dialect = conn.dialect();
    let expected = sharded.foreign_key_sql(&conn.backend())?;
    let (Some(expected), false) = (expected, dialect == Dialect::Sqlite) else {
        return Ok(vec![]);
    };
    let to_parent = shards.foreign_keys.iter();
    let to_parent = to_parent.filter(|key| key.parent == sharded.table().name());
    let (cascade, wrong): (Vec<_>, Vec<_>) = to_parent.partition(|key| key.deletes && key.renames);
    let findings = wrong.iter().enumerate().map(|(i, key)| {
        let lost = match key.deletes {
            false => "ON DELETE: a row that has shards cannot be deleted",
            true => "ON UPDATE: a row that has shards cannot get another key",
        };
        let name = quoted(dialect, &key.name);
        let drop = match dialect {
            Dialect::Mysql => format!("DROP FOREIGN KEY {name}"),
            _ => format!("DROP CONSTRAINT {name}"),
        };
        let add = format!("ADD {expected}");
        let remedy = match dialect {
            // A key that cascades stays, or comes with the first of them.
            _ if i > 0 || !cascade.is_empty() => alter(sharded, dialect, &drop),
            Dialect::Mysql => [drop, add]
                .map(|how| alter(sharded, dialect, &how))
                .join("\n"),
            _ => alter(sharded, dialect, &format!("{drop}, {add}")),
        };
        let says = format!(
            "the foreign key {} of {} has no CASCADE {lost}",
            key.name,
            sharded.shards_table()
        );
        Finding::problem(CHECK, says, remedy)
    });
    Ok(findings.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_that_are_zero() {
        for default in [
            "0",
            "0.00",
            "'0'::numeric",
            "(0)::double precision",
            "'0'",
            "0e0",
        ] {
            assert!(is_zero(default), "{default}");
        }
        for default in ["1", "NULL", "nextval('a'::regclass)", "random()", ""] {
            assert!(!is_zero(default), "{default}");
        }
    }
}
