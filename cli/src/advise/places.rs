//! The tables to which the names in statements lead.

use std::collections::BTreeMap;
use std::rc::Rc;

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;

use crate::connection::{AnyConnection, is_schema};
use crate::live::LiveTables;

use super::counting::Counting;

/// The tables of this session, and those of schemas that statements lead to.
pub struct Places {
    plain: Rc<LiveTables>,
    schemas: BTreeMap<String, Rc<LiveTables>>,
    /// Names that may mean one of several tables.
    pub notes: Vec<String>,
}

/// A table among others.
pub struct Place {
    pub live: Rc<LiveTables>,
    pub name: String,
}

impl Places {
    pub fn read(conn: &mut AnyConnection) -> QueryResult<Self> {
        Ok(Places {
            plain: Rc::new(LiveTables::read(conn)?),
            schemas: BTreeMap::new(),
            notes: vec![],
        })
    }

    /// The table that a statement counts on, if there is one that this role may see.
    pub fn find(
        &mut self,
        counting: &Counting,
        conn: &mut AnyConnection,
    ) -> QueryResult<Option<Place>> {
        let live = match &counting.schema {
            Some(schema) if is_plain(schema, &counting.table, conn)? => Rc::clone(&self.plain),
            Some(schema) => match is_schema(schema, conn)? {
                true => self.schema(schema, conn)?,
                false => return Ok(None),
            },
            None => self.unqualified(&counting.table, conn)?,
        };
        let name = match live.tables.contains_key(&counting.table) {
            true => Some(counting.table.clone()),
            false => in_another_case(&live, &counting.table, conn.dialect()),
        };
        Ok(name.map(|name| Place { live, name }))
    }

    /// The one of this session; or of another role, whose names lead elsewhere.
    fn unqualified(
        &mut self,
        table: &str,
        conn: &mut AnyConnection,
    ) -> QueryResult<Rc<LiveTables>> {
        if conn.dialect() != Dialect::Postgres || self.plain.tables.contains_key(table) {
            return Ok(Rc::clone(&self.plain));
        }
        let schemas = "SELECT n.nspname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE c.relkind IN ('r', 'p') AND left(n.nspname, 3) <> 'pg_' AND n.nspname <> 'information_schema' \
                 AND c.relname = ? ORDER BY 1";
        let schemas = conn.texts(schemas, &[table])?;
        match schemas.as_slice() {
            [] => Ok(Rc::clone(&self.plain)),
            [schema] => self.schema(schema, conn),
            several => {
                self.notes.push(format!(
                    "Statements count on {table}, of which there is one in each of {}, and name no schema: give this role the \
                     application's search_path.",
                    several.join(", ")
                ));
                Ok(Rc::clone(&self.plain))
            }
        }
    }

    fn schema(&mut self, schema: &str, conn: &mut AnyConnection) -> QueryResult<Rc<LiveTables>> {
        if let Some(live) = self.schemas.get(schema) {
            return Ok(Rc::clone(live));
        }
        let live = Rc::new(self.plain.in_schema(schema, conn)?);
        self.schemas.insert(schema.to_owned(), Rc::clone(&live));
        Ok(live)
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
