//! `diesel-sharded resize`: how many shards writers choose from.

use std::collections::HashMap;

use diesel::prelude::*;
use diesel_sharded::described::{ROWS_AT_ONCE, SHARD_NUMBERS};
use diesel_sharded::model::TableName;
use diesel_sharded::{Counter, Error as ShardedError};

use crate::args::{Form, ResizeArgs};
use crate::connection::AnyConnection;
use crate::error::{Error, like};
use crate::exit::Ended;
use crate::fold::{FoldReports, Folding, Pauses};
use crate::interrupt::Interrupt;
use crate::key::Keyed;
use crate::nearest::nearest;
use crate::output::{Output, plural};
use crate::privilege::{Need, explained};
use crate::sharded;

pub fn run(
    args: &ResizeArgs,
    options: &str,
    conn: &mut AnyConnection,
    interrupt: &Interrupt,
    out: &mut Output,
) -> Result<Ended, Error> {
    match (&args.counter, &args.table, &args.field) {
        (Some(name), ..) => counter(name, args, conn, out),
        (None, Some(table), Some(field)) => {
            field_of(table, field, args, options, conn, interrupt, out)
        }
        _ => Ok(Ended::Done), // clap asks for one of them
    }
}

/// So many counters are looked at for a name like one that is not there.
const SIMILAR_AMONG: u32 = 1000;

fn counter(
    name: &str,
    args: &ResizeArgs,
    conn: &mut AnyConnection,
    out: &mut Output,
) -> Result<Ended, Error> {
    let listed = |prefix: &str, limit, conn: &mut AnyConnection| {
        let list = Counter::list(prefix).limit(limit).load(conn);
        let listed = list.map_err(without_library_tables)?.into_iter();
        Ok::<Vec<_>, Error>(listed.map(|(name, _)| name).collect())
    };
    // It comes before those that begin with its name.
    if listed(name, 1, conn)?
        .first()
        .is_none_or(|first| first != name)
    {
        let similar = listed("", SIMILAR_AMONG, conn)?;
        return Err(Error::Refused(format!(
            "there is no counter `{name}`{}",
            like(&nearest(name, &similar))
        )));
    }
    let counter = Counter::named(name);
    let before = counter.shards(conn).map_err(without_library_tables)?;
    let before = plural(before.into(), "shard");
    if args.dry_run {
        out.line(&format!("{name}: {before}, would have {}", args.to))?;
        return Ok(Ended::Done);
    }
    counter
        .resize(args.to, conn)
        .map_err(without_library_tables)?;
    out.line(&format!("{name}: {before} before, now {}", args.to))?;
    Ok(Ended::Done)
}

fn field_of(
    table: &str,
    field: &str,
    args: &ResizeArgs,
    options: &str,
    conn: &mut AnyConnection,
    interrupt: &Interrupt,
    out: &mut Output,
) -> Result<Ended, Error> {
    let found = sharded::find(table, conn)?;
    let (keyed, sharded) = (found.keyed(), &found.table);
    let field = sharded::field(sharded, field)?;
    let numbers = shard_counts(keyed, conn);
    let numbers = numbers.map_err(|error| explained(error.into(), &needs_of_counts(), conn));
    let mut numbers = numbers?;
    let before = numbers.insert(field.name().into(), args.to);
    let was = match before {
        Some(number) => number.to_string(),
        None => "the number in the application's derive".to_owned(),
    };
    let named = format!("{}.{}", sharded.table(), field.name());
    if args.dry_run {
        out.line(&format!("{named}: {was}, would have {}", args.to))?;
    } else {
        let number = sharded.shard_count(field);
        let resized = number.resize(args.to, conn);
        resized.map_err(|error| {
            let needs = needs_to_set();
            explained(without_library_tables(error), &needs, conn)
        })?;
        out.line(&format!("{named}: {was} before, now {}", args.to))?;
    }
    // Only where every field has a number is it known which shards nobody wants.
    let keep_shards = sharded.wished(&numbers);
    if keep_shards.is_none() || before.is_some_and(|before| args.to >= before) {
        return Ok(Ended::Done);
    }
    let folding = Folding {
        keyed,
        keep_shards,
        form: Form::default(),
        interrupt,
        options,
        others: vec![],
    };
    let reports = &mut FoldReports::of(Form::default(), out);
    match args.dry_run {
        true => folding.dry_run(None, conn, reports),
        false => {
            let pauses = &mut Pauses::at_most_per_second(None, ROWS_AT_ONCE, interrupt);
            folding.run(None, pauses, conn, reports)
        }
    }
}

/// The library would name what runs them.
fn without_library_tables(error: diesel::result::Error) -> Error {
    match ShardedError::from(error) {
        ShardedError::MissingShardsTable { table, .. } => Error::Refused(format!(
            "there is no table `{table}`: create the library's tables once by `diesel-sharded setup` (in Rust: \
             `conn.run_pending_migrations(diesel_sharded::MIGRATIONS)`)"
        )),
        error => Error::Database(error),
    }
}

/// The numbers of a table's fields that were set, by field; those of named counters, by their names behind a zero.
pub fn shard_counts(
    keyed: Keyed<'_>,
    conn: &mut AnyConnection,
) -> QueryResult<HashMap<Vec<u8>, u16>> {
    match keyed.live.has_numbers {
        true => keyed.sharded.shard_numbers(conn),
        false => Ok(HashMap::new()),
    }
}

/// The privileges to read them.
pub fn needs_of_counts() -> [Need<'static>; 1] {
    [Need::of("SELECT", TableName::new(SHARD_NUMBERS))]
}

/// The privileges to set one.
fn needs_to_set() -> [Need<'static>; 3] {
    ["SELECT", "INSERT", "UPDATE"]
        .map(|privilege| Need::of(privilege, TableName::new(SHARD_NUMBERS)))
}
