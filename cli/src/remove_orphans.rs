//! `diesel-sharded remove-orphans`: removes shards whose row does not exist.

use diesel_sharded::described;

use crate::connection::AnyConnection;
use crate::error::Error;
use crate::exit::Ended;
use crate::key::Keyed;
use crate::output::{Output, plural};
use crate::sharded;

pub fn run(tables: &[String], conn: &mut AnyConnection, out: &mut Output) -> Result<Ended, Error> {
    let dialect = conn.dialect();
    for (_, sharded) in &sharded::named(tables, conn)?.tables {
        let removed = described::remove_orphans(Keyed { sharded, dialect }, conn)?;
        let shards = plural(removed as u64, "shard");
        out.line(&format!(
            "{}: removed {shards} without a row",
            sharded.table()
        ))?;
    }
    Ok(Ended::Done)
}
