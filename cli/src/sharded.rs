//! The sharded tables of a database, found by the form of their shards tables.
//!
//! The primary key of a shards table is its parent's key and `shard`. A foreign key refers to the parent's primary key, and the other
//! columns are columns of the parent that can be counted. A shards table without any foreign key belongs to the table with its name
//! without `_shards`.
//!
//! A nullable column of a shards table keeps a greatest or a least value. The tool leaves such a table to the library: a sum would be
//! wrong, and the database does not tell whether the value is the greatest or the least.

use std::sync::Arc;

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::{Integrity, Names, Quoted};
use diesel_sharded::model::{ShardsColumn, TableName};

use crate::connection::{AnyConnection, Backend};
use crate::error::Error;
use crate::live::{Kind, LiveColumn, LiveTable, LiveTables};
use crate::shell;

/// The library's own table of named counters, whose names are UTF-8 in bytes.
pub const COUNTERS: &str = "diesel_sharded_counters";

const COUNTERS_SHARDS: &str = "diesel_sharded_counter_shards";

/// A sharded table, as the derive would know it, and the tables beside it: both of its own are in their schema.
pub struct Sharded {
    parent: String,
    shards_table: String,
    pub key: Vec<ShardsColumn>,
    pub fields: Vec<ShardsColumn>,
    pub integrity: Integrity,
    pub live: Arc<LiveTables>,
    pub dialect: Dialect,
}

impl Sharded {
    /// By the names in its SQL, not quoted and without their schema.
    pub fn new(
        (dialect, live): (Dialect, &Arc<LiveTables>),
        [parent, shards_table]: [&str; 2],
        key: Vec<ShardsColumn>,
        fields: Vec<ShardsColumn>,
    ) -> Self {
        Sharded {
            parent: live.full(parent),
            shards_table: live.full(shards_table),
            key,
            fields,
            integrity: Integrity::ForeignKey,
            live: Arc::clone(live),
            dialect,
        }
    }

    pub fn table(&self) -> TableName<'_> {
        self.named(&self.parent)
    }

    pub fn shards_table(&self) -> TableName<'_> {
        self.named(&self.shards_table)
    }

    /// A name that its schema precedes, if these tables were named with one.
    pub fn named<'n>(&self, name: &'n str) -> TableName<'n> {
        match self.live.schema() {
            Some(schema) => TableName::in_schema(name, schema.len()),
            None => TableName::new(name),
        }
    }

    pub fn has_foreign_key(&self) -> bool {
        self.integrity == Integrity::ForeignKey
    }

    /// The names for the library, which reads keys as texts.
    pub fn names(&self) -> Names<'_, Backend> {
        Names {
            parent: self,
            shards_table: self.shards_table(),
            key: &self.key,
            fields: &self.fields,
            keys_as_texts: true,
        }
    }

    /// The field of this name, or an error for the user who gave it.
    pub fn field(&self, name: &str) -> Result<&ShardsColumn, Error> {
        let field = self.fields.iter().find(|field| field.name() == name);
        field.ok_or_else(|| {
            Error::Refused(format!(
                "`{name}` is no sharded field of `{}`; these are: {}",
                self.table(),
                names(&self.fields).join(", ")
            ))
        })
    }

    /// The SQL that creates and drops the shards table and what belongs to it.
    pub fn quoted(&self, backend: &Backend) -> QueryResult<Quoted<'_>> {
        Quoted::new(self.names(), self.integrity, backend)
    }
}

/// The parent's name.
impl QueryFragment<Backend> for Sharded {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Backend>) -> QueryResult<()> {
        out.push_sql(&self.parent());
        Ok(())
    }
}

/// A sharded table that is left to the library.
struct LeftOut {
    table: String,
    why: Error,
}

/// All sharded tables among these, by the names of their shards tables.
fn found(
    dialect: Dialect,
    live: &Arc<LiveTables>,
) -> impl Iterator<Item = Result<Sharded, LeftOut>> {
    let tables = live.tables.values();
    tables.filter_map(move |shards| of(dialect, live, shards))
}

/// All sharded tables that are not left to the library.
pub fn all(dialect: Dialect, live: &Arc<LiveTables>) -> Vec<Sharded> {
    found(dialect, live).filter_map(Result::ok).collect()
}

/// The sharded tables of these names, or all of them with the named counters last; and a note for each that is left to the library.
pub fn named(
    names: &[String],
    note: impl Fn(&str),
    conn: &mut AnyConnection,
) -> Result<Vec<Sharded>, Error> {
    let plain = Arc::new(LiveTables::read(conn)?);
    let mut tables: Vec<Sharded> = vec![];
    if names.is_empty() {
        for found in found(conn.dialect(), &plain) {
            match found {
                Ok(sharded) => tables.push(sharded),
                Err(other) => note(&other.why.to_string()),
            }
        }
        tables.sort_by_cached_key(|sharded| {
            let name = sharded.table().to_string();
            (name == COUNTERS, name)
        });
    }
    for name in names {
        let (live, name) = plain.leading_to(name, conn)?;
        let sharded = one(&live, &name, conn.dialect())?;
        // A table that was named twice is processed once.
        if !tables.iter().any(|other| other.table() == sharded.table()) {
            tables.push(sharded);
        }
    }
    Ok(tables)
}

