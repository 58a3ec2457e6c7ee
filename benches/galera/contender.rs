//! The ways to count that are compared.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use diesel::prelude::*;
use diesel::result::Error;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded::{RowCounter, update};
pub use diesel_sharded_benches::videos;

diesel::table! {
    striped (id) {
        id -> BigInt,
        views -> BigInt,
    }
}

#[derive(ShardedField)]
#[diesel(table_name = striped)]
#[expect(dead_code, reason = "the derive reads the fields' types")]
struct StripedVideo {
    id: i64,
    #[sharded]
    views: i64,
}

/// A way to count, each on a row of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contender {
    OneRow,
    OneRowInTransaction,
    Sharded,
    Striped,
    /// Does not learn which shards other writers use.
    Random,
    StripedRandom,
    /// One coalescer for the writers of a process.
    Coalesced,
    /// The most that the cluster can commit, if each count is a commit.
    RowOfItsOwn,
}

impl Contender {
    pub const ALL: [Self; 8] = [
        Contender::OneRow,
        Contender::OneRowInTransaction,
        Contender::Sharded,
        Contender::Striped,
        Contender::Random,
        Contender::StripedRandom,
        Contender::Coalesced,
        Contender::RowOfItsOwn,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Contender::OneRow => "one row, `diesel::update`, tried again at once",
            Contender::OneRowInTransaction => {
                "one row, `diesel::update` in `retry::transaction`, with its pauses"
            }
            Contender::Sharded => "`diesel_sharded::update`",
            Contender::Striped => "`diesel_sharded::update`, a stripe for each process",
            Contender::Random => "`ShardChoice::Random`",
            Contender::StripedRandom => "`ShardChoice::Random`, a stripe for each process",
            Contender::Coalesced => "`Coalescer::add`, a stripe for each process",
            Contender::RowOfItsOwn => "no hot row: `diesel::update` of a row of each writer's own",
        }
    }

    pub fn row(self) -> i64 {
        self as i64 + 1
    }

    /// Whether each process keeps to a stripe. These count on a table of their own, since a process learns about a whole table.
    pub fn is_striped(self) -> bool {
        matches!(
            self,
            Contender::Striped | Contender::StripedRandom | Contender::Coalesced
        )
    }

    /// Counts once, with as many attempts as it takes.
    pub fn count(self, writer: &mut Writer) {
        let Writer {
            conn,
            own_row,
            coalescer,
        } = writer;
        let counted = match self {
            Contender::OneRow => loop {
                match on_one_row(self.row(), conn) {
                    Err(error) if is_conflict(&error) => {
                        CONFLICTS.fetch_add(1, Ordering::Relaxed);
                    }
                    other => break other,
                }
            },
            Contender::OneRowInTransaction => {
                retry::transaction(conn, patient(), |conn| on_one_row(self.row(), conn))
            }
            Contender::Sharded => update(videos::table.find(self.row()))
                .set(videos::views.eq(videos::views + 1))
                .execute(conn),
            Contender::Striped => update(striped::table.find(self.row()))
                .set(striped::views.eq(striped::views + 1))
                .execute(conn),
            Contender::Random => update(videos::table.find(self.row()))
                .set(videos::views.eq(videos::views + 1))
                .shard_choice(ShardChoice::Random)
                .execute(conn),
            Contender::StripedRandom => update(striped::table.find(self.row()))
                .set(striped::views.eq(striped::views + 1))
                .shard_choice(ShardChoice::Random)
                .execute(conn),
            Contender::Coalesced => {
                let added = coalescer.add(&RowCounter::of(striped::views, self.row()), 1);
                added.map_err(Error::from)
            }
            Contender::RowOfItsOwn => on_one_row(*own_row, conn),
        };
        assert_eq!(counted, Ok(1));
    }

    pub fn total(self, conn: &mut MysqlConnection) -> i64 {
        if self == Contender::RowOfItsOwn {
            let own_rows = videos::table.filter(videos::id.ge(OWN_ROWS));
            let all: Vec<i64> = own_rows.select(videos::views).load(conn).expect("rows");
            return all.iter().sum();
        }
        let total = match self.is_striped() {
            true => striped::table
                .find(self.row())
                .select(striped::views.total())
                .first(conn),
            false => videos::table
                .find(self.row())
                .select(videos::views.total())
                .first(conn),
        };
        total.expect("a total")
    }
}

/// One of the writers of a node.
pub struct Writer {
    pub conn: MysqlConnection,
    pub own_row: i64,
    pub coalescer: Coalescer<MysqlConnection>,
}

/// The first row that is a single writer's.
pub const OWN_ROWS: i64 = 1_000;

fn on_one_row(row: i64, conn: &mut MysqlConnection) -> QueryResult<usize> {
    diesel::update(videos::table.find(row))
        .set(videos::views.eq(videos::views + 1))
        .execute(conn)
}

/// 1213 of Galera and of a node by itself; 3101 of Group Replication, and 1180 with InnoDB's 149.
fn is_conflict(error: &Error) -> bool {
    let text = error.to_string();
    let texts = ["Deadlock found", "Plugin instructed", "Got error 149 "];
    texts.iter().any(|begin| text.starts_with(begin))
}

/// The conflicts that the writers of this process met.
pub static CONFLICTS: AtomicU64 = AtomicU64::new(0);

/// The default policy with a long deadline and no limit of attempts: one row may need more than the defaults allow.
pub fn patient() -> RetryPolicy {
    RetryPolicy::new()
        .with_attempts(u32::MAX)
        .with_deadline(Duration::from_secs(600))
        .with_notify(|_| {
            CONFLICTS.fetch_add(1, Ordering::Relaxed);
        })
}
