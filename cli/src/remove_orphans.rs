//! `diesel-sharded remove-orphans` removes shards whose row does not exist.

use diesel_sharded::described;

use crate::connection::AnyConnection;
use crate::error::{Ended, Error};
use crate::output::{self, plural};
use crate::privilege::{Need, explained};
use crate::sharded::{self, names};

pub fn run(tables: &[String], conn: &mut AnyConnection) -> Result<Ended, Error> {
    for sharded in &sharded::named(tables, conn)?.tables {
        let (table, shards_table) = (sharded.table(), sharded.shards_table());
        let removed = described::remove_orphans(sharded, conn).map_err(|error| {
            let needs = [
                Need::of_columns("SELECT", names(&sharded.key), table),
                Need::of("SELECT", shards_table),
                Need::of("DELETE", shards_table),
            ];
            explained(error.into(), &needs, conn)
        })?;
        let shards = plural(removed as u64, "shard");
        output::line(&format!("{table}: removed {shards} without a row"))?;
    }
    Ok(Ended::Done)
}
