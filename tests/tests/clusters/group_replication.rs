//! Counting on a group of MySQL servers that all take writes (Group Replication, multi-primary), in containers.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded_tests::cluster::Cluster;
use diesel_sharded_tests::group_replication::GroupReplication;
use diesel_sharded_tests::number;

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

/// A transaction that another node's commit aborts between two statements fails at the next one, or at the latest at COMMIT: no
/// statement after the abort is committed by itself.
#[test]
#[ignore = "containers; scripts/test-clusters.sh runs it"]
fn an_abort_between_two_statements_is_reported() {
    let group = GroupReplication::start();
    let (here, other) = (&mut group.connect(0), &mut group.connect(1));
    here.batch_execute("CREATE TABLE rows_ (id BIGINT PRIMARY KEY, n BIGINT NOT NULL); INSERT INTO rows_ VALUES (1, 0), (2, 0)")
        .unwrap();
    let both_have_it = "SELECT COUNT(*) FROM rows_";
    while other.batch_execute(both_have_it).is_err() {}
    type Run = fn(&mut MysqlConnection, &str) -> QueryResult<()>;
    let by_text: Run = |conn, sql| conn.batch_execute(sql);
    let prepared: Run = |conn, sql| diesel::sql_query(sql).execute(conn).map(drop);
    for run in [by_text, prepared] {
        here.batch_execute("BEGIN").unwrap();
        run(here, "UPDATE rows_ SET n = n + 1 WHERE id = 1").unwrap();
        other
            .batch_execute("UPDATE rows_ SET n = n + 100 WHERE id = 1")
            .unwrap();
        let applied = "SELECT SLEEP(1)";
        group.connect(0).batch_execute(applied).unwrap();
        let next = run(here, "UPDATE rows_ SET n = n + 1 WHERE id = 2");
        let end = here.batch_execute("COMMIT");
        println!("{next:?}, {end:?}");
        assert!(next.is_err() || end.is_err());
        let n = "(SELECT n FROM rows_ WHERE id = 2)";
        assert_eq!(number!(n, &mut group.up_to_date(2)), 0);
    }
}
