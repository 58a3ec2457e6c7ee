//! Privileges that this role lacks, and the statements that grant them.

use diesel::prelude::*;
use diesel::result::{DatabaseErrorKind, Error as DieselError};
use diesel_sharded::Error as ShardedError;
use diesel_sharded::backend::Dialect;
use diesel_sharded::model::{ShardsColumn, TableName};

use crate::connection::AnyConnection;
use crate::error::Error;
use crate::output::joined;
use crate::sharded::{Sharded, names};
use crate::statement::{quoted, quoted_table};

/// A privilege that a command needs on a table. If there are `columns`, the privilege on these is enough.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need<'t> {
    privilege: &'static str,
    columns: Vec<&'t str>,
    table: TableName<'t>,
}

impl<'t> Need<'t> {
    pub fn of(privilege: &'static str, table: TableName<'t>) -> Self {
        Need::of_columns(privilege, vec![], table)
    }

    pub fn of_columns(
        privilege: &'static str,
        columns: Vec<&'t str>,
        table: TableName<'t>,
    ) -> Self {
        Need {
            privilege,
            columns,
            table,
        }
    }

    /// The privileges for reading totals.
    pub fn to_read(sharded: &'t Sharded) -> [Self; 2] {
        let columns = [names(&sharded.key), names(&sharded.fields)].concat();
        [
            Need::of_columns("SELECT", columns, sharded.table()),
            Need::of("SELECT", sharded.shards_table()),
        ]
    }

    /// The privileges for folding, in addition to reading totals.
    pub fn to_fold(sharded: &'t Sharded, removes: bool) -> impl Iterator<Item = Self> {
        let shards = sharded.shards_table();
        let of_shards = ["UPDATE"].into_iter().chain(removes.then_some("DELETE"));
        let of_shards = of_shards.map(move |privilege| Need::of(privilege, shards));
        Need::to_update(&sharded.fields, sharded.table()).chain(of_shards)
    }

    /// The privileges for updating each of these columns.
    pub fn to_update(
        fields: &'t [ShardsColumn],
        table: TableName<'t>,
    ) -> impl Iterator<Item = Self> {
        let fields = fields.iter();
        fields.map(move |field| Need::of_columns("UPDATE", vec![field.name()], table))
    }

    /// Whether, by the catalogs, this connection's role has the privilege on the table or on each of the columns. If the table is gone, the
    /// role lacks nothing.
    fn is_granted(&self, conn: &mut AnyConnection) -> QueryResult<bool> {
        let dialect = conn.dialect();
        let schema = match self.table.schema() {
            Some(schema) => schema.to_owned(),
            None if dialect == Dialect::Postgres => String::new(),
            None => conn.database()?,
        };
        let mut is = |query: &str, texts: &[&str]| {
            let granted = conn.text(query, texts)?;
            QueryResult::Ok(granted.is_none_or(|granted| granted == "1"))
        };
        // The query uses as many of these as it has binds.
        let (privilege, name, schema) = (self.privilege, self.table.name(), &*schema);
        let of_table = [privilege, name, schema, schema, privilege, privilege];
        if is(catalog!(server dialect, "table_privilege"), &of_table)? {
            return Ok(true);
        }
        for column in &self.columns {
            let of_column = [column, privilege, name, schema, schema];
            if !is(catalog!(server dialect, "column_privilege"), &of_column)? {
                return Ok(false);
            }
        }
        Ok(!self.columns.is_empty())
    }
}

/// The privileges that a role lacks.
#[derive(Debug, PartialEq, Eq)]
pub struct Lack {
    /// The privileges as text: `UPDATE (views) ON videos`.
    what: String,
    /// A statement for each table.
    pub grants: Vec<String>,
}

/// The role of this connection in the form for `GRANT`. (MySQL's messages contain the client's host instead of the account's.)
pub fn current_role(conn: &mut AnyConnection) -> QueryResult<String> {
    let role = conn.text(catalog!(server conn.dialect(), "role"), &[])?;
    Ok(role.unwrap_or_default())
}

