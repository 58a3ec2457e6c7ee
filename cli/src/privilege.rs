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

/// What a role lacks.
#[derive(Debug, PartialEq, Eq)]
pub struct Lack {
    /// In words, `UPDATE (views) ON videos`.
    what: String,
    /// A statement for each table.
    pub grants: Vec<String>,
}

/// The role of this connection, as `GRANT` takes it. MySQL's messages have the host of the client in place of the account's.
pub fn current_role(conn: &mut AnyConnection) -> QueryResult<String> {
    let asked = match conn.dialect() {
        Dialect::Postgres => "SELECT CAST(quote_ident(current_user) AS TEXT)",
        _ => "SELECT CAST(CURRENT_USER() AS CHAR)",
    };
    let rows = Statement::default().sql(asked).rows(conn)?;
    let role = rows.first().map_or(Ok(""), |row| row.text(0))?;
    if conn.dialect() == Dialect::Postgres {
        return Ok(role.to_owned());
    }
    let (user, host) = role.rsplit_once('@').unwrap_or((role, "%"));
    let quoted = |part: &str| format!("'{}'", part.replace('\'', "''"));
    Ok(format!("{}@{}", quoted(user), quoted(host)))
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
    let Ok(role) = current_role(conn) else {
        return error;
    };
    let found = match conn.dialect() {
        Dialect::Postgres => of_postgres(&says, needs, &role, conn).unwrap_or_default(),
        Dialect::Mysql => {
            let database = database(conn).unwrap_or_default();
            of_mysql(&says, needs, &role, &database)
        }
        _ => None,
    };
    match found {
        Some(Lack { what, grants }) => Error::Privilege {
            what,
            grant: grants.join("; "),
            says,
        },
        None => error,
    }
}

