//! Few shards, chosen at random, on all nodes.

use std::thread;

use diesel::prelude::*;
use diesel_sharded::fold;
use diesel_sharded::prelude::*;
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded_tests::cluster::{Cluster, NODES};
use diesel_sharded_tests::schema::videos::dsl::*;

use super::operations::{arrange, is_once, together, totals};
use super::{on_all_nodes, patient, prepare};

/// Few shards, chosen at random: every writer meets every other, and none notices.
pub fn writers_on_all_nodes(cluster: &impl Cluster) {
    each_operation_on_all_nodes(cluster, &mut prepare(cluster));
    assert!(cluster.conflicts() > 0);
    // If nobody else writes, a fold changes no total, and moves all of it.
    let read = |conn: &mut MysqlConnection| videos.select(views.total()).order(id).load(conn);
    let before: Vec<i64> = on_all_nodes(cluster, read);
    let folded = fold(videos).run(&mut cluster.up_to_date(1)).unwrap();
    assert!(folded.finished && folded.busy.is_empty());
    let bases: Vec<i64> = on_all_nodes(cluster, |conn| videos.select(views).order(id).load(conn));
    assert_eq!(bases, before);
}

/// All nodes do the same on one row, several times.
pub(super) fn each_operation_on_all_nodes(cluster: &impl Cluster, conn: &mut MysqlConnection) {
    const ROUNDS: i64 = 8;
    patient().set_global();
    ShardChoice::Random.set_global();
    for (video, (name, before, work)) in (1000..).zip(together()) {
        arrange(name, before, video, conn);
        let read = |conn: &mut MysqlConnection| Ok(totals(video, conn));
        let before = on_all_nodes(cluster, read);
        let added: Vec<i64> = thread::scope(|scope| {
            let nodes = (0..NODES).map(|node| {
                scope.spawn(move || {
                    let conn = &mut cluster.connect(node);
                    let added = (0..ROUNDS).map(|_| work(conn, video));
                    let added =
                        added.map(|n| n.unwrap_or_else(|error| panic!("{name}: {error:?}")));
                    added.collect::<Vec<_>>()
                })
            });
            let nodes: Vec<_> = nodes.collect();
            nodes
                .into_iter()
                .flat_map(|node| node.join().unwrap())
                .collect()
        });
        let expected = match is_once(name) {
            true => added[0],
            false => added.iter().sum(),
        };
        let after = on_all_nodes(cluster, read);
        assert_eq!(after - before, expected, "{name}: {added:?}");
    }
}
