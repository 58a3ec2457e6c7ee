//! `diesel-sharded resize` sets how many shards writers choose from.

use std::collections::HashMap;

use diesel::prelude::*;
use diesel_sharded::described::{
    Pace, ROWS_AT_ONCE, SHARD_NUMBERS, shard_count, shard_numbers, wished,
};
use diesel_sharded::model::TableName;
use diesel_sharded::{Counter, Error as ShardedError};

use crate::args::ResizeArgs;
use crate::connection::AnyConnection;
use crate::error::{Ended, Error};
use crate::fold::Folding;
use crate::interrupt;
use crate::output::{self, plural};
use crate::privilege::{Need, explained};
use crate::sharded::{self, Sharded};

pub fn run(args: &ResizeArgs, conn: &mut AnyConnection) -> Result<Ended, Error> {
    interrupt::handle("finishing the batch")?;
    match (&args.counter, &args.table, &args.field) {
        (Some(name), ..) => counter(name, args, conn),
        (None, Some(table), Some(field)) => field_of(table, field, args, conn),
        _ => Ok(Ended::Done), // clap asks for one of them
    }
}

fn counter(name: &str, args: &ResizeArgs, conn: &mut AnyConnection) -> Result<Ended, Error> {
    // Of all counters with this prefix, the counter itself comes first.
    let listed = Counter::list(name).limit(1).load(conn);
    let listed = listed.map_err(without_library_tables)?;
    if listed.first().is_none_or(|(first, _)| first != name) {
        return Err(Error::Refused(format!("there is no counter `{name}`")));
    }
    let counter = Counter::named(name);
    let before = counter.shards(conn).map_err(without_library_tables)?;
    if !args.dry_run {
        let resized = counter.resize(args.to, conn);
        resized.map_err(without_library_tables)?;
    }
    tell(args, name, &plural(before.into(), "shard"))
}

/// Prints the number before, and the one that is set or would be.
fn tell(args: &ResizeArgs, what: &str, before: &str) -> Result<Ended, Error> {
    output::line(&match args.dry_run {
        true => format!("{what}: {before}, would have {}", args.to),
        false => format!("{what}: {before} before, now {}", args.to),
    })?;
    Ok(Ended::Done)
}

fn field_of(
    table: &str,
    field: &str,
    args: &ResizeArgs,
    conn: &mut AnyConnection,
) -> Result<Ended, Error> {
    let sharded = &sharded::find(table, conn)?;
    let field = sharded.field(field)?;
    let numbers = shard_counts(sharded, conn);
    let mut numbers = numbers.map_err(|error| explained(error.into(), &needs_of_counts(), conn))?;
    let before = numbers.insert(field.name().into(), args.to);
    let derived = || "the number in the application's derive".to_owned();
    let was = before.map_or_else(derived, |number| number.to_string());
    if !args.dry_run {
        let resized =
            shard_count(sharded.shards_table().as_str(), field.name()).resize(args.to, conn);
        resized.map_err(|error| {
            let needs = ["SELECT", "INSERT", "UPDATE"];
            let needs = needs.map(|need| Need::of(need, TableName::new(SHARD_NUMBERS)));
            explained(without_library_tables(error), &needs, conn)
        })?;
    }
    let named = format!("{}.{}", sharded.table(), field.name());
    let told = tell(args, &named, &was)?;
    // Only if every field has a number is it certain which shards no writer uses.
    let keep_shards = wished(sharded.names(), &numbers);
    if keep_shards.is_none() || before.is_some_and(|before| args.to >= before) {
        return Ok(told);
    }
    let folding = Folding {
        sharded,
        keep_shards,
        dry_run: args.dry_run,
        json: false,
        is_last: true,
    };
    let pace = &mut Pace::at_most_per_second(None, ROWS_AT_ONCE);
    folding.run(None, pace, conn, &mut vec![])
}

/// Advises `setup` instead of the library's migrations.
fn without_library_tables(error: diesel::result::Error) -> Error {
    match ShardedError::from(error) {
        ShardedError::MissingShardsTable { table, .. } => Error::Refused(format!(
            "there is no table `{table}`: create the library's tables once by `diesel-sharded setup` (in Rust: \
             `conn.run_pending_migrations(diesel_sharded::MIGRATIONS)`)"
        )),
        error => Error::Database(error),
    }
}

/// The numbers that were set for a table's fields, by field, and for named counters, by their names after a zero byte.
pub fn shard_counts(
    sharded: &Sharded,
    conn: &mut AnyConnection,
) -> QueryResult<HashMap<Vec<u8>, u16>> {
    match sharded.live.has_numbers {
        true => shard_numbers(sharded.shards_table().as_str(), conn),
        false => Ok(HashMap::new()),
    }
}

/// The privileges to read these numbers.
pub fn needs_of_counts() -> [Need<'static>; 1] {
    [Need::of("SELECT", TableName::new(SHARD_NUMBERS))]
}
