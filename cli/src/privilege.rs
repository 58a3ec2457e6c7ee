//! A privilege that this role lacks, and the statement that grants it.

use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::Error as ShardedError;
use diesel_sharded::backend::Dialect;
use diesel_sharded::model::TableName;

use crate::connection::AnyConnection;
use crate::error::Error;
use crate::statement::{Statement, Value, quoted};

/// A privilege that a command needs.
#[derive(Debug, Clone, Copy)]
pub struct Need<'t> {
    privilege: &'static str,
    column: Option<&'t str>,
    table: TableName<'t>,
}

impl<'t> Need<'t> {
    pub fn of(privilege: &'static str, table: TableName<'t>) -> Self {
        Need {
            privilege,
            column: None,
            table,
        }
    }

    /// On one column.
    pub fn of_column(privilege: &'static str, column: &'t str, table: TableName<'t>) -> Self {
        Need {
            column: Some(column),
            ..Need::of(privilege, table)
        }
    }
}

/// The error with the privilege that is lacking, if that is its reason.
pub fn explained(error: Error, needs: &[Need<'_>], conn: &mut AnyConnection) -> Error {
    let says = match &error {
        Error::Recount(says, _) => says.clone(),
        Error::Database(ShardedError::Diesel(DieselError::DatabaseError(_, information))) => {
            information.message().to_owned()
        }
        _ => return error,
    };
    // A connection that is lost cannot be asked. The first error says so.
    let found = match conn.dialect() {
        Dialect::Postgres => of_postgres(&says, needs, conn).unwrap_or_default(),
        Dialect::Mysql => of_mysql(&says, needs, &account(conn).unwrap_or_default()),
        _ => None,
    };
    match found {
        Some((what, grant)) => Error::Privilege { what, grant, says },
        None => error,
    }
}

/// Those of the needs that the catalog denies. If it denies none, the message names a table of the recount.
fn of_postgres(
    says: &str,
    needs: &[Need<'_>],
    conn: &mut AnyConnection,
) -> QueryResult<Option<(String, String)>> {
    let Some((_, object)) = says.split_once("permission denied for ") else {
        return Ok(None);
    };
    let asked = Statement::default().sql("SELECT CAST(quote_ident(current_user) AS TEXT), ");
    let asked = asked.each(", ", needs, |asked, need| {
        let schema = need.table.schema().into_iter();
        let table = schema.chain([need.table.name()]);
        let table: Vec<_> = table.map(|name| quoted(Dialect::Postgres, name)).collect();
        let function = match need.column {
            Some(_) => "CASE WHEN has_column_privilege(CAST(",
            None => "CASE WHEN has_table_privilege(CAST(",
        };
        let asked = asked.sql(function).bind(Value::Text(table.join(".")));
        let asked = asked.sql(" AS regclass), ");
        let asked = match need.column {
            Some(column) => asked.bind(Value::Text(column.to_owned())).sql(", "),
            None => asked,
        };
        let asked = asked.bind(Value::Text(need.privilege.to_owned()));
        asked.sql(") THEN '1' ELSE '0' END")
    });
    let rows = asked.rows(conn)?;
    let Some(row) = rows.first() else {
        return Ok(None);
    };
    let role = row.text(0)?;
    let needs = needs.iter().enumerate();
    let denied = needs.filter(|(i, _)| row.get(i + 1) == Some("0"));
    let denied: Vec<_> = denied.map(|(_, need)| *need).collect();
    if !denied.is_empty() {
        return Ok(Some(granted(Dialect::Postgres, &denied, role)));
    }
    Ok(object.split_once(' ').and_then(|(kind, name)| {
        let (privilege, before) = match kind {
            "table" | "view" => ("SELECT", ""),
            "schema" => ("USAGE", "SCHEMA "),
            _ => return None,
        };
        let name = name.trim_matches('"');
        let grant = quoted(Dialect::Postgres, name);
        Some((
            format!("{privilege} ON {before}{name}"),
            format!("GRANT {privilege} ON {before}{grant} TO {role}"),
        ))
    }))
}

/// Of each table the privileges in words, and the statements that grant them.
fn granted(dialect: Dialect, needs: &[Need<'_>], role: &str) -> (String, String) {
    let mut tables: Vec<TableName<'_>> = vec![];
    for need in needs {
        if tables.iter().all(|t| t.as_str() != need.table.as_str()) {
            tables.push(need.table);
        }
    }
    let list = |table: TableName<'_>, name: &dyn Fn(&str) -> String| {
        let of_table = || needs.iter().filter(|n| n.table.as_str() == table.as_str());
        let mut listed: Vec<String> = vec![];
        for need in of_table() {
            let columns = of_table().filter(|other| other.privilege == need.privilege);
            let columns: Vec<_> = columns.filter_map(|n| n.column).map(name).collect();
            let text = match columns.is_empty() {
                true => need.privilege.to_owned(),
                false => format!("{} ({})", need.privilege, columns.join(", ")),
            };
            if !listed.contains(&text) {
                listed.push(text);
            }
        }
        let schema = table.schema().into_iter();
        let table: Vec<_> = schema.chain([table.name()]).map(name).collect();
        format!("{} ON {}", listed.join(", "), table.join("."))
    };
    let what = tables.iter().map(|table| list(*table, &str::to_owned));
    let grant = tables.iter().map(|table| {
        let list = list(*table, &|name| quoted(dialect, name));
        format!("GRANT {list} TO {role}")
    });
    (
        what.collect::<Vec<_>>().join(" and "),
        grant.collect::<Vec<_>>().join("; "),
    )
}

/// `'app'@'%'`: the message has the host of the client in place of the account's.
fn account(conn: &mut AnyConnection) -> QueryResult<String> {
    let asked = Statement::default().sql("SELECT CAST(CURRENT_USER() AS CHAR)");
    let rows = asked.rows(conn)?;
    let text = rows.first().map_or(Ok(""), |row| row.text(0))?;
    let (user, host) = text.rsplit_once('@').unwrap_or((text, "%"));
    let quoted = |part: &str| format!("'{}'", part.replace('\'', "''"));
    Ok(format!("{}@{}", quoted(user), quoted(host)))
}

/// The message's own words: ``UPDATE command denied to user 'app'@'%' for table `shop`.`videos` ``, on MySQL `'videos'`, or
/// `for column 'likes' in table 'videos'`.
fn of_mysql(says: &str, needs: &[Need<'_>], account: &str) -> Option<(String, String)> {
    let (privilege, rest) = says.split_once(" command denied to user ")?;
    let (_, object) = rest.split_once(" for ")?;
    let (column, table) = match object.strip_prefix("column ") {
        Some(column) => column.split_once(" in table ")?,
        None => ("", object.strip_prefix("table ")?),
    };
    let names = table.trim_matches(['`', '\'']);
    let (_, name) = names.rsplit_once("`.`").unwrap_or(("", names));
    let column = column.trim_matches(['`', '\'']);
    let is_it = |need: &&Need<'_>| need.privilege == privilege && need.table.name() == name;
    let mut needs: Vec<_> = needs.iter().filter(is_it).copied().collect();
    if let Some(need) = needs.iter().find(|need| need.column == Some(column)) {
        needs = vec![*need];
    }
    if needs.is_empty() {
        let on = match table.starts_with('`') {
            true => table.to_owned(),
            false => quoted(Dialect::Mysql, name),
        };
        return Some((
            format!("{privilege} ON {name}"),
            format!("GRANT {privilege} ON {on} TO {account}"),
        ));
    }
    Some(granted(Dialect::Mysql, &needs, account))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileges_are_named_and_granted() {
        let videos = TableName::in_schema("a.videos", 1);
        let needs = [
            Need::of("SELECT", videos),
            Need::of_column("UPDATE", "views", videos),
            Need::of_column("UPDATE", "likes", videos),
            Need::of("DELETE", TableName::new("videos_shards")),
        ];
        let (what, grant) = granted(Dialect::Postgres, &needs, "app");
        assert_eq!(
            what,
            "SELECT, UPDATE (views, likes) ON a.videos and DELETE ON videos_shards"
        );
        assert_eq!(
            grant,
            r#"GRANT SELECT, UPDATE ("views", "likes") ON "a"."videos" TO app; GRANT DELETE ON "videos_shards" TO app"#
        );
    }

    #[test]
    fn messages_of_mysql_and_mariadb_are_read() {
        let videos = TableName::new("videos");
        let needs = [
            Need::of("SELECT", videos),
            Need::of_column("UPDATE", "likes", videos),
        ];
        let update = Some((
            "UPDATE (likes) ON videos".to_owned(),
            "GRANT UPDATE (`likes`) ON `videos` TO 'app'@'%'".to_owned(),
        ));
        for says in [
            "UPDATE command denied to user 'app'@'localhost' for table `shop`.`videos`",
            "UPDATE command denied to user 'app'@'localhost' for table 'videos'",
            "UPDATE command denied to user 'app'@'localhost' for column 'likes' in table 'videos'",
        ] {
            assert_eq!(of_mysql(says, &needs, "'app'@'%'"), update, "{says}");
        }
        let says = "SELECT command denied to user 'app'@'localhost' for table `shop`.`comments`";
        let grant = "GRANT SELECT ON `shop`.`comments` TO 'app'@'%'";
        assert_eq!(
            of_mysql(says, &needs, "'app'@'%'"),
            Some(("SELECT ON comments".to_owned(), grant.to_owned()))
        );
        assert_eq!(of_mysql("Table 'x' doesn't exist", &needs, ""), None);
    }
}