/// The sharded table of this name.
pub fn find(name: &str, conn: &mut AnyConnection) -> Result<Sharded, Error> {
    let (live, name) = LiveTables::of(name, conn)?;
    one(&live, &name, conn.dialect())
}

pub fn names(columns: &[ShardsColumn]) -> Vec<&str> {
    columns.iter().map(ShardsColumn::name).collect()
}

fn one(live: &Arc<LiveTables>, name: &str, dialect: Dialect) -> Result<Sharded, Error> {
    let (mut is_shards, mut left_out) = (false, None);
    for found in found(dialect, live) {
        match found {
            Ok(sharded) if sharded.table().name() == name => return Ok(sharded),
            Ok(sharded) => is_shards |= sharded.shards_table().name() == name,
            Err(LeftOut { table, why }) if table == name => left_out = Some(why),
            Err(_) => {}
        }
    }
    if let Some(why) = left_out {
        return Err(why);
    }
    live.table(name)?;
    let table = live.full(name);
    Err(match is_shards {
        true => is_shards_table(&table),
        false => Error::Refused(format!(
            "`{table}` is not sharded, or this role may not see its shards table: `{}` begins that",
            shell::command(["generate", &table, "COLUMN"])
        )),
    })
}

pub fn is_shards_table(name: &str) -> Error {
    Error::Refused(format!(
        "`{name}` is itself a shards table: its rows are parts of counters"
    ))
}

/// The table whose shards are in `shards`, if `shards` has the form of a shards table.
fn of(
    dialect: Dialect,
    live: &Arc<LiveTables>,
    shards: &LiveTable,
) -> Option<Result<Sharded, LeftOut>> {
    let (parent, key_names) = parent(live, shards)?;
    let table = &parent.name;
    let fields = shards.columns.iter().filter(|column| column.key.is_none());
    let left_out = |why: String| {
        let instead = format!(
            "use the library for this table, as in `diesel_sharded::fold({table}).run(conn)`"
        );
        Some(Err(LeftOut {
            table: table.clone(),
            why: Error::Refused(format!("{why}: {instead}")),
        }))
    };
    if let Some(LiveColumn { name, .. }) = fields.clone().find(|field| field.nullable) {
        parent.column(name)?;
        return left_out(format!(
            "`{}` keeps the greatest or the least value of `{table}.{name}` (`#[sharded(max)]` or `#[sharded(min)]`), and the database does \
             not say which",
            shards.name
        ));
    }
    let key = key_names.iter();
    let key = key.map(|name| parent.column(name)?.as_key(dialect));
    let fields = fields.map(|field| parent.column(&field.name)?.as_field(dialect));
    let fields: Vec<_> = fields.collect::<Option<_>>()?;
    if fields.is_empty() {
        return None;
    }
    let Some(key) = key.collect::<Option<_>>() else {
        let why = format!("`{table}` has a key of a type that this tool does not compare");
        return left_out(why);
    };
    let names = [&**table, &shards.name];
    let mut sharded = Sharded::new((dialect, live), names, key, fields);
    if shards.foreign_keys.is_empty() {
        sharded.integrity = Integrity::Triggers;
    }
    Some(Ok(sharded))
}

/// The parent, whose key is the primary key of `shards` without `shard`, and the names of that key's columns.
fn parent<'t>(
    live: &'t LiveTables,
    shards: &'t LiveTable,
) -> Option<(&'t LiveTable, Vec<&'t str>)> {
    if shards.kind != Kind::Table {
        return None;
    }
    let key = shards.key();
    let (shard, key) = key.split_last()?;
    if shard.name != "shard" || key.is_empty() {
        return None;
    }
    let key_names: Vec<_> = key.iter().map(|column| column.name.as_str()).collect();
    let has_key = |parent: &LiveTable| {
        let key = parent.key().into_iter();
        key.map(|c| c.name.as_str()).eq(key_names.iter().copied())
    };
    let by_foreign_key = || {
        shards.foreign_keys.iter().find_map(|foreign_key| {
            let columns = foreign_key.columns.iter();
            let same = columns.clone().all(|(own, theirs)| own == theirs);
            let mut own: Vec<_> = columns.map(|(own, _)| own.as_str()).collect();
            own.sort_by_key(|name| key_names.iter().position(|k| k == name));
            let parent = live.tables.get(&foreign_key.parent)?;
            (same && own == key_names && has_key(parent)).then_some(parent)
        })
    };
    let by_name = || {
        let name = match shards.name.as_str() {
            COUNTERS_SHARDS => COUNTERS,
            name => name.strip_suffix("_shards")?,
        };
        live.tables.get(name).filter(|parent| has_key(parent))
    };
    let parent = match shards.foreign_keys.is_empty() {
        true => by_name(),
        false => by_foreign_key(),
    }?;
    Some((parent, key_names))
}
