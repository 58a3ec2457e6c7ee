//! Whether the role that runs the tool may count on a table, and fold it, by the catalogs.

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::{DescribedTable, SHARD_NUMBERS};
use diesel_sharded::model::TableName;

use crate::connection::AnyConnection;
use crate::live::LiveTables;
use crate::privilege::{Need, current_role, lacked};
use crate::sharded::names;
use crate::statement::{Statement, Value, quoted};
use crate::within::within;

use super::finding::Finding;

const CHECK: &str = "privileges";

/// A privilege on a table; enough on these columns, if there are some.
struct Privilege<'a> {
    action: &'static str,
    table: TableName<'a>,
    columns: Vec<&'a str>,
}

pub fn check(
    live: &LiveTables,
    sharded: &DescribedTable,
    conn: &mut AnyConnection,
) -> QueryResult<Vec<Finding>> {
    if conn.dialect() == Dialect::Sqlite {
        return Ok(vec![]); // it has no roles
    }
    let (table, shards) = (sharded.table(), sharded.shards_table());
    let (key, fields) = (names(sharded.key()), names(sharded.fields()));
    let of = |action, table, columns| Privilege {
        action,
        table,
        columns,
    };
    let read = [
        of("SELECT", table, [&key[..], &fields].concat()),
        of("SELECT", shards, vec![]),
    ];
    let count = ["INSERT", "UPDATE"].map(|action| of(action, shards, vec![]));
    let mut fold = vec![
        of("UPDATE", table, fields.clone()),
        of("UPDATE", shards, vec![]),
        of("DELETE", shards, vec![]),
    ];
    if live.has_numbers && live.schema().is_none() {
        fold.push(of("SELECT", TableName::new(SHARD_NUMBERS), vec![]));
    }
    let role = current_role(conn)?;
    let missing = |privileges: &[&Privilege<'_>], conn: &mut AnyConnection| {
        let mut needs = vec![];
        for privilege in privileges {
            if !within(live.schema(), conn, |conn| privilege.is_granted(conn))? {
                needs.extend(privilege.needs());
            }
        }
        QueryResult::Ok(lacked(conn.dialect(), &needs, &role).grants)
    };
    let counts = missing(&read.iter().chain(&count).collect::<Vec<_>>(), conn)?;
    let folds = missing(&read.iter().chain(&fold).collect::<Vec<_>>(), conn)?;
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

impl<'a> Privilege<'a> {
    /// The columns of an `UPDATE` by themselves: other privileges are granted on a table.
    fn needs(&self) -> Vec<Need<'a>> {
        match (self.action, self.columns.is_empty()) {
            ("UPDATE", false) => {
                let columns = self.columns.iter();
                columns
                    .map(|column| Need::of_column(self.action, column, self.table))
                    .collect()
            }
            _ => vec![Need::of(self.action, self.table)],
        }
    }

    fn is_granted(&self, conn: &mut AnyConnection) -> QueryResult<bool> {
        let granted = match conn.dialect() {
            Dialect::Postgres => self.on_postgres(),
            _ => self.on_mysql(),
        };
        let rows = granted.rows(conn)?;
        Ok(rows.first().is_some_and(|row| row.get(0) == Some("1")))
    }

    fn on_postgres(&self) -> Statement {
        let action = || Value::Text(self.action.to_owned());
        let granted = Statement::default().sql("SELECT CASE WHEN has_table_privilege(c.oid, ");
        let granted = granted.bind(action()).sql(")");
        let granted = match self.columns.is_empty() {
            true => granted,
            false => granted
                .sql(" OR (")
                .each(" AND ", &self.columns, |granted, column| {
                    let granted = granted.sql("has_column_privilege(c.oid, ");
                    let granted = granted.bind(Value::Text((*column).to_owned()));
                    granted.sql(", ").bind(action()).sql(")")
                })
                .sql(")"),
        };
        granted
            .sql(" THEN '1' ELSE '0' END FROM pg_class c WHERE pg_table_is_visible(c.oid) AND c.relname = ")
            .bind(Value::Text(self.table.name().to_owned()))
    }

    /// The views show the privileges of others too to a role that may see them.
    fn on_mysql(&self) -> Statement {
        const MINE: &str = "REPLACE(v.GRANTEE, '''', '') = CURRENT_USER() AND v.PRIVILEGE_TYPE = ";
        let mine = |granted: Statement, view: &str| {
            let granted = granted.sql(&format!(
                "EXISTS (SELECT 1 FROM information_schema.{view} v WHERE "
            ));
            granted.sql(MINE).bind(Value::Text(self.action.to_owned()))
        };
        let of_table = |granted: Statement, view: &str| {
            let granted =
                mine(granted, view).sql(" AND v.TABLE_SCHEMA = DATABASE() AND v.TABLE_NAME = ");
            granted.bind(Value::Text(self.table.name().to_owned()))
        };
        let granted = Statement::default().sql("SELECT CASE WHEN ");
        let granted = mine(granted, "USER_PRIVILEGES").sql(") OR ");
        let granted = mine(granted, "SCHEMA_PRIVILEGES");
        let granted = granted.sql(" AND DATABASE() LIKE v.TABLE_SCHEMA) OR ");
        let granted = of_table(granted, "TABLE_PRIVILEGES").sql(")");
        let granted = match self.columns.is_empty() {
            true => granted,
            false => granted
                .sql(" OR (")
                .each(" AND ", &self.columns, |granted, column| {
                    let granted =
                        of_table(granted, "COLUMN_PRIVILEGES").sql(" AND v.COLUMN_NAME = ");
                    granted.bind(Value::Text((*column).to_owned())).sql(")")
                })
                .sql(")"),
        };
        granted.sql(" THEN '1' ELSE '0' END")
    }
}

/// MySQL's roles that are enabled. PostgreSQL knows by itself what a role has from others.
fn enabled_roles(conn: &mut AnyConnection) -> QueryResult<Vec<String>> {
    if conn.dialect() != Dialect::Mysql {
        return Ok(vec![]);
    }
    let enabled = "SELECT CAST(ROLE_NAME AS CHAR) FROM information_schema.ENABLED_ROLES";
    let rows = Statement::default().sql(enabled).rows(conn)?;
    let roles = rows.iter().filter_map(|row| row.get(0)); // MariaDB shows a NULL for none
    Ok(roles.map(|role| quoted(Dialect::Mysql, role)).collect())
}