/// Those of the needs that the catalog denies. If it denies none, the message names a table of the recount.
fn of_postgres(
    says: &str,
    needs: &[Need<'_>],
    role: &str,
    conn: &mut AnyConnection,
) -> QueryResult<Option<Lack>> {
    let Some((_, object)) = says.split_once("permission denied for ") else {
        return Ok(None);
    };
    let Some((kind, name)) = object.split_once(' ') else {
        return Ok(None);
    };
    if kind == "schema" {
        return of_schema(name, role, conn).map(Some);
    }
    let asked = Statement::default().sql("SELECT ");
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
    let needs = needs.iter().enumerate();
    let denied = needs.filter(|(i, _)| row.get(*i) == Some("0"));
    let denied: Vec<_> = denied.map(|(_, need)| *need).collect();
    if !denied.is_empty() {
        return Ok(Some(lacked(Dialect::Postgres, &denied, role)));
    }
    if !matches!(kind, "table" | "view") {
        return Ok(None);
    }
    Ok(Some(Lack {
        what: format!("SELECT ON {name}"),
        grants: vec![format!(
            "GRANT SELECT ON {} TO {role}",
            quoted(Dialect::Postgres, name)
        )],
    }))
}

/// Whoever may use a schema was about to create something in it.
fn of_schema(schema: &str, role: &str, conn: &mut AnyConnection) -> QueryResult<Lack> {
    let asked = Statement::default()
        .sql("SELECT CASE WHEN has_schema_privilege(")
        .bind(Value::Text(schema.to_owned()))
        .sql(", 'USAGE') THEN 'CREATE' ELSE 'USAGE' END");
    let rows = asked.rows(conn)?;
    let privilege = rows.first().map_or(Ok("USAGE"), |row| row.text(0))?;
    let grant = quoted(Dialect::Postgres, schema);
    Ok(Lack {
        what: format!("{privilege} ON SCHEMA {schema}"),
        grants: vec![format!("GRANT {privilege} ON SCHEMA {grant} TO {role}")],
    })
}

/// The one to which plain names lead on MySQL.
fn database(conn: &mut AnyConnection) -> QueryResult<String> {
    let asked = Statement::default().sql("SELECT CAST(COALESCE(DATABASE(), '') AS CHAR)");
    let rows = asked.rows(conn)?;
    rows.first()
        .map_or(Ok(""), |row| row.text(0))
        .map(str::to_owned)
}

/// All of these needs, by table.
pub fn lacked(dialect: Dialect, needs: &[Need<'_>], role: &str) -> Lack {
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
    let grants = tables.iter().map(|table| {
        let list = list(*table, &|name| quoted(dialect, name));
        format!("GRANT {list} TO {role}")
    });
    Lack {
        what: what.collect::<Vec<_>>().join(" and "),
        grants: grants.collect(),
    }
}

/// MySQL's privileges to define tables, which are granted on a database: the tables are not there yet.
const DEFINES: [&str; 3] = ["CREATE", "REFERENCES", "TRIGGER"];

/// The message's own words: ``UPDATE command denied to user 'app'@'%' for table `shop`.`videos` ``, on MySQL `'videos'`, or
/// `for column 'likes' in table 'videos'`.
fn of_mysql(says: &str, needs: &[Need<'_>], role: &str, database: &str) -> Option<Lack> {
    let (privilege, rest) = says.split_once(" command denied to user ")?;
    if DEFINES.contains(&privilege) {
        // All at once: each of the statements before the next refusal would be committed.
        let needed = needs.iter().map(|need| need.privilege);
        let needed = needed.filter(|needed| DEFINES.contains(needed) && *needed != privilege);
        let all: Vec<_> = std::iter::once(privilege).chain(needed).collect();
        let (all, on) = (all.join(", "), quoted(Dialect::Mysql, database));
        return Some(Lack {
            what: format!("{all} ON {database}.*"),
            grants: vec![format!("GRANT {all} ON {on}.* TO {role}")],
        });
    }
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
        return Some(Lack {
            what: format!("{privilege} ON {name}"),
            grants: vec![format!("GRANT {privilege} ON {on} TO {role}")],
        });
    }
    Some(lacked(Dialect::Mysql, &needs, role))
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
        let Lack { what, grants } = lacked(Dialect::Postgres, &needs, "app");
        assert_eq!(
            what,
            "SELECT, UPDATE (views, likes) ON a.videos and DELETE ON videos_shards"
        );
        assert_eq!(
            grants,
            [
                r#"GRANT SELECT, UPDATE ("views", "likes") ON "a"."videos" TO app"#,
                r#"GRANT DELETE ON "videos_shards" TO app"#
            ]
        );
    }

    #[test]
    fn messages_of_mysql_and_mariadb_are_read() {
        let videos = TableName::new("videos");
        let needs = [
            Need::of("SELECT", videos),
            Need::of_column("UPDATE", "likes", videos),
        ];
        let lack = |what: &str, grant: &str| {
            Some(Lack {
                what: what.to_owned(),
                grants: vec![grant.to_owned()],
            })
        };
        let grant = "GRANT UPDATE (`likes`) ON `videos` TO 'app'@'%'";
        let update = lack("UPDATE (likes) ON videos", grant);
        for says in [
            "UPDATE command denied to user 'app'@'localhost' for table `shop`.`videos`",
            "UPDATE command denied to user 'app'@'localhost' for table 'videos'",
            "UPDATE command denied to user 'app'@'localhost' for column 'likes' in table 'videos'",
        ] {
            assert_eq!(
                of_mysql(says, &needs, "'app'@'%'", "shop"),
                update,
                "{says}"
            );
        }
        let says = "SELECT command denied to user 'app'@'localhost' for table `shop`.`comments`";
        let grant = "GRANT SELECT ON `shop`.`comments` TO 'app'@'%'";
        assert_eq!(
            of_mysql(says, &needs, "'app'@'%'", "shop"),
            lack("SELECT ON comments", grant)
        );
        let says = "CREATE command denied to user 'app'@'localhost' for table `shop`.`a`";
        let grant = "GRANT CREATE ON `shop`.* TO 'app'@'%'";
        assert_eq!(
            of_mysql(says, &needs, "'app'@'%'", "shop"),
            lack("CREATE ON shop.*", grant)
        );
        assert_eq!(of_mysql("Table 'x doesn't exist", &needs, "", ""), None);
    }
}
