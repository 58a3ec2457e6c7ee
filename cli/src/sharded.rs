//! The sharded tables of a database, found by the form of their shards tables.
//!
//! A shards table is a table whose primary key is its parent's and `shard`, with a foreign key from the former to the parent's
//! primary key, and whose other columns are columns of the parent that can be counted.

use diesel_sharded::backend::Dialect;
use diesel_sharded::described::{self, DescribedTable};
use diesel_sharded::model::{ColumnType, ShardsColumn};

use crate::column_type::{field_type, key_type};
use crate::error::Error;
use crate::live::{Kind, LiveTable, LiveTables};

/// The library's own table of named counters, whose names are UTF-8 in bytes.
pub const COUNTERS: &str = "diesel_sharded_counters";

/// A sharded table. Names live as long as the process, which is short, since the library is made for those of constants.
#[derive(Debug, Clone)]
pub struct Sharded {
    pub table: &'static str,
    pub shards_table: &'static str,
    pub key: Vec<KeyColumn>,
    pub fields: Vec<Field>,
    pub described: DescribedTable,
}

#[derive(Debug, Clone, Copy)]
pub struct KeyColumn {
    pub name: &'static str,
    pub column_type: ColumnType,
    /// Bytes that are shown as text.
    pub utf8: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct Field {
    pub name: &'static str,
    pub column_type: ColumnType,
    pub column: ShardsColumn,
}

pub fn is_integer(column: ColumnType) -> bool {
    use ColumnType::{
        BigInt, Integer, SmallInt, UnsignedBigInt, UnsignedInteger, UnsignedSmallInt,
    };
    matches!(
        column,
        SmallInt | Integer | BigInt | UnsignedSmallInt | UnsignedInteger | UnsignedBigInt
    )
}

impl Sharded {
    /// All of the database, by their names.
    pub fn all(dialect: Dialect, live: &LiveTables) -> Vec<Self> {
        let tables = live.tables.values();
        tables
            .filter_map(|table| of(dialect, live, table))
            .collect()
    }

    /// Those of these names, or all, the named counters last.
    pub fn named(
        dialect: Dialect,
        live: &LiveTables,
        names: &[String],
    ) -> Result<Vec<Self>, Error> {
        let mut all = Self::all(dialect, live);
        all.sort_by_key(|sharded| (sharded.table == COUNTERS, sharded.table));
        match names {
            [] => Ok(all),
            names => names.iter().map(|name| one(live, &all, name)).collect(),
        }
    }

    /// The one of this name.
    pub fn find(dialect: Dialect, live: &LiveTables, name: &str) -> Result<Self, Error> {
        one(live, &Self::all(dialect, live), name)
    }

    pub fn field(&self, name: &str) -> Result<Field, Error> {
        let field = self.fields.iter().find(|field| field.name == name);
        field.copied().ok_or_else(|| Error::NoSuchField {
            table: self.table.to_owned(),
            column: name.to_owned(),
            fields: self.fields.iter().map(|f| f.name.to_owned()).collect(),
        })
    }

    /// Describes a table by what is known of it.
    pub fn describe(
        table: &str,
        shards_table: &str,
        key: Vec<(String, ColumnType, Option<String>)>,
        fields: Vec<(String, ColumnType, Option<String>)>,
    ) -> Self {
        let (table, shards_table) = (keep(table.to_owned()), keep(shards_table.to_owned()));
        let columns = |columns: Vec<(String, ColumnType, Option<String>)>| -> &'static [_] {
            let columns = columns.into_iter().map(|(name, column_type, sql_type)| {
                let column = described::column(keep(name), column_type, sql_type.map(keep));
                (column, column_type)
            });
            Vec::leak(columns.collect())
        };
        let names = |columns: &[(ShardsColumn, ColumnType)]| -> &'static [ShardsColumn] {
            Vec::leak(columns.iter().map(|(column, _)| *column).collect())
        };
        let (key, fields) = (columns(key), columns(fields));
        Sharded {
            table,
            shards_table,
            key: key
                .iter()
                .map(|(column, column_type)| KeyColumn {
                    name: column.name(),
                    column_type: *column_type,
                    utf8: table == COUNTERS,
                })
                .collect(),
            fields: fields
                .iter()
                .map(|(column, column_type)| Field {
                    name: column.name(),
                    column_type: *column_type,
                    column: *column,
                })
                .collect(),
            described: DescribedTable::new(table, shards_table, names(key), names(fields)),
        }
    }
}

fn one(live: &LiveTables, all: &[Sharded], name: &str) -> Result<Sharded, Error> {
    if let Some(sharded) = all.iter().find(|sharded| sharded.table == name) {
        return Ok(sharded.clone());
    }
    live.table(name)?;
    match all.iter().any(|sharded| sharded.shards_table == name) {
        true => Err(Error::IsShardsTable(name.to_owned())),
        false => Err(Error::NotSharded {
            table: name.to_owned(),
        }),
    }
}

fn keep(name: String) -> &'static str {
    name.leak()
}

/// The table whose shards are in `shards`, if that has the form of a shards table.
fn of(dialect: Dialect, live: &LiveTables, shards: &LiveTable) -> Option<Sharded> {
    if shards.kind != Kind::Table {
        return None;
    }
    let key = shards.key();
    let (shard, key) = key.split_last()?;
    if shard.name != "shard" || key.is_empty() {
        return None;
    }
    let key_names: Vec<_> = key.iter().map(|column| column.name.as_str()).collect();
    let parent = shards.foreign_keys.iter().find_map(|foreign_key| {
        let mut own: Vec<_> = foreign_key
            .columns
            .iter()
            .map(|(c, _)| c.as_str())
            .collect();
        own.sort_by_key(|name| key_names.iter().position(|k| k == name));
        let same = foreign_key
            .columns
            .iter()
            .all(|(own, theirs)| own == theirs);
        let parent = live.tables.get(&foreign_key.parent)?;
        let parents_key: Vec<_> = parent.key().iter().map(|c| c.name.as_str()).collect();
        (same && own == key_names && parents_key == key_names).then_some(parent)
    })?;
    let typed = |name: &str, of: fn(_, &_) -> Option<(ColumnType, Option<String>)>| {
        let (column_type, sql_type) = of(dialect, parent.column(name)?)?;
        Some((name.to_owned(), column_type, sql_type))
    };
    let typed_key = key_names.iter().map(|name| typed(name, key_type));
    let fields = shards.columns.iter().filter(|column| column.key.is_none());
    let fields: Vec<_> = fields
        .map(|column| typed(&column.name, field_type))
        .collect::<Option<_>>()?;
    if fields.is_empty() {
        return None;
    }
    Some(Sharded::describe(
        &parent.name,
        &shards.name,
        typed_key.collect::<Option<_>>()?,
        fields,
    ))
}
