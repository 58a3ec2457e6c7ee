//! Tables as the database describes them: columns, keys and foreign keys.

use std::collections::BTreeMap;

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::SHARD_NUMBERS;

use crate::connection::{AnyConnection, is_schema, within};
use crate::error::{Error, like};
use crate::nearest::nearest;
use crate::statement::quoted;

/// The tables and views that a plain name leads to, or those of one schema, by their names.
#[derive(Default)]
pub struct LiveTables {
    pub tables: BTreeMap<String, LiveTable>,
    schema: Option<String>,
    /// Whether there is the library's own table of numbers of shards, to which a plain name leads.
    pub has_numbers: bool,
}

#[derive(Debug)]
pub struct LiveTable {
    pub name: String,
    pub kind: Kind,
    /// In the table's order.
    pub columns: Vec<LiveColumn>,
    pub foreign_keys: Vec<ForeignKey>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Kind {
    Table,
    /// A table that cannot be referred to, or whose changes cannot be taken back: MyISAM and the like.
    Engine(String),
    Other(&'static str),
}

#[derive(Debug, Clone)]
pub struct LiveColumn {
    pub name: String,
    /// As the database declares it.
    pub sql_type: String,
    /// The text that follows the type where a text is not compared as the database does by default.
    pub collation: Option<String>,
    pub nullable: bool,
    pub generated: bool,
    /// The expression of its default, as the database shows it.
    pub default: Option<String>,
    /// The place in the primary key.
    pub key: Option<usize>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct ForeignKey {
    pub name: String,
    pub parent: String,
    /// Whether it deletes its rows with the parent's.
    pub deletes: bool,
    /// Whether its rows get the parent's new key.
    pub renames: bool,
    /// Each with the column that it refers to.
    pub columns: Vec<(String, String)>,
}

impl LiveTables {
    pub fn read(conn: &mut AnyConnection) -> QueryResult<Self> {
        let dialect = conn.dialect();
        let mut tables = BTreeMap::<String, LiveTable>::new();
        for row in conn.rows(columns_sql(dialect), &[])? {
            let name = row.text(0)?;
            let table = tables.entry(name.to_owned()).or_insert_with(|| LiveTable {
                name: name.to_owned(),
                kind: kind(dialect, row.get(1).unwrap_or_default()),
                columns: vec![],
                foreign_keys: vec![],
            });
            let Some(column) = row.get(2) else {
                continue;
            };
            table.columns.push(LiveColumn {
                name: column.to_owned(),
                sql_type: row.get(3).unwrap_or_default().to_lowercase(),
                nullable: row.text(4)? == "0",
                generated: row.text(5)? == "1",
                key: row.get(6).map(|_| row.parse(6)).transpose()?,
                collation: row.get(7).map(str::to_owned),
                default: row.get(8).map(str::to_owned),
            });
        }
        let mut last = None;
        for row in conn.rows(foreign_keys_sql(dialect), &[])? {
            let id = (row.text(0)?.to_owned(), row.text(1)?.to_owned());
            let column = (row.text(2)?.to_owned(), row.text(4)?.to_owned());
            let Some(table) = tables.get_mut(&id.0) else {
                continue;
            };
            match table.foreign_keys.last_mut() {
                Some(key) if last.as_ref() == Some(&id) => key.columns.push(column),
                _ => table.foreign_keys.push(ForeignKey {
                    name: row.text(5)?.to_owned(),
                    parent: row.text(3)?.to_owned(),
                    columns: vec![column],
                    deletes: row.get(6) == Some("CASCADE"),
                    renames: row.get(7) == Some("CASCADE"),
                }),
            }
            last = Some(id);
        }
        Ok(LiveTables {
            has_numbers: tables.contains_key(SHARD_NUMBERS),
            tables,
            schema: None,
        })
    }

    /// The tables among which this one is, and its name without its schema: `analytics.videos`, or a plain name.
    pub fn of(name: &str, conn: &mut AnyConnection) -> QueryResult<(Self, String)> {
        let plain = Self::read(conn)?;
        let inside = plain.inside(name, conn)?;
        Ok(inside.unwrap_or_else(|| (plain, name.to_owned())))
    }

    /// The tables of the schema in such a name, and the rest of the name; nothing for a plain one, which is among these.
    pub fn inside(
        &self,
        name: &str,
        conn: &mut AnyConnection,
    ) -> QueryResult<Option<(Self, String)>> {
        if self.tables.contains_key(name) {
            return Ok(None);
        }
        let mut found = None;
        // A schema's name may have dots too.
        for (dot, _) in name.match_indices('.') {
            let (schema, table) = (&name[..dot], &name[dot + 1..]);
            if is_schema(schema, conn)? {
                let inside = self.in_schema(schema, conn)?;
                if inside.tables.contains_key(table) {
                    return Ok(Some((inside, table.to_owned())));
                }
                found = found.or(Some((inside, table.to_owned())));
            }
        }
        Ok(found)
    }

    /// The tables of this schema.
    pub fn in_schema(&self, schema: &str, conn: &mut AnyConnection) -> QueryResult<Self> {
        Ok(LiveTables {
            schema: Some(schema.to_owned()),
            has_numbers: self.has_numbers,
            ..within(Some(schema), conn, Self::read)?
        })
    }

    /// Whether nothing else can have this name.
    pub fn has_name(&self, name: &str, dialect: Dialect) -> bool {
        match dialect {
            Dialect::Sqlite => self.tables.keys().any(|t| t.eq_ignore_ascii_case(name)),
            _ => self.tables.contains_key(name),
        }
    }

    /// The schema that stands before the names of all these tables.
    pub fn schema(&self) -> Option<&str> {
        self.schema.as_deref()
    }

    /// The name with its schema.
    pub fn full(&self, name: &str) -> String {
        match &self.schema {
            Some(schema) => format!("{schema}.{name}"),
            None => name.to_owned(),
        }
    }

    /// The table of this name, if it is one.
    pub fn table(&self, name: &str) -> Result<&LiveTable, Error> {
        let Some(table) = self.tables.get(name) else {
            let similar = nearest(name, self.tables.keys());
            let similar: Vec<_> = similar.iter().map(|name| self.full(name)).collect();
            return Err(Error::Refused(format!(
                "there is no table `{}` in this database that this role may see{}",
                self.full(name),
                like(&similar)
            )));
        };
        match &table.kind {
            Kind::Table => Ok(table),
            Kind::Engine(engine) => Err(Error::Refused(format!(
                "`{name}` uses the engine {engine}: shards need InnoDB, ALTER TABLE {} ENGINE = InnoDB",
                quoted(Dialect::Mysql, name)
            ))),
            Kind::Other(kind) => Err(Error::Refused(format!(
                "`{name}` is {kind}: only a plain table can have shards"
            ))),
        }
    }
}

impl LiveTable {
    pub fn column(&self, name: &str) -> Option<&LiveColumn> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The column of this name, which somebody gave.
    pub fn named(&self, column: &str) -> Result<&LiveColumn, Error> {
        self.column(column).ok_or_else(|| {
            let columns: Vec<_> = self.columns.iter().map(|c| &*c.name).collect();
            Error::Refused(format!(
                "`{}` has no column `{column}`; it has {}",
                self.name,
                columns.join(", ")
            ))
        })
    }

    /// The columns of the primary key, in its order.
    pub fn key(&self) -> Vec<&LiveColumn> {
        let mut key: Vec<_> = self.columns.iter().filter(|c| c.key.is_some()).collect();
        key.sort_by_key(|column| column.key);
        key
    }
}

fn kind(dialect: Dialect, kind: &str) -> Kind {
    match (dialect, kind) {
        (Dialect::Postgres, "r" | "p") => Kind::Table,
        (Dialect::Postgres, "f") => Kind::Other("a foreign table"),
        (Dialect::Postgres, "m") => Kind::Other("a materialized view"),
        (Dialect::Mysql, "BASE TABLE InnoDB") => Kind::Table,
        (Dialect::Sqlite, "table") => Kind::Table,
        (Dialect::Sqlite, "virtual") => Kind::Other("a virtual table"),
        (Dialect::Mysql, kind) => match kind.strip_prefix("BASE TABLE ") {
            Some(engine) => Kind::Engine(engine.to_owned()),
            None if kind.starts_with("VIEW") => Kind::Other("a view"),
            None => Kind::Other("no base table"),
        },
        _ => Kind::Other("a view"),
    }
}

/// Table, kind, column, type, whether it is NOT NULL, whether it is generated, its place in the primary key, its collation, its default.
fn columns_sql(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => {
            "SELECT c.relname::text, c.relkind::text, a.attname::text, format_type(a.atttypid, a.atttypmod), \
                 CASE WHEN a.attnotnull THEN '1' ELSE '0' END, CASE WHEN a.attgenerated = '' THEN '0' ELSE '1' END, \
                 array_position((i.indkey::int2[])[0:i.indnkeyatts - 1], a.attnum)::text, \
                 CASE WHEN a.attcollation <> t.typcollation \
                     THEN 'COLLATE ' || quote_ident(cn.nspname) || '.' || quote_ident(co.collname) END, \
                 (SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef d WHERE d.adrelid = c.oid AND d.adnum = a.attnum) \
             FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid JOIN pg_type t ON t.oid = a.atttypid \
                 LEFT JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary \
                 LEFT JOIN pg_collation co ON co.oid = a.attcollation \
                 LEFT JOIN pg_namespace cn ON cn.oid = co.collnamespace \
             WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND pg_table_is_visible(c.oid) \
                 AND c.relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace) \
                 AND a.attnum > 0 AND NOT a.attisdropped \
             ORDER BY c.relname, a.attnum"
        }
        Dialect::Mysql => {
            "SELECT CAST(t.TABLE_NAME AS CHAR), CONCAT(t.TABLE_TYPE, ' ', COALESCE(t.ENGINE, '')), \
                 CAST(c.COLUMN_NAME AS CHAR), CAST(c.COLUMN_TYPE AS CHAR), IF(c.IS_NULLABLE = 'NO', '1', '0'), \
                 IF(COALESCE(c.GENERATION_EXPRESSION, '') = '', '0', '1'), CAST(k.ORDINAL_POSITION AS CHAR), \
                 IF(c.COLLATION_NAME <> @@collation_database, \
                     CONCAT('CHARACTER SET ', c.CHARACTER_SET_NAME, ' COLLATE ', c.COLLATION_NAME), NULL), \
                 CAST(c.COLUMN_DEFAULT AS CHAR) \
             FROM information_schema.TABLES t \
                 JOIN information_schema.COLUMNS c ON c.TABLE_SCHEMA = t.TABLE_SCHEMA AND c.TABLE_NAME = t.TABLE_NAME \
                 LEFT JOIN information_schema.KEY_COLUMN_USAGE k ON k.TABLE_SCHEMA = c.TABLE_SCHEMA \
                     AND k.TABLE_NAME = c.TABLE_NAME AND k.COLUMN_NAME = c.COLUMN_NAME AND k.CONSTRAINT_NAME = 'PRIMARY' \
             WHERE t.TABLE_SCHEMA = DATABASE() \
             ORDER BY t.TABLE_NAME, c.ORDINAL_POSITION"
        }
        _ => {
            // Not the columns of views and virtual tables, which may be broken.
            "SELECT m.name, m.type, c.name, c.type, CAST(c.\"notnull\" AS TEXT), \
                 CASE WHEN c.hidden IN (2, 3) THEN '1' ELSE '0' END, CASE WHEN c.pk > 0 THEN CAST(c.pk AS TEXT) END, \
                 (SELECT 'COLLATE \"' || replace(x.coll, '\"', '\"\"') || '\"' FROM pragma_index_list(m.name) AS l JOIN pragma_index_xinfo(l.name) AS x \
                  WHERE l.origin = 'pk' AND x.key = 1 AND x.name = c.name AND x.coll <> 'BINARY'), \
                 c.dflt_value \
             FROM sqlite_master AS m JOIN pragma_table_xinfo(m.name) AS c \
             WHERE m.type = 'table' AND m.sql NOT LIKE 'CREATE VIRTUAL%' AND m.name NOT LIKE 'sqlite\\_%' ESCAPE '\\' \
             UNION ALL \
             SELECT name, CASE type WHEN 'view' THEN type ELSE 'virtual' END, NULL, NULL, NULL, NULL, NULL, NULL, NULL \
             FROM sqlite_master WHERE type = 'view' OR (type = 'table' AND sql LIKE 'CREATE VIRTUAL%')"
        }
    }
}

/// Table, the foreign key's id, column, parent, the parent's column, the foreign key's name, its actions.
fn foreign_keys_sql(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => {
            "SELECT c.relname::text, k.oid::text, a.attname::text, p.relname::text, pa.attname::text, k.conname::text, \
                 CASE k.confdeltype WHEN 'c' THEN 'CASCADE' END, CASE k.confupdtype WHEN 'c' THEN 'CASCADE' END \
             FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_class p ON p.oid = k.confrelid \
                 CROSS JOIN LATERAL unnest(k.conkey, k.confkey) WITH ORDINALITY AS u(own, theirs, place) \
                 JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = u.own \
                 JOIN pg_attribute pa ON pa.attrelid = p.oid AND pa.attnum = u.theirs \
             WHERE k.contype = 'f' AND pg_table_is_visible(c.oid) AND pg_table_is_visible(p.oid) \
             ORDER BY c.relname, k.oid, u.place"
        }
        Dialect::Mysql => {
            "SELECT CAST(k.TABLE_NAME AS CHAR), CAST(k.CONSTRAINT_NAME AS CHAR), CAST(k.COLUMN_NAME AS CHAR), \
                 CAST(k.REFERENCED_TABLE_NAME AS CHAR), CAST(k.REFERENCED_COLUMN_NAME AS CHAR), CAST(k.CONSTRAINT_NAME AS CHAR), \
                 CAST(r.DELETE_RULE AS CHAR), CAST(r.UPDATE_RULE AS CHAR) \
             FROM information_schema.KEY_COLUMN_USAGE k \
                 LEFT JOIN information_schema.REFERENTIAL_CONSTRAINTS r ON r.CONSTRAINT_SCHEMA = k.CONSTRAINT_SCHEMA \
                     AND r.TABLE_NAME = k.TABLE_NAME AND r.CONSTRAINT_NAME = k.CONSTRAINT_NAME \
             WHERE k.TABLE_SCHEMA = DATABASE() AND k.REFERENCED_TABLE_SCHEMA = DATABASE() \
             ORDER BY k.TABLE_NAME, k.CONSTRAINT_NAME, k.ORDINAL_POSITION"
        }
        _ => {
            "SELECT m.name, CAST(f.id AS TEXT), f.\"from\", f.\"table\", COALESCE(f.\"to\", f.\"from\"), '', f.on_delete, f.on_update \
             FROM sqlite_master AS m JOIN pragma_foreign_key_list(m.name) AS f \
             WHERE m.type = 'table' AND m.sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY m.name, f.id, f.seq"
        }
    }
}
