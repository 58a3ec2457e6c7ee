//! `diesel-sharded remove-orphans`: removes shards whose row does not exist.

use diesel_sharded::described;

use crate::connection::AnyConnection;
use crate::error::Error;
use crate::exit::Ended;
use crate::output::{Output, plural};
use crate::privilege::{Need, explained};
use crate::sharded::{self, names};

pub fn run(tables: &[String], conn: &mut AnyConnection, out: &mut Output) -> Result<Ended, Error> {
    for sharded in sharded::named(tables, conn)?.tables {
        let removed = described::remove_orphans(sharded.keyed(), conn);
        let sharded = &sharded.table;
        let removed = removed.map_err(|error| {
            let shards = sharded.shards_table();
            let needs = [
                Need::of_columns("SELECT", names(sharded.key()), sharded.table()),
                Need::of("SELECT", shards),
                Need::of("DELETE", shards),
            ];
            explained(error.into(), &needs, conn)
        })?;
        let shards = plural(removed as u64, "shard");
        out.line(&format!(
            "{}: removed {shards} without a row",
            sharded.table()
        ))?;
    }
    Ok(Ended::Done)
}
