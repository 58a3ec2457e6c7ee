//! Tables as the database describes them: columns, keys and foreign keys; and the library's column type for a declared type.

use std::collections::BTreeMap;
use std::sync::Arc;

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::{self, SHARD_NUMBERS};
use diesel_sharded::model::{ColumnType, ShardsColumn};

use crate::connection::{AnyConnection, within};
use crate::error::Error;
use crate::statement::quoted;

/// The tables and views that a plain name can refer to, or those of one schema, by their names.
#[derive(Default)]
pub struct LiveTables {
    pub tables: BTreeMap<String, LiveTable>,
    schema: Option<String>,
    /// Whether a plain name refers to the library's own table of shard numbers.
    pub has_numbers: bool,
}

#[derive(Debug)]
pub struct LiveTable {
    pub name: String,
    pub kind: Kind,
    /// The columns in the table's order.
    pub columns: Vec<LiveColumn>,
    pub foreign_keys: Vec<ForeignKey>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Kind {
    Table,
    /// A table of MyISAM or another engine without foreign keys or rollback.
    Engine(String),
    Other(String),
}

#[derive(Debug, Clone)]
pub struct LiveColumn {
    pub name: String,
    /// The declared type, as the database shows it.
    pub sql_type: String,
    /// The text after the type of a text column, if its collation is not the default.
    pub collation: Option<String>,
    pub nullable: bool,
    pub generated: bool,
    /// The expression of its default, as the database shows it.
    pub default: Option<String>,
    /// The position in the primary key.
    pub key: Option<usize>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct ForeignKey {
    pub name: String,
    pub parent: String,
    /// Whether its rows are deleted with the parent's.
    pub deletes: bool,
    /// Whether its rows get the parent's new key.
    pub renames: bool,
    /// Each column with the one that it refers to.
    pub columns: Vec<(String, String)>,
}

impl LiveTables {
    pub fn read(conn: &mut AnyConnection) -> QueryResult<Self> {
        let dialect = conn.dialect();
        let mut tables = BTreeMap::<String, LiveTable>::new();
        for row in conn.rows(catalog!(dialect, "columns"), &[])? {
            let name = row.text(0)?;
            let table = tables.entry(name.to_owned()).or_insert_with(|| LiveTable {
                name: name.to_owned(),
                kind: match row.get(1).unwrap_or_default() {
                    "table" => Kind::Table,
                    other => match other.strip_prefix("engine ") {
                        Some(engine) => Kind::Engine(engine.to_owned()),
                        None => Kind::Other(other.to_owned()),
                    },
                },
                columns: vec![],
                foreign_keys: vec![],
            });
            let Some(column) = row.get(2) else {
                continue;
            };
            table.columns.push(LiveColumn {
                name: column.to_owned(),
                sql_type: match (dialect, row.get(3).unwrap_or_default()) {
                    (Dialect::Postgres, formatted) => formatted.to_owned(),
                    (_, declared) => declared.to_lowercase(),
                },
                nullable: row.text(4)? == "0",
                generated: row.text(5)? == "1",
                key: row.get(6).map(|_| row.parse(6)).transpose()?,
                collation: row.get(7).map(str::to_owned),
                default: row.get(8).map(str::to_owned),
            });
        }
        let mut last = None;
        for row in conn.rows(catalog!(dialect, "foreign_keys"), &[])? {
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

    /// The tables beside the named one (`analytics.videos`, or a plain name), and its name without the schema.
    pub fn of(name: &str, conn: &mut AnyConnection) -> QueryResult<(Arc<Self>, String)> {
        Arc::new(Self::read(conn)?).leading_to(name, conn)
    }

    /// The same, if plain names refer to these tables.
    pub fn leading_to(
        self: &Arc<Self>,
        name: &str,
        conn: &mut AnyConnection,
    ) -> QueryResult<(Arc<Self>, String)> {
        let plain = (Arc::clone(self), name.to_owned());
        if self.tables.contains_key(name) {
            return Ok(plain);
        }
        let mut found = None;
        // A schema's name may have dots too.
        for (dot, _) in name.match_indices('.') {
            let (schema, table) = (&name[..dot], &name[dot + 1..]);
            let schemas = catalog!(conn.dialect(), "schema");
            if conn.text(schemas, &[schema])?.is_none() {
                continue;
            }
            let inside = Arc::new(LiveTables {
                schema: Some(schema.to_owned()),
                has_numbers: self.has_numbers,
                ..within(Some(schema), conn, Self::read)?
            });
            let is_there = inside.tables.contains_key(table);
            let inside = (inside, table.to_owned());
            if is_there {
                return Ok(inside);
            }
            found = found.or(Some(inside));
        }
        Ok(found.unwrap_or(plain))
    }

    /// Whether the name is taken.
    pub fn has_name(&self, name: &str, dialect: Dialect) -> bool {
        match dialect {
            Dialect::Sqlite => self.tables.keys().any(|t| t.eq_ignore_ascii_case(name)),
            _ => self.tables.contains_key(name),
        }
    }

    /// The schema of all these tables, if they were named with one.
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

    /// The table of this name, or an error if there is none or it is not a table.
    pub fn table(&self, name: &str) -> Result<&LiveTable, Error> {
        let Some(table) = self.tables.get(name) else {
            return Err(Error::Refused(format!(
                "there is no table `{}` in this database that this role may see",
                self.full(name)
            )));
        };
        Err(Error::Refused(match &table.kind {
            Kind::Table => return Ok(table),
            Kind::Engine(engine) => format!(
                "`{name}` uses the engine {engine}: shards need InnoDB, ALTER TABLE {} ENGINE = InnoDB",
                quoted(Dialect::Mysql, name)
            ),
            Kind::Other(kind) => format!("`{name}` is {kind}: only a plain table can have shards"),
        }))
    }
}

impl LiveTable {
    pub fn column(&self, name: &str) -> Option<&LiveColumn> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The column of this name, or an error for the user who gave it.
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

impl LiveColumn {
    /// The type, with its collation if that is not the default.
    pub fn full_type(&self) -> String {
        match &self.collation {
            Some(collation) => format!("{} {collation}", self.sql_type),
            None => self.sql_type.clone(),
        }
    }

    /// The column as a sharded field. It has a declaration for the shards table if the type alone is not enough.
    pub fn as_field(&self, dialect: Dialect) -> Option<ShardsColumn> {
        let found = column_type(dialect, &self.sql_type)?;
        let declared = match found {
            // With precision and scale. On PostgreSQL a column without them accepts any.
            ColumnType::Numeric => Some(self.sql_type.to_uppercase()),
            ColumnType::Double => None,
            found if is_integer(found) => None,
            _ => return None,
        };
        Some(described::column(self.name.clone(), found, declared))
    }

    /// The column as a column of the primary key.
    pub fn as_key(&self, dialect: Dialect) -> Option<ShardsColumn> {
        let found = column_type(dialect, &self.sql_type)?;
        let declared = match found {
            ColumnType::Double | ColumnType::Numeric => return None,
            ColumnType::Other => Some(self.full_type()),
            ColumnType::Timestamp if dialect == Dialect::Mysql => {
                Some(self.sql_type.to_uppercase())
            }
            // With length and collation, because a foreign key requires the same ones.
            ColumnType::Text | ColumnType::Binary => {
                let sql_type = self.sql_type.to_uppercase();
                let is_plain = dialect != Dialect::Mysql
                    && self.collation.is_none()
                    && matches!(&*sql_type, "TEXT" | "BYTEA" | "BLOB");
                let collation = self.collation.iter().map(|text| format!(" {text}"));
                (!is_plain).then(|| sql_type + &collation.collect::<String>())
            }
            _ => None,
        };
        Some(described::column(self.name.clone(), found, declared))
    }
}

pub fn is_integer(column: ColumnType) -> bool {
    column.range().is_some()
}

fn column_type(dialect: Dialect, sql_type: &str) -> Option<ColumnType> {
    let name = sql_type.split('(').next().unwrap_or_default().trim();
    match dialect {
        Dialect::Postgres => match name {
            "smallint" => Some(ColumnType::SmallInt),
            "integer" => Some(ColumnType::Integer),
            "bigint" => Some(ColumnType::BigInt),
            "double precision" => Some(ColumnType::Double),
            "numeric" => Some(ColumnType::Numeric),
            "text" | "character varying" => Some(ColumnType::Text),
            "bytea" => Some(ColumnType::Binary),
            "uuid" => Some(ColumnType::Uuid),
            "date" => Some(ColumnType::Date),
            "boolean" => Some(ColumnType::Bool),
            _ if name.starts_with("timestamp") => match sql_type.ends_with("with time zone") {
                true => Some(ColumnType::Timestamptz),
                false => Some(ColumnType::Timestamp),
            },
            // `character(n)` does not equal its own padded text.
            "real" | "character" | "bpchar" => None,
            _ => Some(ColumnType::Other),
        },
        Dialect::Mysql => {
            let unsigned = sql_type.ends_with(" unsigned") || sql_type.contains(" unsigned ");
            match (name.trim_end_matches(" unsigned"), unsigned) {
                ("smallint", false) => Some(ColumnType::SmallInt),
                ("int", false) => Some(ColumnType::Integer),
                ("bigint", false) => Some(ColumnType::BigInt),
                ("smallint", true) => Some(ColumnType::UnsignedSmallInt),
                ("int", true) => Some(ColumnType::UnsignedInteger),
                ("bigint", true) => Some(ColumnType::UnsignedBigInt),
                ("double", false) => Some(ColumnType::Double),
                ("decimal", false) => Some(ColumnType::Numeric),
                // Not `text` and `blob`: only a prefix of them can be a key.
                ("varchar" | "char", false) => Some(ColumnType::Text),
                ("varbinary" | "binary", false) => Some(ColumnType::Binary),
                ("date", false) => Some(ColumnType::Date),
                ("datetime" | "timestamp", false) => Some(ColumnType::Timestamp),
                ("tinyint", false) if sql_type == "tinyint(1)" => Some(ColumnType::Bool),
                _ => None,
            }
        }
        // SQLite accepts any text as a type. This reads it as `diesel print-schema` does.
        _ => {
            let has = |parts: &[&str]| parts.iter().any(|part| sql_type.contains(part));
            match sql_type {
                "" | "tinyint" | "time" => None,
                "bool" | "boolean" => Some(ColumnType::Bool),
                "datetime" | "timestamp" => Some(ColumnType::Timestamp),
                "timestamptz" => Some(ColumnType::Timestamptz),
                "date" => Some(ColumnType::Date),
                _ if has(&["smallint", "int2"]) => Some(ColumnType::SmallInt),
                _ if has(&["bigint", "int8"]) => Some(ColumnType::BigInt),
                _ if has(&["int"]) => Some(ColumnType::Integer),
                _ if has(&["char", "clob", "text"]) => Some(ColumnType::Text),
                _ if has(&["blob"]) => Some(ColumnType::Binary),
                // Diesel reads these as `Float`, which cannot be a sharded field.
                _ if has(&["float", "real"]) => None,
                _ if has(&["double", "num", "dec"]) => Some(ColumnType::Double),
                _ => None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(sql_type: &str, collation: Option<&str>) -> LiveColumn {
        LiveColumn {
            name: "c".into(),
            sql_type: sql_type.into(),
            collation: collation.map(str::to_owned),
            nullable: false,
            generated: false,
            default: None,
            key: None,
        }
    }

    #[test]
    fn declared_types_are_the_librarys() {
        for (dialect, sql_type, expected) in [
            (Dialect::Postgres, "bigint", Some(ColumnType::BigInt)),
            (
                Dialect::Postgres,
                "numeric(30,6)",
                Some(ColumnType::Numeric),
            ),
            (Dialect::Postgres, "real", None),
            (Dialect::Postgres, "character varying(9)", None),
            (
                Dialect::Mysql,
                "int(10) unsigned",
                Some(ColumnType::UnsignedInteger),
            ),
            (
                Dialect::Mysql,
                "bigint unsigned",
                Some(ColumnType::UnsignedBigInt),
            ),
            (Dialect::Mysql, "int", Some(ColumnType::Integer)),
            (Dialect::Mysql, "tinyint(1)", None),
            (Dialect::Mysql, "decimal(10,2) unsigned", None),
            (Dialect::Sqlite, "integer", Some(ColumnType::Integer)),
            (
                Dialect::Sqlite,
                "unsigned big int",
                Some(ColumnType::Integer),
            ),
            (
                Dialect::Sqlite,
                "double precision",
                Some(ColumnType::Double),
            ),
            (Dialect::Sqlite, "real", None),
        ] {
            let found = column(sql_type, None).as_field(dialect);
            let found = found.map(|field| field.column_type());
            assert_eq!(found, expected, "{sql_type}");
        }
    }

    #[test]
    fn keys_keep_their_length_and_collation() {
        let declared = |dialect, sql_type, collation| {
            let key = column(sql_type, collation).as_key(dialect).unwrap();
            described::declared_type(dialect, &key).to_owned()
        };
        let plain = format!("{:?}", column("text", None).as_key(Dialect::Postgres));
        assert!(plain.contains("sql_type: None"), "{plain}");
        let collation = Some("COLLATE pg_catalog.\"C\"");
        let with_collation = declared(Dialect::Postgres, "text", collation);
        assert_eq!(with_collation, "TEXT COLLATE pg_catalog.\"C\"");
        let with_length = declared(Dialect::Mysql, "varchar(36)", None);
        assert_eq!(with_length, "VARCHAR(36)");
        assert!(column("longtext", None).as_key(Dialect::Mysql).is_none());
        for (dialect, sql_type, expected) in [
            (
                Dialect::Postgres,
                "timestamp(3) without time zone",
                "TIMESTAMP",
            ),
            (Dialect::Postgres, "timestamp with time zone", "TIMESTAMPTZ"),
            (Dialect::Postgres, "boolean", "BOOLEAN"),
            (Dialect::Postgres, "\"Mood\"", "\"Mood\""),
            (Dialect::Mysql, "timestamp(6)", "TIMESTAMP(6)"),
            (Dialect::Mysql, "tinyint(1)", "BOOLEAN"),
            (Dialect::Sqlite, "datetime", "TIMESTAMP"),
        ] {
            assert_eq!(declared(dialect, sql_type, None), expected);
        }
        for sql_type in ["enum('a','b')", "tinyint(4)"] {
            assert!(column(sql_type, None).as_key(Dialect::Mysql).is_none());
        }
        let padded = column("character(3)", None);
        assert!(padded.as_key(Dialect::Postgres).is_none());
    }
}
