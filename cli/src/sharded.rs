//! The sharded tables of a database, found by the form of their shards tables.
//!
//! A shards table is a table whose primary key is its parent's and `shard`, with a foreign key from the former to the parent's
//! primary key, and whose other columns are columns of the parent that can be counted.

use diesel_sharded::backend::Dialect;
use diesel_sharded::described::{DescribedTable, column};
use diesel_sharded::model::{ColumnType, ShardsColumn};

use crate::column_type::{field_type, key_type};
use crate::error::Error;
use crate::live::{Kind, LiveTable, LiveTables};

/// The library's own table of named counters, whose names are UTF-8 in bytes.
pub const COUNTERS: &str = "diesel_sharded_counters";

pub fn is_integer(column: ColumnType) -> bool {
    use ColumnType::{
        BigInt, Integer, SmallInt, UnsignedBigInt, UnsignedInteger, UnsignedSmallInt,
    };
    matches!(
        column,
        SmallInt | Integer | BigInt | UnsignedSmallInt | UnsignedInteger | UnsignedBigInt
    )
}

/// All of the database, by their names.
pub fn all(dialect: Dialect, live: &LiveTables) -> Vec<DescribedTable> {
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
) -> Result<Vec<DescribedTable>, Error> {
    let mut all = all(dialect, live);
    all.sort_by_cached_key(|sharded| (sharded.table() == COUNTERS, sharded.table().to_owned()));
    match names {
        [] => Ok(all),
        names => names.iter().map(|name| one(live, &all, name)).collect(),
    }
}

/// The one of this name.
pub fn find(dialect: Dialect, live: &LiveTables, name: &str) -> Result<DescribedTable, Error> {
    one(live, &all(dialect, live), name)
}

pub fn field<'t>(sharded: &'t DescribedTable, name: &str) -> Result<&'t ShardsColumn, Error> {
    let field = sharded.fields().iter().find(|field| field.name() == name);
    field.ok_or_else(|| Error::NoSuchField {
        table: sharded.table().to_owned(),
        column: name.to_owned(),
        fields: sharded
            .fields()
            .iter()
            .map(|f| f.name().to_owned())
            .collect(),
    })
}

pub fn names(columns: &[ShardsColumn]) -> Vec<&str> {
    columns.iter().map(ShardsColumn::name).collect()
}

fn one(live: &LiveTables, all: &[DescribedTable], name: &str) -> Result<DescribedTable, Error> {
    if let Some(sharded) = all.iter().find(|sharded| sharded.table() == name) {
        return Ok(sharded.clone());
    }
    live.table(name)?;
    match all.iter().any(|sharded| sharded.shards_table() == name) {
        true => Err(Error::IsShardsTable(name.to_owned())),
        false => Err(Error::NotSharded {
            table: name.to_owned(),
        }),
    }
}

/// The table whose shards are in `shards`, if that has the form of a shards table.
fn of(dialect: Dialect, live: &LiveTables, shards: &LiveTable) -> Option<DescribedTable> {
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
        Some(column(name.to_owned(), column_type, sql_type))
    };
    let typed_key = key_names.iter().map(|name| typed(name, key_type));
    let fields = shards.columns.iter().filter(|field| field.key.is_none());
    let fields: Vec<_> = fields
        .map(|field| typed(&field.name, field_type))
        .collect::<Option<_>>()?;
    if fields.is_empty() {
        return None;
    }
    Some(DescribedTable::new(
        parent.name.clone(),
        shards.name.clone(),
        typed_key.collect::<Option<_>>()?,
        fields,
    ))
}
