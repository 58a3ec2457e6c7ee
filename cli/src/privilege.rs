//! A privilege that this role lacks, and the statement that grants it.

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

/// A privilege on a table that a command needs; enough on these columns, if there are some.
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

    /// Those for reading totals.
    pub fn to_read(sharded: &'t Sharded) -> [Self; 2] {
        let columns = [names(sharded.key()), names(sharded.fields())].concat();
        [
            Need::of_columns("SELECT", columns, sharded.table()),
            Need::of("SELECT", sharded.shards_table()),
        ]
    }

    /// Those for folding, beside reading totals.
    pub fn to_fold(sharded: &'t Sharded, removes: bool) -> impl Iterator<Item = Self> {
        let shards = sharded.shards_table();
        let of_shards = ["UPDATE"].into_iter().chain(removes.then_some("DELETE"));
        let of_shards = of_shards.map(move |privilege| Need::of(privilege, shards));
        Need::to_update(sharded.fields(), sharded.table()).chain(of_shards)
    }

    /// To update each of these columns.
    pub fn to_update(
        fields: &'t [ShardsColumn],
        table: TableName<'t>,
    ) -> impl Iterator<Item = Self> {
        let fields = fields.iter();
        fields.map(move |field| Need::of_columns("UPDATE", vec![field.name()], table))
    }

    /// Whether the role of this connection has it on the table or on each of the columns, by the catalogs. It lacks none on a table
    /// that is gone.
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
        // As many of these as the query asks for.
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

    /// The columns of an `UPDATE`: other privileges are granted on a table.
    fn granted_columns(&self) -> &[&'t str] {
        match self.privilege {
            "UPDATE" => &self.columns,
            _ => &[],
        }
    }
}

/// The privileges that a role lacks.
#[derive(Debug, PartialEq, Eq)]
pub struct Lack {
    /// In words, `UPDATE (views) ON videos`.
    what: String,
    /// A statement for each table.
    pub grants: Vec<String>,
}

/// The role of this connection, as `GRANT` takes it. MySQL's messages have the host of the client in place of the account's.
pub fn current_role(conn: &mut AnyConnection) -> QueryResult<String> {
    let role = conn.text(catalog!(server conn.dialect(), "role"), &[])?;
    Ok(role.unwrap_or_default())
}

