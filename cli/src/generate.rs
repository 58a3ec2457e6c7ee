//! `diesel-sharded generate` writes a migration: for a shards table, from the live table; for triggers that keep the number of another
//! table's rows; or for a function that adds to a shard.

use std::sync::Arc;

use diesel_sharded::backend::Dialect;
use diesel_sharded::described::{DescribedCache, create_view_sql, drop_view_sql};
use diesel_sharded::model::{ColumnType, ShardsColumn};

use crate::args::GenerateArgs;
use crate::condition::{Beside, Cache};
use crate::connection::AnyConnection;
use crate::error::{Ended, Error};
use crate::live::{LiveColumn, LiveTable, LiveTables, is_integer};
use crate::migration_files::{Files, deliver, file_name};
use crate::output::{self, joined};
use crate::sharded::{self, Sharded};
use crate::shell;
use crate::statement::{quoted, tokens};

pub fn run(args: &GenerateArgs, conn: &mut AnyConnection) -> Result<Ended, Error> {
    match (args.function, args.counts.is_empty()) {
        (true, _) => function(args, conn),
        (false, false) => counts(args, conn),
        (false, true) => shards(args, conn),
    }
}

fn shards(args: &GenerateArgs, conn: &mut AnyConnection) -> Result<Ended, Error> {
    let (live, name) = LiveTables::of(&args.table, conn)?;
    let table = live.table(&name)?;
    let backend = conn.backend();
    let sharded = describe(args, conn.dialect(), &live, table)?;
    let quoted = sharded.quoted(&backend)?;
    let mut files = Files::of(quoted.create_sql(), quoted.drop_sql());
    if let Some(view) = &args.view {
        let default = format!("{name}_totals");
        let view = new_name(view.as_ref(), "--view", default, conn.dialect())?;
        // `--locked` checks a migration even after it has run.
        if live.has_name(&view, conn.dialect()) && !args.locked {
            return Err(exists(&view));
        }
        let columns: Vec<_> = table.columns.iter().map(|c| c.name.as_str()).collect();
        let create = create_view_sql(sharded.names(), (&view, false), &columns, &backend)?;
        files.up += &format!("{create};\n");
        let drop = drop_view_sql(sharded.shards_table(), &view, conn.dialect());
        files.down = format!("{drop};\n{}", files.down);
    }
    if !args.locked {
        for finding in Beside::of(&sharded, conn)?.1 {
            output::note(&finding.note());
        }
        output::note(&other_names(&sharded));
    }
    let name = format!("shard_{}", file_name(&args.table));
    deliver(&files, &name, args)
}

/// A note that tells how to find every place in Rust that names a column.
fn other_names(sharded: &Sharded) -> String {
    let columns = sharded.fields.iter().map(|field| {
        let (name, column_type) = (field.name(), field.column_type());
        format!("    #[sql_name = {name:?}]\n    {name}_base -> {column_type:?},")
    });
    let columns = joined("\n", columns);
    format!(
        "In Rust, a tuple with a plain column still compiles. Under another name in `table!` each place that names it is found:\n{columns}"
    )
}

/// The shards table, if the table may have one.
fn describe(
    args: &GenerateArgs,
    dialect: Dialect,
    live: &Arc<LiveTables>,
    table: &LiveTable,
) -> Result<Sharded, Error> {
    let (default, given) = (format!("{}_shards", table.name), &args.shards_table);
    let shards_table = new_name(given.as_ref(), "--shards-table", default, dialect)?;
    let sharded = sharded::all(dialect, live);
    let is_shards = |other: &Sharded| other.shards_table().name() == table.name;
    if sharded.iter().any(is_shards) {
        return Err(sharded::is_shards_table(&table.name));
    }
    let mut sharded = sharded.iter();
    let there = sharded.find(|other| other.table().name() == table.name);
    // `--locked` compares a migration with the one that would be written now, even after it has run.
    let is_same = |there: &Sharded| {
        let fields = sharded::names(&there.fields);
        args.locked && there.shards_table().name() == shards_table && fields == args.columns
    };
    match there {
        Some(there) if !is_same(there) => {
            return Err(Error::Refused(format!(
                "`{}` is sharded already: its shards are in `{}` (fields {}). To count another column too, add it to both tables by hand, as \
                 the guide's chapter on counting says",
                table.name,
                there.shards_table(),
                sharded::names(&there.fields).join(", ")
            )));
        }
        None if live.has_name(&shards_table, dialect) => {
            return Err(exists(&shards_table));
        }
        _ => {}
    }
    let key = key(dialect, table)?;
    let fields = fields(dialect, table, &args.columns)?;
    let names = [&*table.name, &shards_table];
    let mut sharded = Sharded::new((dialect, live), names, key, fields);
    sharded.integrity = args.migration.integrity();
    Ok(sharded)
}

