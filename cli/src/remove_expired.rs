//! `diesel-sharded remove-expired` removes the rows of unique counts whose window is over.

use diesel_sharded::model::TableName;
use diesel_sharded::unique;

use crate::connection::AnyConnection;
use crate::error::{Ended, Error};
use crate::output::{self, plural};
use crate::privilege::{Need, explained};

pub fn run(conn: &mut AnyConnection) -> Result<Ended, Error> {
    let removed = unique::remove_expired(conn).map_err(|error| {
        let keys = TableName::new("diesel_sharded_idempotency_keys");
        let needs = ["SELECT", "DELETE"].map(|privilege| Need::of(privilege, keys));
        explained(error.into(), &needs, conn)
    })?;
    output::line(&format!(
        "removed {} of visitors",
        plural(removed as u64, "row")
    ))?;
    Ok(Ended::Done)
}
