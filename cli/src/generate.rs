//! `diesel-sharded generate`: the migration of a shards table, from the live table.

use diesel_sharded::backend::Dialect;
use diesel_sharded::described::{self, DescribedTable};
use diesel_sharded::model::ShardsColumn;

use crate::args::GenerateArgs;
use crate::beside::Beside;
use crate::column_type::{field_type, key_type};
use crate::connection::AnyConnection;
use crate::error::Error;
use crate::exit::Ended;
use crate::live::{LiveColumn, LiveTable, LiveTables};
use crate::migration_files::{Files, deliver, file_name};
use crate::output::Output;
use crate::sharded;
use crate::within::within;

pub fn run(
    args: &GenerateArgs,
    conn: &mut AnyConnection,
    out: &mut Output,
) -> Result<Ended, Error> {
    let (live, name) = LiveTables::of(&args.table, conn)?;
    let table = live.table(&name)?;
    let described = describe(args, conn.dialect(), &live, table)?;
    let backend = conn.backend();
    let mut files = Files {
        up: described.create_sql(&backend)? + ";\n",
        down: described.drop_sql(&backend)? + ";\n",
    };
    let fields = sharded::names(described.fields());
    if let Some(view) = view_name(args, conn.dialect(), &live, table)? {
        let columns: Vec<_> = table.columns.iter().map(|c| c.name.as_str()).collect();
        let create = described.create_view_sql(&view, &columns, &backend)?;
        files.up += &format!("{create};\n");
        files.down = described.drop_view_sql(&view, &backend)? + ";\n" + &files.down;
    }
    let beside = within(live.schema(), conn, |conn| {
        Beside::read(conn, table, &fields, described.shards_table().name())
    })?;
    for note in beside.notes(conn.dialect(), table, &fields) {
        out.note(&note);
    }
    let name = format!("shard_{}", file_name(&args.table));
    deliver(&files, &name, args, out)
}

/// The name of the view with totals, if there is to be one.
fn view_name(
    args: &GenerateArgs,
    dialect: Dialect,
    live: &LiveTables,
    table: &LiveTable,
) -> Result<Option<String>, Error> {
    let Some(name) = &args.view else {
        return Ok(None);
    };
    let name = match name {
        Some(name) => unqualified(name, "--view")?,
        None => format!("{}_totals", table.name),
    };
    check_length(&name, dialect)?;
    // `--locked` looks at the migration also after it has run.
    match live.has_name(&name, dialect) && !args.locked {
        true => Err(Error::TableExists(name)),
        false => Ok(Some(name)),
    }
}

/// The shards table, if the table may have one.
fn describe(
    args: &GenerateArgs,
    dialect: Dialect,
    live: &LiveTables,
    table: &LiveTable,
) -> Result<DescribedTable, Error> {
    let shards_table = match &args.shards_table {
        Some(name) => unqualified(name, "--shards-table")?,
        None => format!("{}_shards", table.name),
    };
    check_length(&shards_table, dialect)?;
    let sharded = sharded::all(dialect, live);
    if sharded
        .iter()
        .any(|other| other.shards_table().name() == table.name)
    {
        return Err(Error::IsShardsTable(table.name.clone()));
    }
    let there = sharded
        .iter()
        .find(|other| other.table().name() == table.name);
    // `--locked` looks at the migration also after it has run, as it would be written now.
    let is_same = |there: &DescribedTable| {
        let fields = sharded::names(there.fields());
        args.locked && there.shards_table().name() == shards_table && fields == args.columns
    };
    match there {
        Some(there) if !is_same(there) => {
            return Err(Error::AlreadySharded {
                table: table.name.clone(),
                shards_table: there.shards_table().to_string(),
                fields: there.fields().iter().map(|f| f.name().to_owned()).collect(),
            });
        }
        None if live.has_name(&shards_table, dialect) => {
            return Err(Error::TableExists(shards_table));
        }
        _ => {}
    }
    let key = key(dialect, table)?;
    let fields = fields(dialect, table, &args.columns)?;
    let described = DescribedTable::new(live.schema(), &table.name, &shards_table, key, fields);
    Ok(match (args.no_triggers, args.no_foreign_key) {
        (true, _) => described.without_triggers(),
        (false, true) => described.without_foreign_key(),
        (false, false) => described,
    })
}

fn key(dialect: Dialect, table: &LiveTable) -> Result<Vec<ShardsColumn>, Error> {
    let key = table.key();
    if key.is_empty() {
        return Err(Error::NoPrimaryKey(table.name.clone()));
    }
    key.into_iter()
        .map(|column| {
            check_name(table, column)?;
            let (column_type, sql_type) =
                key_type(dialect, column).ok_or_else(|| Error::KeyType {
                    table: table.name.clone(),
                    column: column.name.clone(),
                    sql_type: column.sql_type.clone(),
                })?;
            let name = column.name.clone();
            Ok(described::column(name, column_type, sql_type))
        })
        .collect()
}

fn fields(
    dialect: Dialect,
    table: &LiveTable,
    names: &[String],
) -> Result<Vec<ShardsColumn>, Error> {
    let mut fields: Vec<ShardsColumn> = vec![];
    for name in names {
        let column = table.column(name).ok_or_else(|| Error::NoSuchColumn {
            table: table.name.clone(),
            column: name.clone(),
            columns: table.columns.iter().map(|c| c.name.clone()).collect(),
        })?;
        if fields.iter().any(|other| other.name() == name) {
            return Err(Error::NamedTwice(name.clone()));
        }
        fields.push(field(dialect, table, column)?);
    }
    Ok(fields)
}

fn field(dialect: Dialect, table: &LiveTable, column: &LiveColumn) -> Result<ShardsColumn, Error> {
    check_name(table, column)?;
    let (table, name) = (table.name.clone(), column.name.clone());
    if column.key.is_some() {
        return Err(Error::InKey {
            table,
            column: name,
        });
    }
    if column.generated {
        return Err(Error::Generated {
            table,
            column: name,
        });
    }
    match field_type(dialect, column) {
        Some(_) if column.nullable => Err(Error::Nullable {
            table,
            column: name,
        }),
        Some((column_type, sql_type)) => Ok(described::column(name, column_type, sql_type)),
        None => Err(Error::FieldType {
            table,
            column: name,
            sql_type: column.sql_type.clone(),
        }),
    }
}

/// Databases do not tell `Shard` from `shard` alike.
fn check_name(table: &LiveTable, column: &LiveColumn) -> Result<(), Error> {
    match column.name.eq_ignore_ascii_case("shard") {
        true => Err(Error::NamedShard {
            table: table.name.clone(),
            column: column.name.clone(),
        }),
        false => Ok(()),
    }
}

/// A name that was given for a table or a view. The parent's own may have a dot.
fn unqualified(name: &str, option: &'static str) -> Result<String, Error> {
    let name = name.to_owned();
    match name.contains('.') {
        true => Err(Error::QualifiedName { name, option }),
        false => Ok(name),
    }
}

fn check_length(name: &str, dialect: Dialect) -> Result<(), Error> {
    match described::takes_name(dialect, name) {
        true => Ok(()),
        false => Err(Error::NameTooLong(name.to_owned())),
    }
}