fn key(dialect: Dialect, table: &LiveTable) -> Result<Vec<ShardsColumn>, Error> {
    let key = table.key();
    if key.is_empty() {
        return Err(Error::Refused(format!(
            "`{}` has no primary key, by which shards find their row: add one",
            table.name
        )));
    }
    let columns = key.into_iter().map(|column| {
        check_name(table, column)?;
        column.as_key(dialect).ok_or_else(|| {
            let why = format!(
                "has the type `{}`, which cannot be the key of a shards table: keys are 16, 32 or 64 bit integers, varying text or \
                 bytes of a length that can be indexed, dates, and UUIDs on PostgreSQL",
                column.sql_type
            );
            of_column(table, column, &why)
        })
    });
    columns.collect()
}

fn fields(
    dialect: Dialect,
    table: &LiveTable,
    names: &[String],
) -> Result<Vec<ShardsColumn>, Error> {
    let fields = names.iter().enumerate().map(|(i, name)| {
        let column = table.named(name)?;
        match names[..i].contains(name) {
            true => Err(Error::Refused(format!("`{name}` was named twice"))),
            false => field(dialect, table, column),
        }
    });
    fields.collect()
}

fn field(dialect: Dialect, table: &LiveTable, column: &LiveColumn) -> Result<ShardsColumn, Error> {
    check_name(table, column)?;
    let refused = |why: &str| Err(of_column(table, column, why));
    match column.as_field(dialect) {
        _ if column.key.is_some() => refused("is part of the primary key: a counter cannot be"),
        _ if column.generated => {
            refused("is a generated column: what is computed cannot be counted")
        }
        Some(_) if column.nullable => refused(
            "may be NULL, and NULL + 1 is NULL: fill it and make it NOT NULL DEFAULT 0 first",
        ),
        Some(field) => Ok(field),
        None => refused(&format!(
            "has the type `{}`, which cannot be counted on shards: a sharded field is a 16, 32 or 64 bit integer, a double or a decimal",
            column.sql_type
        )),
    }
}

/// The error that a column is unfit, for this reason.
fn of_column(table: &LiveTable, column: &LiveColumn, why: &str) -> Error {
    Error::Refused(format!("`{}.{}` {why}", table.name, column.name))
}

fn exists(name: &str) -> Error {
    Error::Refused(format!(
        "there is a table `{name}` already: choose another name by --shards-table or --view=NAME"
    ))
}

/// Refuses a column named `shard` in any case: some databases do not distinguish `Shard` from `shard`.
fn check_name(table: &LiveTable, column: &LiveColumn) -> Result<(), Error> {
    match column.name.eq_ignore_ascii_case("shard") {
        true => Err(Error::Refused(format!(
            "`{}` has a column `{}`, and a shards table has its own column `shard`: rename this one",
            table.name, column.name
        ))),
        false => Ok(()),
    }
}

/// The name of a table or a view to be created: the given one, or the default. Only the default may contain a dot, from the parent's name.
fn new_name(
    given: Option<&String>,
    option: &str,
    default: String,
    dialect: Dialect,
) -> Result<String, Error> {
    if let Some(name) = given.filter(|name| name.contains('.')) {
        return Err(Error::Refused(format!(
            "`{name}` has a dot, which would stand for a schema: a shards table and a view are in the schema of their parent, so give the \
             name alone and without a dot: {option}={}",
            shell::quoted(&name.replace('.', "_"))
        )));
    }
    let name = given.cloned().unwrap_or(default);
    match dialect.fitting_name(name.clone()) == name {
        true => Ok(name),
        false => Err(Error::Refused(format!(
            "the name `{name}` is longer than the database takes (63 bytes on PostgreSQL, 64 characters on MySQL and MariaDB): choose \
             another by --shards-table or --view=NAME"
        ))),
    }
}

