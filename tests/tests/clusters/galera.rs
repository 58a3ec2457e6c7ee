//! Counting on a MariaDB Galera cluster: three nodes that all take writes, and detect conflicts at COMMIT.
//!
//! The tests of partitions need root, for network namespaces, and fail without; the others do not need it.

use diesel_sharded_tests::cluster::Cluster;
use diesel_sharded_tests::galera::Galera;

use super::cluster;

#[test]
fn writers_on_all_nodes() {
    cluster::writers_on_all_nodes(&Galera::start());
}

#[test]
fn transactions_of_several_statements_beside_writers() {
    cluster::transactions_of_several_statements_beside_writers(&Galera::start());
}

#[test]
fn stripes_keep_processes_apart() {
    cluster::stripes_keep_processes_apart(&Galera::start());
}

#[test]
fn a_node_is_killed_and_rejoins() {
    cluster::a_node_is_killed_and_rejoins(&Galera::start());
}

/// Needs root.
#[test]
fn a_minority_refuses_and_has_changed_nothing() {
    cluster::a_minority_refuses_and_has_changed_nothing(&Galera::start_behind_a_switch());
}

/// Needs root. The nodes hold the same, whatever was lost.
#[test]
#[ignore = "measures; scripts/test-clusters.sh runs it"]
fn all_nodes_are_killed() {
    println!(
        "{:?}",
        cluster::all_nodes_are_killed(&Galera::start_durable())
    );
}

/// Needs root. The nodes hold the same, whatever was lost.
#[test]
#[ignore = "measures; scripts/test-clusters.sh runs it"]
fn a_node_is_cut_off_and_another_one_killed() {
    let galera = Galera::start_durable();
    println!(
        "{:?}",
        cluster::a_node_is_cut_off_and_another_one_killed(&galera)
    );
}

#[test]
#[ignore = "takes minutes; scripts/test-clusters.sh runs it"]
fn thousands_of_folds_sets_and_exchanges() {
    println!(
        "{:?}",
        cluster::thousands_of_folds_sets_and_exchanges(&Galera::start())
    );
}

/// The default of MariaDB 11.8.
#[test]
#[ignore = "takes minutes; scripts/test-clusters.sh runs it"]
fn thousands_with_snapshot_isolation() {
    println!(
        "{:?}",
        cluster::thousands_of_folds_sets_and_exchanges(&Galera::start_with_snapshot_isolation())
    );
}

#[test]
#[ignore = "takes minutes; scripts/test-clusters.sh runs it"]
fn transactions_of_several_statements_with_snapshot_isolation() {
    cluster::transactions_of_several_statements_beside_writers(
        &Galera::start_with_snapshot_isolation(),
    );
}