/// The error with the privilege that is lacking, if that is its reason.
pub fn explained(error: Error, needs: &[Need<'_>], conn: &mut AnyConnection) -> Error {
    let says = match &error {
        Error::Recount(says, _) => says.clone(),
        Error::Database(ShardedError::Diesel(DieselError::DatabaseError(
            DatabaseErrorKind::Unknown,
            information,
        ))) => information.message().to_owned(),
        _ => return error,
    };
    // A connection that is lost cannot be asked. The first error says so.
    let Ok(role) = current_role(conn) else {
        return error;
    };
    let found = match conn.dialect() {
        Dialect::Postgres => of_postgres(&says, needs, &role, conn).unwrap_or_default(),
        Dialect::Mysql => {
            let database = conn.database().unwrap_or_default();
            // What the roles of a user may do the catalogs do not show.
            let denied = match enabled_roles(conn).is_ok_and(|roles| roles.is_empty()) {
                true => denied(needs, conn).unwrap_or_default(),
                false => vec![],
            };
            of_mysql(&says, needs, &denied, &role, &database)
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

/// Those of the needs that the role of this connection does not have, by the catalogs.
pub fn denied<'t>(needs: &[Need<'t>], conn: &mut AnyConnection) -> QueryResult<Vec<Need<'t>>> {
    let mut denied = vec![];
    for need in needs {
        if !need.is_granted(conn)? {
            denied.push(need.clone());
        }
    }
    Ok(denied)
}

/// Those of the needs that the catalogs deny, whatever the language of the message. If they deny none, the message may name a table of
/// the recount or a schema: the role that may use that was about to create something in it.
fn of_postgres(
    says: &str,
    needs: &[Need<'_>],
    role: &str,
    conn: &mut AnyConnection,
) -> QueryResult<Option<Lack>> {
    let denied = denied(needs, conn)?;
    if !denied.is_empty() {
        return Ok(Some(lacked(Dialect::Postgres, &denied, role)));
    }
    let objects = catalog!("postgres/", "refused_objects");
    for object in conn.rows(objects, &[says, says])? {
        let (privilege, before, name) = (object.text(0)?, object.text(1)?, object.text(3)?);
        let schema = (object.get(4) == Some("0")).then(|| object.text(2));
        if names_plainly(says, name) {
            let names = schema.transpose()?.into_iter().chain([name]);
            let quoted = names.clone().map(|name| quoted(Dialect::Postgres, name));
            let (on, quoted) = (joined(".", names), joined(".", quoted));
            return Ok(Some(Lack {
                what: format!("{privilege} ON {before}{on}"),
                grants: vec![format!("GRANT {privilege} ON {before}{quoted} TO {role}")],
            }));
        }
    }
    Ok(None)
}

/// Whether a message has this name as a word. In each language PostgreSQL writes the name of a table without quotes only where it refuses
/// a privilege.
fn names_plainly(says: &str, name: &str) -> bool {
    let is_beside = |c: Option<char>| {
        c.is_some_and(|c| c.is_ascii_alphanumeric() || "_$\"'`«»„“”‚‘’「」".contains(c))
    };
    says.match_indices(name).any(|(at, _)| {
        let (before, behind) = (&says[..at], &says[at + name.len()..]);
        !is_beside(before.chars().next_back()) && !is_beside(behind.chars().next())
    })
}

/// All of these needs, by table.
pub fn lacked(dialect: Dialect, needs: &[Need<'_>], role: &str) -> Lack {
    let mut needs = needs.to_vec();
    needs.sort_by_key(|need| need.table.to_string());
    let (mut what, mut grants) = (vec![], vec![]);
    for of_table in needs.chunk_by(|one, other| one.table == other.table) {
        let list = |name: &dyn Fn(&str) -> String| {
            let same = of_table.chunk_by(|one, other| one.privilege == other.privilege);
            let listed = same.map(|needs| {
                let columns = needs.iter().flat_map(|need| need.granted_columns());
                match &*joined(", ", columns.map(|column| name(column))) {
                    "" => needs[0].privilege.to_owned(),
                    columns => format!("{} ({columns})", needs[0].privilege),
                }
            });
            joined(", ", listed)
        };
        let table = of_table[0].table;
        what.push(format!("{} ON {table}", list(&str::to_owned)));
        let (list, on) = (
            list(&|name| quoted(dialect, name)),
            quoted_table(dialect, table),
        );
        grants.push(format!("GRANT {list} ON {on} TO {role}"));
    }
    let what = what.join(" and ");
    Lack { what, grants }
}

/// MySQL's privileges to define tables, which are granted on a database: the tables are not there yet.
const DEFINES: [&str; 3] = ["CREATE", "REFERENCES", "TRIGGER"];

/// The message's own words: ``UPDATE command denied to user 'app'@'%' for table `shop`.`videos` ``, on MySQL `'videos'`, or
/// `for column 'likes' in table 'videos'`.
/// With it those that the catalogs deny, too.
fn of_mysql(
    says: &str,
    needs: &[Need<'_>],
    denied: &[Need<'_>],
    role: &str,
    database: &str,
) -> Option<Lack> {
    let (privilege, rest) = says.split_once(" command denied to user ")?;
    if DEFINES.contains(&privilege) {
        // All at once: each of the statements before the next refusal would be committed.
        let needed = needs.iter().map(|need| need.privilege);
        let needed = needed.filter(|needed| DEFINES.contains(needed) && *needed != privilege);
        let all = joined(", ", std::iter::once(privilege).chain(needed));
        let on = quoted(Dialect::Mysql, database);
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
    let is_it = |need: &Need<'_>| need.privilege == privilege && need.table.name() == name;
    let is_column = |need: &Need<'_>| is_it(need) && need.columns == [column];
    let of_column = needs.iter().any(is_column);
    if !needs.iter().any(is_it) {
        let on = match table.starts_with('`') {
            true => table.to_owned(),
            false => quoted(Dialect::Mysql, name),
        };
        return Some(Lack {
            what: format!("{privilege} ON {name}"),
            grants: vec![format!("GRANT {privilege} ON {on} TO {role}")],
        });
    }
    let lacking = needs
        .iter()
        .filter(|need| is_it(need) && (!of_column || is_column(need)) || denied.contains(need));
    let lacking: Vec<_> = lacking.cloned().collect();
    Some(lacked(Dialect::Mysql, &lacking, role))
}

/// MySQL's roles that are enabled. PostgreSQL knows by itself what a role has from others.
pub fn enabled_roles(conn: &mut AnyConnection) -> QueryResult<Vec<String>> {
    if conn.dialect() != Dialect::Mysql {
        return Ok(vec![]);
    }
    // MariaDB shows a NULL for none.
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

    #[test]
    fn messages_of_mysql_and_mariadb_are_read() {
        let videos = TableName::new("videos");
        let needs = [
            Need::of("SELECT", videos),
            Need::of_columns("UPDATE", vec!["likes"], videos),
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
                of_mysql(says, &needs, &[], "'app'@'%'", "shop"),
                update,
                "{says}"
            );
        }
        let says = "SELECT command denied to user 'app'@'localhost' for table `shop`.`videos`";
        let grant = "GRANT SELECT, UPDATE (`likes`) ON `videos` TO 'app'@'%'";
        assert_eq!(
            of_mysql(says, &needs, &needs[1..], "'app'@'%'", "shop"),
            lack("SELECT, UPDATE (likes) ON videos", grant)
        );
        let says = "SELECT command denied to user 'app'@'localhost' for table `shop`.`comments`";
        let grant = "GRANT SELECT ON `shop`.`comments` TO 'app'@'%'";
        assert_eq!(
            of_mysql(says, &needs, &[], "'app'@'%'", "shop"),
            lack("SELECT ON comments", grant)
        );
        let says = "CREATE command denied to user 'app'@'localhost' for table `shop`.`a`";
        let grant = "GRANT CREATE ON `shop`.* TO 'app'@'%'";
        assert_eq!(
            of_mysql(says, &needs, &[], "'app'@'%'", "shop"),
            lack("CREATE ON shop.*", grant)
        );
        assert_eq!(
            of_mysql("Table 'x doesn't exist", &needs, &[], "", ""),
            None
        );
    }

    #[test]
    fn a_refused_table_is_named_in_every_language() {
        for says in [
            "permission denied for table comments",
            "keine Berechtigung für Tabelle comments",
            "テーブルcommentsへのアクセスが拒否されました",
            "comments 테이블 접근 권한 없음",
        ] {
            assert!(names_plainly(says, "comments"), "{says}");
            assert!(!names_plainly(says, "comment"), "{says}");
        }
        for says in [
            "column \"comments\" does not exist",
            "Spalte »comments« existiert nicht",
            "permission denied for table comments_2",
        ] {
            assert!(!names_plainly(says, "comments"), "{says}");
        }
    }
}
