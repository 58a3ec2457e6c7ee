//! `diesel-sharded generate --counts`: the migration of triggers that keep the number of another table's rows.

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::counter_cache::described::DescribedCache;
use diesel_sharded::described::DescribedTable;
use diesel_sharded::model::ColumnType;

use crate::args::GenerateArgs;
use crate::caches::Cache;
use crate::column_type::key_type;
use crate::connection::AnyConnection;
use crate::error::Error;
use crate::exit::Ended;
use crate::live::{LiveColumn, LiveTable, LiveTables};
use crate::migration_files::{Files, deliver, file_name};
use crate::output::Output;
use crate::sharded::{self, is_integer};
use crate::shell;

pub fn run(
    args: &GenerateArgs,
    conn: &mut AnyConnection,
    out: &mut Output,
) -> Result<Ended, Error> {
    let (live, parent) = LiveTables::of(&args.table, conn)?;
    let [field] = args.columns.as_slice() else {
        return Err(Error::OneCountedColumn);
    };
    let parent = sharded::find(conn.dialect(), &live, &parent)?;
    sharded::field(&parent, field)?;
    // `--locked` looks at the migration also after it has run.
    if let (Some(cache), false) = (
        Cache::read(&parent, Some(field), live.schema(), conn)?.pop(),
        args.locked,
    ) {
        return Err(Error::CountedAlready {
            table: parent.table().to_string(),
            field: field.clone(),
            cache: cache.name,
        });
    }
    let (child, by) = counted(args, conn, &live, &parent)?;
    let sums = args.sums.as_ref().map(|amount| column(child, amount));
    let sums = sums.transpose()?;
    let by: Vec<_> = by.into_iter().map(|column| column.name.clone()).collect();
    let cache = DescribedCache {
        field: field.clone(),
        schema: live.schema().map(str::to_owned),
        child: child.name.clone(),
        columns: child.columns.iter().map(|c| c.name.clone()).collect(),
        by,
        amount: args.sums.clone(),
        condition: args.condition.clone(),
        shards: args.shards,
    };
    let backend = conn.backend();
    if let Some(sums) = sums {
        cache.check_sum(&parent, &sums.sql_type, &backend)?;
    }
    let files = Files {
        up: cache.create_sql(&parent, &backend)? + ";\n",
        down: cache.drop_sql(&parent, &backend)? + ";\n",
    };
    for note in notes(&cache, &parent, child, conn)? {
        out.note(&note);
    }
    let name = format!("count_{}_{}", file_name(&args.table), file_name(field));
    deliver(&files, &name, args, out)
}

/// The table whose rows are counted, and its columns that name a row of the parent.
fn counted<'l>(
    args: &GenerateArgs,
    conn: &AnyConnection,
    live: &'l LiveTables,
    parent: &DescribedTable,
) -> Result<(&'l LiveTable, Vec<&'l LiveColumn>), Error> {
    let key = live.table(parent.table().name())?.key();
    let wrong = || Error::CountedColumns {
        table: parent.table().to_string(),
        key: key.iter().map(|column| column.name.clone()).collect(),
    };
    let mut child: Option<&LiveTable> = None;
    let mut by = vec![];
    for name in &args.counts {
        let (table, column) = find(live, name)?;
        if child.is_some_and(|child| child.name != table.name) {
            return Err(wrong());
        }
        child = Some(table);
        by.push(column);
    }
    let Some(child) = child.filter(|_| by.len() == key.len()) else {
        return Err(wrong());
    };
    for (column, key) in by.iter().zip(&key) {
        let kind = |column: &LiveColumn| kind(conn.dialect(), column);
        if kind(column).is_none() || kind(column) != kind(key) {
            return Err(Error::CountedType {
                column: format!("{}.{}", child.name, column.name),
                sql_type: column.sql_type.clone(),
                key: format!("{}.{}", parent.table(), key.name),
                key_type: key.sql_type.clone(),
            });
        }
    }
    Ok((child, by))
}

/// The kind of a column's values: those of one kind compare. Lengths may differ, and the widths of integers.
fn kind(dialect: Dialect, column: &LiveColumn) -> Option<ColumnType> {
    match key_type(dialect, column)?.0 {
        integer if is_integer(integer) => Some(ColumnType::BigInt),
        other => Some(other),
    }
}

/// The column that `TABLE.COLUMN` names; both may have dots in their names.
fn find<'l>(live: &'l LiveTables, name: &str) -> Result<(&'l LiveTable, &'l LiveColumn), Error> {
    // The rows are in the schema of their parents, which may be named too.
    let schema = live.schema().map(|schema| format!("{schema}."));
    let name = schema
        .and_then(|schema| name.strip_prefix(&schema))
        .unwrap_or(name);
    let found = name.match_indices('.').find_map(|(dot, _)| {
        let table = live.table(&name[..dot]).ok()?;
        Some((table, table.column(&name[dot + 1..])?))
    });
    if let Some(found) = found {
        return Ok(found);
    }
    match name.rsplit_once('.') {
        // The table's own error, or the column's.
        Some((table, name)) => Ok((live.table(table)?, column(live.table(table)?, name)?)),
        None => Err(Error::NoSuchCounted(name.to_owned())),
    }
}

fn column<'l>(table: &'l LiveTable, name: &str) -> Result<&'l LiveColumn, Error> {
    table.column(name).ok_or_else(|| Error::NoSuchColumn {
        table: table.name.clone(),
        column: name.to_owned(),
        columns: table.columns.iter().map(|c| c.name.clone()).collect(),
    })
}

/// The work that is left to do, and the writes that do not count.
fn notes(
    cache: &DescribedCache,
    parent: &DescribedTable,
    child: &LiveTable,
    conn: &AnyConnection,
) -> QueryResult<Vec<String>> {
    let mut notes = vec![format!(
        "Rows that are there already are not counted. After the migration: {}",
        shell::command([
            "backfill",
            parent.table().as_str(),
            &cache.field,
            "--recount",
            &cache.recount_sql(parent, &conn.backend())?,
        ])
    )];
    let mut others = child.foreign_keys.iter().map(|key| key.parent.as_str());
    let other = others.find(|other| *other != parent.table().name());
    if let (Dialect::Mysql, Some(other)) = (conn.dialect(), other) {
        notes.push(format!(
            "{} refers to {other} too. If that foreign key has ON DELETE CASCADE or SET NULL, what it does to rows is not counted: MySQL \
             fires no triggers for it. Let a trigger BEFORE DELETE ON {other} do it instead.",
            child.name
        ));
    }
    Ok(notes)
}
