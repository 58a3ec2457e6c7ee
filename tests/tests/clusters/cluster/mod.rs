//! Workloads and faults for any cluster whose nodes all accept writes.

mod faults;
mod ledger;
mod several;
mod stripes;
mod writers;

use std::fmt::Debug;
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_migrations::MigrationHarness;
use diesel_sharded::MIGRATIONS;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded_tests::cluster::{Cluster, NODES};
use diesel_sharded_tests::schema;

pub use self::faults::*;
pub use self::several::transactions_of_several_statements_beside_writers;
pub use self::stripes::stripes_keep_processes_apart;
pub use self::writers::writers_on_all_nodes;

/// Makes tests of these functions, each on a cluster.
macro_rules! tests {
    ($($(#[$attribute:meta])* $test:ident on $cluster:expr;)+) => {$(
        $(#[$attribute])*
        #[test]
        fn $test() {
            cluster::$test(&$cluster);
        }
    )+};
}
pub(crate) use tests;

diesel::table! {
    tokens (id) {
        id -> BigInt,
    }
}

const PATIENCE: Duration = Duration::from_secs(60);

pub fn prepare<C: Cluster>(cluster: &C) -> MysqlConnection {
    let mut conn = cluster.connect(0);
    match C::HAS_FOREIGN_KEYS {
        true => {
            schema::create(&mut conn);
            conn.run_pending_migrations(MIGRATIONS)
        }
        false => {
            schema::create_without_foreign_keys(&mut conn);
            conn.run_pending_migrations(MIGRATIONS.without_foreign_key())
        }
    }
    .unwrap();
    conn.batch_execute("CREATE TABLE tokens (id BIGINT PRIMARY KEY)")
        .unwrap();
    // A query looks for its tables before it waits for the commits of other nodes.
    let patience = Instant::now() + PATIENCE;
    for node in 0..NODES {
        let conn = &mut cluster.up_to_date(node);
        while let Err(error) = tokens::table.count().get_result::<i64>(conn) {
            assert!(Instant::now() < patience, "{error}");
        }
    }
    conn
}

/// The result of `read`, which has to be the same on each node.
fn on_all_nodes<T: PartialEq + Debug>(
    cluster: &impl Cluster,
    read: impl Fn(&mut MysqlConnection) -> QueryResult<T>,
) -> T {
    let mut all = (0..NODES).map(|node| read(&mut cluster.up_to_date(node)).unwrap());
    let first = all.next().unwrap();
    for other in all {
        assert_eq!(first, other);
    }
    first
}

/// As often as it takes.
fn patient() -> RetryPolicy {
    RetryPolicy::new()
        .with_attempts(1000)
        .with_deadline(PATIENCE)
}
