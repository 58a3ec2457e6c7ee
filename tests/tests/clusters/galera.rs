//! Counting on a MariaDB Galera cluster: three nodes that all accept writes, and detect conflicts at COMMIT.
//!
//! The tests of partitions need root, for network namespaces, and fail without; the others do not need it.

use diesel_sharded_tests::cluster::Cluster;
use diesel_sharded_tests::galera::Galera;

use super::cluster;

cluster::tests! {
    writers_on_all_nodes on Galera::start();
    transactions_of_several_statements_beside_writers on Galera::start();
    stripes_keep_processes_apart on Galera::start();
    a_node_is_killed_and_rejoins on Galera::start();

    /// Needs root.
    a_minority_refuses_and_has_changed_nothing on Galera::start_behind_a_switch();
}

/// The default of MariaDB 11.8.
mod with_snapshot_isolation {
    use super::*;

    cluster::tests! {
        #[ignore = "takes minutes; scripts/test-clusters.sh runs it"]
        transactions_of_several_statements_beside_writers on Galera::start_with_snapshot_isolation();
    }
}
