//! Nodes that are killed and cut off.

use diesel::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::{Counter, Error, fold, update};
use diesel_sharded_tests::assert_matches;
use diesel_sharded_tests::cluster::Cluster;
use diesel_sharded_tests::schema::videos::dsl::*;

use super::ledger::{wait_for_all, while_counting};

pub fn a_node_is_killed_and_rejoins(cluster: &impl Cluster) {
    let ledgers = while_counting(cluster, |ledgers| {
        cluster.kill(2);
        cluster.wait_for_members(0, 2);
        wait_for_all(&ledgers[..2]);
        cluster.rejoin(2);
    });
    let told = ledgers[2].errors.lock().unwrap();
    assert!(!told.is_empty(), "nobody was at the node that was killed");
    for ledger in &ledgers[..2] {
        assert_eq!(*ledger.errors.lock().unwrap(), [""; 0]);
    }
}

pub fn a_minority_refuses_and_has_changed_nothing(cluster: &impl Cluster) {
    let ledgers = while_counting(cluster, |ledgers| {
        cluster.cut_off(2);
        cluster.wait_until_it_refuses(2);
        cluster.wait_for_members(0, 2);
        let conn = &mut cluster.connect(2);
        let refused = |result: QueryResult<()>| {
            let error = Error::from(result.unwrap_err());
            assert_matches!(error, Error::NodeNotReady { .. });
        };
        let one = || update(videos.find(1)).set(views.eq(views + 1));
        refused(one().execute(conn).map(drop));
        refused(one().returning(views).get_result::<i64>(conn).map(drop));
        refused(
            update(videos)
                .set(views.eq(views + 1))
                .execute(conn)
                .map(drop),
        );
        refused(Counter::named("page").increment(conn));
        refused(fold(videos).run(conn).map(drop));
        let inside = retry::transaction(conn, RetryPolicy::new(), |conn| {
            one().execute(conn).map(drop)
        });
        // Galera refuses to begin, MySQL to write: that is the closure's own error.
        let error = Error::from(inside.unwrap_err());
        assert_matches!(error, Error::NodeNotReady { .. } | Error::Diesel(_));
        wait_for_all(&ledgers[..2]);
        cluster.plug_in(2);
    });
    let told = ledgers[2].errors.lock().unwrap();
    assert!(told.iter().any(|error| error.starts_with("NodeNotReady")));
    for ledger in &ledgers[..2] {
        assert_eq!(*ledger.errors.lock().unwrap(), [""; 0]);
    }
}
