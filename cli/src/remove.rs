//! `diesel-sharded remove-orphans` removes shards whose row does not exist, `remove-expired` the rows of unique counts whose window is over.

use diesel_sharded::model::TableName;
use diesel_sharded::{described, unique};

use crate::connection::AnyConnection;
use crate::error::{Ended, Error};
use crate::output::{self, plural};
use crate::privilege::{Need, explained};
use crate::sharded::{self, names};

pub fn orphans(tables: &[String], conn: &mut AnyConnection) -> Result<Ended, Error> {
    for sharded in &sharded::named(tables, |_| {}, conn)? {
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

pub fn expired(conn: &mut AnyConnection) -> Result<Ended, Error> {
    let removed = unique::remove_expired(conn).map_err(|error| {
        let keys = TableName::new("diesel_sharded_idempotency_keys");
        let needs = ["SELECT", "DELETE"].map(|privilege| Need::of(privilege, keys));
        explained(error.into(), &needs, conn)
    })?;
    let rows = plural(removed as u64, "row");
    output::line(&format!("removed {rows} of visitors"))?;
    Ok(Ended::Done)
}
