//! Counting on a group of MySQL servers that all accept writes (Group Replication, multi-primary), in containers.

use diesel_sharded_tests::cluster::Cluster;
use diesel_sharded_tests::group_replication::GroupReplication;

use super::cluster;

cluster::tests! {
    #[ignore = "containers; scripts/test-clusters.sh runs it"]
    writers_on_all_nodes on GroupReplication::start();

    #[ignore = "containers; scripts/test-clusters.sh runs it"]
    transactions_of_several_statements_beside_writers on GroupReplication::start();

    #[ignore = "containers; scripts/test-clusters.sh runs it"]
    stripes_keep_processes_apart on GroupReplication::start();

    // Without durable commits a node that ended may lack a transaction that its binary log holds, and rejoins without it.
    #[ignore = "containers; scripts/test-clusters.sh runs it"]
    a_node_is_killed_and_rejoins on GroupReplication::start_durable();

    #[ignore = "containers; scripts/test-clusters.sh runs it"]
    a_minority_refuses_and_has_changed_nothing on GroupReplication::start_behind_a_switch();
}
