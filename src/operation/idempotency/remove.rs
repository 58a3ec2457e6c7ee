//! Old keys are removed.

use std::time::Duration;

use diesel::connection::LoadConnection;
use diesel::prelude::*;

use super::keys::{DeleteKeys, FindOld, explained};
use crate::backend::BackendOf;
use crate::connection::{Link, LoadIo, TransactionOptions, now};
use crate::engine::{RetryLoop, retry_loop};
#[cfg(doc)]
use crate::error::Error;
use crate::policy::RetryPolicy;

/// Removes the keys that are older than `age`, by the database's clock, in whole seconds, and returns their number. If their
/// requests come again, they count again: see [when keys go](super#when-keys-go).
///
/// Each 1,000 keys are removed in a transaction of their own, so counts do not wait. Several processes may remove keys at once.
/// Inside a transaction the removal is part of the caller's.
///
/// ```sql
/// SELECT … FROM "diesel_sharded_idempotency_keys" WHERE "created" < now - $1 ORDER BY "created" LIMIT 1000;
/// DELETE FROM "diesel_sharded_idempotency_keys" WHERE "key" IN ($1, …) AND "created" < now - $1001
/// ```
///
/// ```
/// # use diesel::prelude::*;
/// # use diesel_migrations::MigrationHarness;
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// # let conn = &mut SqliteConnection::establish(":memory:")?;
/// # conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?;
/// use std::time::Duration;
/// use diesel_sharded::idempotency;
///
/// // Queues keep a message for four days at most.
/// idempotency::remove_older_than(Duration::from_secs(7 * 24 * 3600), conn)?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The database's; [`MissingShardsTable`](Error::MissingShardsTable) if the library's migrations have not run.
pub fn remove_older_than<Conn>(age: Duration, conn: &mut Conn) -> QueryResult<usize>
where
    Conn: LoadConnection,
    Conn::Backend: BackendOf<Conn>,
{
    now(remove(age, &mut Link::blocking(conn)))
}

pub(crate) async fn remove<M, Conn>(
    age: Duration,
    link: &mut Link<'_, M, Conn>,
) -> QueryResult<usize>
where
    M: LoadIo<Conn>,
{
    const STEP: i64 = 1_000;
    // Beyond that the difference from now would leave the range of an `i64`.
    let seconds = i64::try_from(age.as_secs())
        .unwrap_or(i64::MAX)
        .min(i64::MAX / 2);
    let mut removed = 0;
    loop {
        let old = FindOld {
            seconds,
            limit: STEP,
        };
        let old = link.load(old).await;
        let old = old.map_err(|error| explained(link, error))?;
        if old.is_empty() {
            return Ok(removed);
        }
        // Of several rows: a deadlock may end it where it commits by itself, or end a transaction that Diesel does not know.
        let options = TransactionOptions::of_a_count(link.dialect());
        let deleting = RetryLoop::transaction(link, RetryPolicy::default(), options)?;
        let step = retry_loop!(link, deleting, {
            let delete = DeleteKeys {
                keys: old.iter().map(|(key, ..)| key.as_slice()).collect(),
                older_than: Some(seconds),
            };
            link.execute(delete).await
        })?;
        if step == 0 {
            return Ok(removed); // or others are removing them
        }
        removed += step;
    }
}
