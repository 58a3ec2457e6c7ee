//! The tables to which the names in statements lead.

use std::collections::BTreeMap;
use std::sync::Arc;

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;

use crate::connection::{AnyConnection, is_schema};
use crate::live::LiveTables;

use super::counting::Counting;

/// The tables of this session, and those of schemas that statements lead to.
pub struct Places {
    plain: Arc<LiveTables>,
    schemas: BTreeMap<String, Arc<LiveTables>>,
    /// Names that may mean one of several tables.
    pub notes: Vec<String>,
}

impl Places {
    pub fn read(conn: &mut AnyConnection) -> QueryResult<Self> {
        Ok(Places {
            plain: Arc::new(LiveTables::read(conn)?),
            schemas: BTreeMap::new(),
            notes: vec![],
        })
    }

    /// The table that a statement counts on, among others, if there is one that this role may see.
    pub fn find(
        &mut self,
        counting: &Counting,
        conn: &mut AnyConnection,
    ) -> QueryResult<Option<(Arc<LiveTables>, String)>> {
        let table = &counting.table;
        let schema = match &counting.schema {
            Some(schema) if is_plain(schema, table, conn)? => None,
            Some(schema) if is_schema(schema, conn)? => Some(schema.clone()),
            Some(_) => return Ok(None),
            None => self.elsewhere(table, conn)?,
        };
        let live = match schema {
            None => Arc::clone(&self.plain),
            Some(schema) => match self.schemas.get(&schema) {
                Some(live) => Arc::clone(live),
                None => {
                    let live = self.plain.in_schema(&schema, conn)?;
                    self.schemas.insert(schema, Arc::clone(&live));
                    live
                }
            },
        };
        let name = match live.tables.contains_key(table) {
            true => Some(table.clone()),
            false => in_another_case(&live, table, conn.dialect()),
        };
        Ok(name.map(|name| (live, name)))
    }

    /// The schema of a table that is not this session's: that of another role, whose names lead elsewhere.
    fn elsewhere(&mut self, table: &str, conn: &mut AnyConnection) -> QueryResult<Option<String>> {
        if conn.dialect() != Dialect::Postgres || self.plain.tables.contains_key(table) {
            return Ok(None);
        }
        let mut schemas = conn.texts(catalog!("postgres/", "schemas_of_table"), &[table])?;
        if schemas.len() > 1 {
            self.notes.push(format!(
                "Statements count on {table}, of which there is one in each of {}, and name no schema: give this role the \
                 application's search_path.",
                schemas.join(", ")
            ));
            return Ok(None);
        }
        Ok(schemas.pop())
    }
}

/// The only table whose name differs by case alone, which MySQL takes on some systems.
fn in_another_case(live: &LiveTables, name: &str, dialect: Dialect) -> Option<String> {
    if dialect != Dialect::Mysql {
        return None;
    }
    let name = name.to_lowercase();
    let names = live.tables.keys();
    let like: Vec<_> = names.filter(|other| other.to_lowercase() == name).collect();
    match like[..] {
        [only] => Some(only.clone()),
        _ => None,
    }
}

/// Whether the plain name leads to the table of this schema.
fn is_plain(schema: &str, table: &str, conn: &mut AnyConnection) -> QueryResult<bool> {
    let plain = match conn.dialect() {
        Dialect::Postgres => {
            let visible = "SELECT n.nspname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
                 WHERE pg_table_is_visible(c.oid) AND c.relname = ?";
            conn.texts(visible, &[table])?
        }
        _ => conn.texts("SELECT CAST(DATABASE() AS CHAR)", &[])?,
    };
    Ok(plain.iter().any(|plain| plain == schema))
}
