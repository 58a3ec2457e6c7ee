//! Rules of PostgreSQL that stand between a count and its rows: row security, triggers that are switched off, triggers on shards.

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::{DescribedTable, fitting_name};

use crate::connection::AnyConnection;
use crate::statement::quoted;

use super::finding::Finding;

/// While plain names lead to the table's schema.
pub fn check(sharded: &DescribedTable, conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    if conn.dialect() != Dialect::Postgres {
        return Ok(vec![]);
    }
    let (table, shards) = (sharded.table().name(), sharded.shards_table().name());
    let mut names = |sql: &str| {
        let visible = "AND pg_table_is_visible(c.oid) AND c.relname IN (?, ?) ORDER BY 1";
        conn.texts(&format!("{sql} {visible}"), &[table, shards])
    };
    let mut findings = vec![];
    let secured = names("SELECT c.relname::text FROM pg_class c WHERE c.relrowsecurity")?;
    if !secured.is_empty() {
        findings.push(Finding::warning(
            "row security",
            format!("policies apply to {}", secured.join(", ")),
            "Run folds, sets and repairs as the table's owner or a role with BYPASSRLS: a row that a policy hides is not folded. Counts \
             are bound by policies of the shards table alone",
        ));
    }
    let off = names(
        "SELECT DISTINCT c.relname::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE t.tgenabled = 'D'",
    )?;
    let schema = sharded
        .table()
        .schema()
        .map(|schema| quoted(Dialect::Postgres, schema) + ".");
    let schema = schema.unwrap_or_default();
    for name in &off {
        findings.push(Finding::problem(
            "triggers",
            format!("triggers of {name} are switched off: a foreign key or triggers that keep shards with their rows may not act"),
            format!(
                "ALTER TABLE {schema}{} ENABLE TRIGGER ALL;",
                quoted(Dialect::Postgres, name)
            ),
        ));
    }
    let own = fitting_name(Dialect::Postgres, format!("{shards}_create"));
    let triggers = "SELECT t.tgname::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid \
         WHERE NOT t.tgisinternal AND pg_table_is_visible(c.oid) AND t.tgname <> ? AND c.relname = ?";
    for name in conn.texts(triggers, &[&own, shards])? {
        findings.push(Finding::warning(
            "triggers",
            format!("{shards} has a trigger {name}"),
            "A count does not read back what it wrote: no trigger may change what is written to the shards table",
        ));
    }
    Ok(findings)
}
