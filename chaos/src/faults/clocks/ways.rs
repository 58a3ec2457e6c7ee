//! The ways to count while clocks jump, on each connection type.

use std::thread;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded::{Counter, Error, fold, idempotency, set_total, update};

use crate::backend::ChaosConnection;
use crate::schema::chaos_rows::dsl::*;

/// `views` of every row at the beginning.
pub(super) const BASE: i64 = 1000;
/// No call takes this long, whatever its clock says: the locks in its way are released much sooner.
pub(super) const LONGEST: Duration = Duration::from_secs(30);

/// The ways to count, each on a row of its own.
pub(super) const ON_ONE_SHARD: i64 = 0;
pub(super) const ADAPTIVE: i64 = 1;
pub(super) const TRANSACTION: i64 = 2;
pub(super) const COALESCED: i64 = 3;
pub(super) const NAMED: i64 = 4;
/// The rows that no client counts on.
pub(super) const SET: i64 = 5;
pub(super) const OLD_KEYS: i64 = 6;
pub(super) const OLD_BATCHES: i64 = 7;

/// A connection with the statements of this fault.
pub(super) trait Timed: ChaosConnection {
    /// Makes statements wait for locks for a few milliseconds at most.
    fn be_impatient(&mut self);

    fn count(&mut self, way: i64, row: i64, policy: RetryPolicy) -> Result<usize, Error>;

    /// Locks the shards of a round for this time.
    fn hold(&mut self, first: i64, time: Duration);

    fn total(&mut self, row: i64) -> i64;

    fn named(&mut self, row: i64) -> i64;

    /// Counts with an idempotency key.
    fn count_once(&mut self, row: i64, key: &str) -> QueryResult<usize>;

    fn remove_keys(&mut self, age: Duration) -> QueryResult<usize>;
}

fn name(row: i64) -> String {
    format!("clocks {row}")
}

macro_rules! timed {
    ($($Conn:ty: $impatient:literal),+) => {$(
        impl Timed for $Conn {
            fn be_impatient(&mut self) {
                self.batch_execute($impatient).expect("a setting");
            }

            fn count(&mut self, way: i64, row: i64, policy: RetryPolicy) -> Result<usize, Error> {
                let conn = self;
                let count = || update(chaos_rows.find(row)).set(views.eq(views + 1));
                Ok(match way {
                    ON_ONE_SHARD => {
                        let policy = policy.with_random(|| 0);
                        count().shard_choice(ShardChoice::Random).retry(policy).execute(conn)?
                    }
                    ADAPTIVE => count().shard_choice(ShardChoice::Adaptive).retry(policy).execute(conn)?,
                    NAMED => {
                        Counter::named(name(row)).add(1, conn)?;
                        1
                    }
                    _ => retry::transaction(conn, policy, |conn| {
                        let counted = count().execute(conn)?;
                        // Locks a row, so that the transactions conflict.
                        set_total(chaos_rows.find(row - way + SET), views, BASE).execute(conn)?;
                        QueryResult::Ok(counted)
                    })?,
                })
            }

            fn hold(&mut self, first: i64, time: Duration) {
                let held = RetryPolicy::new().with_attempts(u32::MAX).with_deadline(LONGEST);
                let held: QueryResult<()> = retry::transaction(self, held, |conn| {
                    // A fold locks its rows and all their shards, and moves the counts into the rows.
                    fold(chaos_rows.filter(id.between(first, first + 4))).run(conn)?;
                    thread::sleep(time);
                    Ok(())
                });
                held.expect("locks");
            }

            fn total(&mut self, row: i64) -> i64 {
                chaos_rows.find(row).select(views.total()).first(self).expect("a total")
            }

            fn named(&mut self, row: i64) -> i64 {
                Counter::named(name(row)).get(self).expect("a total")
            }

            fn count_once(&mut self, row: i64, key: &str) -> QueryResult<usize> {
                update(chaos_rows.find(row)).set(views.eq(views + 1)).idempotency_key(key).execute(self)
            }

            fn remove_keys(&mut self, age: Duration) -> QueryResult<usize> {
                idempotency::remove_older_than(age, self)
            }
        }
    )+};
}

timed!(
    PgConnection: "SET lock_timeout = '3ms'",
    MysqlConnection: "SET innodb_lock_wait_timeout = 0",
    SqliteConnection: "PRAGMA busy_timeout = 1"
);