fn counts(args: &GenerateArgs, conn: &mut AnyConnection) -> Result<Ended, Error> {
    let sharded = sharded::find(&args.table, conn)?;
    let live = &*sharded.live;
    let [field] = args.columns.as_slice() else {
        let text = "with --counts the command takes one column, the one that holds the number";
        return Err(Error::refused(text));
    };
    let field_type = sharded.field(field)?.column_type();
    let there = Cache::read(&sharded, Some(field), conn)?.pop();
    // `--locked` checks a migration even after it has run.
    if let (Some(cache), false) = (there, args.locked) {
        return Err(Error::Refused(format!(
            "{}.{field} has a counter cache already, `{}`, and each field has one: drop it by its migration's down.sql, or count into \
             another field",
            sharded.table(),
            cache.name
        )));
    }
    let (child, by) = counted(args, conn, &sharded)?;
    // A single word is a column's name; several words are an expression.
    let is_name = |sql: &&str| child.column(sql).is_some() || tokens(sql).len() == 1;
    let sums = args.sums.as_deref().filter(is_name);
    let sums = sums.map(|name| child.named(name)).transpose()?;
    let quoted = |name: &String| quoted(conn.dialect(), name);
    let amount = sums.map(|column| [&child.name, &column.name].map(quoted).join("."));
    let by: Vec<_> = by.into_iter().map(|column| column.name.clone()).collect();
    let cache = DescribedCache {
        field: field.clone(),
        schema: live.schema().map(str::to_owned),
        child: child.name.clone(),
        by,
        amount: amount.or_else(|| args.sums.clone()),
        condition: args.condition.clone(),
        shards: args.shards,
    };
    if let Some(sums) = sums.filter(|sums| !holds_sums_of(conn.dialect(), sums, field_type)) {
        let why = format!(
            "has the type `{}`, whose sums `{}.{field}` cannot hold: sum a column of the field's type",
            sums.sql_type,
            sharded.table()
        );
        return Err(of_column(child, sums, &why));
    }
    let declared = cache.declaration(sharded.names(), &conn.backend())?;
    let files = Files::of(declared.create_sql()?, declared.drop_sql());
    let parent = sharded.table();
    let recount = declared.recount_sql();
    let backfill = shell::command(["backfill", parent.as_str(), field, "--recount", &recount]);
    output::note(&format!(
        "Rows that are there already are not counted. After the migration: {backfill}"
    ));
    let mut others = child.foreign_keys.iter().map(|key| &*key.parent);
    let other = others.find(|other| *other != parent.name());
    if let (Dialect::Mysql, Some(other)) = (conn.dialect(), other) {
        output::note(&format!(
            "{} refers to {other} too. If that foreign key has ON DELETE CASCADE or SET NULL, what it does to rows is not counted: MySQL \
             fires no triggers for it. Let a trigger BEFORE DELETE ON {other} do it instead.",
            child.name
        ));
    }
    let name = format!("count_{}_{}", file_name(&args.table), file_name(field));
    deliver(&files, &name, args)
}

/// The table whose rows are counted, and its columns that refer to a row of the parent.
fn counted<'l>(
    args: &GenerateArgs,
    conn: &AnyConnection,
    parent: &'l Sharded,
) -> Result<(&'l LiveTable, Vec<&'l LiveColumn>), Error> {
    let live = &*parent.live;
    let key = live.table(parent.table().name())?.key();
    let wrong = || {
        let key: Vec<_> = key.iter().map(|column| &*column.name).collect();
        Error::Refused(format!(
            "the columns that name a row of `{}` are those of its key, in this order: {}; give --counts once for each, all of one table",
            parent.table(),
            key.join(", ")
        ))
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
            return Err(Error::Refused(format!(
                "`{}.{}` has the type `{}`, and `{}.{}` has `{}`: a row names its parent by a value of the same kind",
                child.name,
                column.name,
                column.sql_type,
                parent.table(),
                key.name,
                key.sql_type
            )));
        }
    }
    Ok((child, by))
}

/// Whether a field holds the sums of a column exactly, or rounds them as it would round its own sums.
fn holds_sums_of(dialect: Dialect, column: &LiveColumn, field: ColumnType) -> bool {
    let sql_type = column.sql_type.to_lowercase();
    let name = sql_type.split(['(', ' ']).next().unwrap_or_default();
    let is_one_of = |names: &str| names.split(' ').any(|other| other == name);
    let is_sqlites = dialect == Dialect::Sqlite && sql_type.contains("int"); // SQLite's rule for integers
    let is_whole = is_sqlites || is_one_of("tinyint smallint mediumint int integer bigint");
    match field {
        ColumnType::Double if dialect != Dialect::Sqlite => name == "double",
        ColumnType::Numeric if dialect != Dialect::Sqlite => {
            is_whole || is_one_of("numeric decimal")
        }
        ColumnType::Double | ColumnType::Numeric => {
            is_whole || is_one_of("double numeric decimal real float")
        }
        _ => is_whole,
    }
}

/// The kind of a column's values. Values of one kind can be compared, even if lengths or the widths of integers differ.
fn kind(dialect: Dialect, column: &LiveColumn) -> Option<ColumnType> {
    match column.as_key(dialect)?.column_type() {
        integer if is_integer(integer) => Some(ColumnType::BigInt),
        other => Some(other),
    }
}

/// Finds the column that `TABLE.COLUMN` names.
fn find<'l>(live: &'l LiveTables, name: &str) -> Result<(&'l LiveTable, &'l LiveColumn), Error> {
    // The rows are in the schema of their parents. The name may include that schema.
    let schema = live.schema().map(|schema| format!("{schema}."));
    let inside = schema.and_then(|schema| name.strip_prefix(&schema));
    let name = inside.unwrap_or(name);
    match name.rsplit_once('.') {
        Some((table, name)) => {
            let table = live.table(table)?;
            Ok((table, table.named(name)?))
        }
        None => Err(Error::Refused(format!(
            "`{name}` is no column of a table in this database: write TABLE.COLUMN"
        ))),
    }
}

fn function(args: &GenerateArgs, conn: &mut AnyConnection) -> Result<Ended, Error> {
    let sharded = sharded::find(&args.table, conn)?;
    let quoted = sharded.quoted(&conn.backend())?;
    let files = Files::of(quoted.add_function_sql()?, quoted.drop_function_sql()?);
    let name = format!("function_{}", file_name(sharded.shards_table().as_str()));
    deliver(&files, &name, args)
}