/// Adds to the error the needed privileges that the role lacks by the catalogs. So the language of the message does not matter. For tables
/// outside of `needs`, the message itself has to tell.
pub fn explained(error: Error, needs: &[Need<'_>], conn: &mut AnyConnection) -> Error {
    let says = match &error {
        Error::Recount(says, _) => says.clone(),
        Error::Database(ShardedError::Diesel(DieselError::DatabaseError(
            DatabaseErrorKind::Unknown,
            information,
        ))) => information.message().to_owned(),
        _ => return error,
    };
    // If the connection is lost, the first error tells that.
    let Ok(role) = current_role(conn) else {
        return error;
    };
    // MySQL's catalogs do not show what a user's roles may do. But this message is always in English.
    let is_refused = match conn.dialect() {
        Dialect::Mysql => says.contains(" command denied to user "),
        dialect => dialect == Dialect::Postgres,
    };
    let denied = denied(needs, conn).unwrap_or_default();
    if denied.is_empty() || !is_refused {
        return error;
    }
    let Lack { what, grants } = lacked(conn.dialect(), &denied, &role);
    Error::Privilege {
        what,
        grant: grants.join("; "),
        says,
    }
}

/// The needed privileges that this connection's role lacks by the catalogs.
pub fn denied<'t>(needs: &[Need<'t>], conn: &mut AnyConnection) -> QueryResult<Vec<Need<'t>>> {
    let mut denied = vec![];
    for need in needs {
        if !need.is_granted(conn)? {
            denied.push(need.clone());
        }
    }
    Ok(denied)
}

/// Describes these needs as lacking, by table.
pub fn lacked(dialect: Dialect, needs: &[Need<'_>], role: &str) -> Lack {
    let mut needs = needs.to_vec();
    needs.sort_by_key(|need| need.table.to_string());
    let (mut what, mut grants) = (vec![], vec![]);
    for of_table in needs.chunk_by(|one, other| one.table == other.table) {
        let list = |name: &dyn Fn(&str) -> String| {
            let same = of_table.chunk_by(|one, other| one.privilege == other.privilege);
            let listed = same.map(|needs| {
                // Other privileges than `UPDATE` are granted on the table.
                let updates = needs.iter().filter(|need| need.privilege == "UPDATE");
                let columns = updates.flat_map(|need| &need.columns);
                match &*joined(", ", columns.map(|column| name(column))) {
                    "" => needs[0].privilege.to_owned(),
                    columns => format!("{} ({columns})", needs[0].privilege),
                }
            });
            joined(", ", listed)
        };
        let table = of_table[0].table;
        what.push(format!("{} ON {table}", list(&str::to_owned)));
        let list = list(&|name| quoted(dialect, name));
        let on = quoted_table(dialect, table);
        grants.push(format!("GRANT {list} ON {on} TO {role}"));
    }
    let what = what.join(" and ");
    Lack { what, grants }
}

/// The enabled roles on MySQL. PostgreSQL's own functions consider inherited privileges.
pub fn enabled_roles(conn: &mut AnyConnection) -> QueryResult<Vec<String>> {
    if conn.dialect() != Dialect::Mysql {
        return Ok(vec![]);
    }
    // MariaDB shows NULL if none is enabled; `texts` skips it.
    let roles = conn.texts(catalog!("mysql/", "enabled_roles"), &[])?;
    let roles = roles.into_iter();
    Ok(roles.map(|role| quoted(Dialect::Mysql, &role)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileges_are_named_and_granted() {
        let videos = TableName::in_schema("a.videos", 1);
        let needs = [
            Need::of("SELECT", videos),
            Need::of_columns("UPDATE", vec!["views"], videos),
            Need::of_columns("UPDATE", vec!["likes"], videos),
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
}
