//! Whether the role that runs the tool may count on a table, and fold it, by the catalogs.

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::DescribedTable;

use crate::connection::AnyConnection;
use crate::live::LiveTables;
use crate::privilege::{Need, current_role, denied, enabled_roles, lacked};
use crate::shard_counts;

use super::finding::Finding;

const CHECK: &str = "privileges";

pub fn check(
    live: &LiveTables,
    sharded: &DescribedTable,
    conn: &mut AnyConnection,
) -> QueryResult<Vec<Finding>> {
    if conn.dialect() == Dialect::Sqlite {
        return Ok(vec![]); // it has no roles
    }
    let (table, shards) = (sharded.table(), sharded.shards_table());
    let read = Need::to_read(sharded);
    let count = ["INSERT", "UPDATE"].map(|privilege| Need::of(privilege, shards));
    let mut fold = vec![Need::of("UPDATE", shards), Need::of("DELETE", shards)];
    fold.extend(Need::to_update(sharded.fields(), table));
    if live.has_numbers && live.schema().is_none() {
        fold.extend(shard_counts::needs());
    }
    let role = current_role(conn)?;
    let read = denied(&read, conn)?;
    let mut missing = |needs: &[Need<'_>]| {
        let missing = [read.clone(), denied(needs, conn)?].concat();
        QueryResult::Ok(lacked(conn.dialect(), &missing, &role).grants)
    };
    let counts = missing(&count)?;
    let folds = missing(&fold)?;
    let remedy = |grants: &[String]| grants.join(";\n") + ";";
    let enabled = enabled_roles(conn)?;
    let finding = |missing: &[String], to: &str, level: fn(_, String, String) -> Finding| match (
        missing.is_empty(),
        enabled.is_empty(),
    ) {
        (true, _) => Finding::ok(CHECK, format!("{role} may {to} {table}")),
        (false, true) => level(
            CHECK,
            format!("{role} may not {to} {table}"),
            remedy(missing),
        ),
        (false, false) => Finding::warning(
            CHECK,
            format!(
                "{role} may not {to} {table} by itself; what its roles may do the catalogs do not show"
            ),
            enabled
                .iter()
                .map(|role| format!("SHOW GRANTS FOR {role};\n"))
                .collect::<String>(),
        ),
    };
    Ok(vec![
        finding(&counts, "count on", Finding::problem),
        // Another role may do it.
        finding(&folds, "fold", Finding::warning),
    ])
}
