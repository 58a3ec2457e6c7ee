//! A long fork: readers of one server see a count on one row without a count on another row, and readers of another server see the second
//! without the first. Two totals that only grow reveal it: of (5, 3) and (4, 4) neither can have been before the other.
//!
//! Sessions read both totals in one statement, again and again, beside writers. What a server promises is asserted. The rest is printed;
//! `src/guide/reading.md` says what was found.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::update;
use diesel_sharded_tests::binary_log::MariadbPair;
use diesel_sharded_tests::cluster::{Cluster, NODES};
use diesel_sharded_tests::galera::Galera;
use diesel_sharded_tests::group_replication::GroupReplication;
use diesel_sharded_tests::replication::{Pair, Replication};
use diesel_sharded_tests::schema::{self, videos::dsl::*};
use diesel_sharded_tests::{Stop, patient};

use super::cluster::prepare;

/// The totals of both videos, from one statement.
type Totals = [i64; 2];

const VIDEOS: [i64; 2] = [1, 2];

/// How long sessions read: `SECONDS=60` for a long run.
fn duration() -> Duration {
    let seconds = std::env::var("SECONDS").map_or(2, |seconds| seconds.parse().unwrap());
    Duration::from_secs(seconds)
}

trait Client: Connection + Send {
    fn count(&mut self, video: i64);
    fn read(&mut self) -> Totals;
}

macro_rules! client {
    ($Conn:ty) => {
        impl Client for $Conn {
            fn count(&mut self, video: i64) {
                let counted = update(videos.find(video)).set(views.eq(views + 1));
                let counted = counted.retry(patient().with_attempts(1000));
                assert_eq!(counted.execute(self), Ok(1));
            }

            fn read(&mut self) -> Totals {
                let both = videos.filter(id.eq_any(VIDEOS)).order(id);
                let both: Vec<i64> = both.select(views.total()).load(self).unwrap();
                both.try_into().unwrap()
            }
        }
    };
}
client!(PgConnection);
client!(MysqlConnection);

/// Writers count on the videos in turn while sessions read, two on each node. Returns how many totals have others beside them that the
/// same node showed. `settled` connects to a node that has applied everything.
fn watch<Conn: Client>(
    server: &str,
    writers: impl IntoIterator<Item = Conn>,
    nodes: impl IntoIterator<Item = [Conn; 2]>,
    settled: impl Fn(usize) -> Conn,
) -> usize {
    let totals = settled(0).read().map(AtomicI64::new);
    let stop = AtomicBool::new(false);
    let seen: Vec<_> = thread::scope(|scope| {
        let _stop = Stop(&stop); // also when a reader panics
        for (mut conn, row) in writers.into_iter().zip([0, 1].into_iter().cycle()) {
            let (stop, total) = (&stop, &totals[row]);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    conn.count(VIDEOS[row]);
                    total.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let session = |conn| scope.spawn(move || reads(conn));
        let nodes = Vec::from_iter(nodes.into_iter().map(|node| node.map(session)));
        let node = nodes
            .into_iter()
            .map(|of| of.map(|session| session.join().unwrap()));
        node.map(|[one, other]| &one | &other).collect()
    });
    let totals = totals.map(AtomicI64::into_inner);
    let mut within = 0;
    for (node, of) in seen.iter().enumerate() {
        assert_eq!(settled(node).read(), totals);
        let others = [&seen[..node], &seen[node + 1..]].concat();
        let (own, across) = (beside(of, of), beside(of, others.iter().flatten()));
        let all = of.len();
        println!("{server}, node {node}: {all} totals, {own} beside its own, {across} others'");
        within += own;
    }
    within
}

/// What a session reads, at least until it sees a count. It never sees one go away.
fn reads(mut conn: impl Client) -> BTreeSet<Totals> {
    let (begun, mut last) = (Instant::now(), conn.read());
    let mut all = BTreeSet::from([last]);
    while begun.elapsed() < duration() || all.len() < 2 {
        let now = conn.read();
        assert!((0..2).all(|n| last[n] <= now[n]), "{last:?}, then {now:?}");
        all.insert(now);
        last = now;
    }
    all
}

/// How many of these are ahead of one of the others in one total and behind it in the other.
fn beside<'a>(these: &BTreeSet<Totals>, others: impl IntoIterator<Item = &'a Totals>) -> usize {
    let others = Vec::from_iter(others);
    let forks = |a: &Totals, b: &Totals| (a[0] - b[0]).signum() * (a[1] - b[1]).signum() < 0;
    let these = these.iter().filter(|a| others.iter().any(|b| forks(a, b)));
    these.count()
}

#[test]
fn a_fork_is_found() {
    let one = BTreeSet::from([[1, 1], [2, 1], [2, 2]]);
    assert_eq!([beside(&one, &one), beside(&one, &[[1, 2]])], [0, 1]);
}

/// They may fork: the primary shows commits when their sessions are done with them, the standby in the order of the log.
#[test]
fn a_postgres_primary_and_its_standby() {
    let pair = Pair::start().expect("PostgreSQL is installed");
    let urls = [pair.primary_url("postgres"), pair.standby_url("postgres")];
    let node = |node: usize| PgConnection::establish(&urls[node]).unwrap();
    schema::create(&mut node(0));
    let settled = |of| {
        pair.wait_until_applied();
        node(of)
    };
    for way in [None, Some(Replication::On), Some(Replication::RemoteApply)] {
        way.iter().for_each(|way| pair.replicate(*way));
        let (server, _) = (format!("PostgreSQL, {way:?}"), settled(1));
        let nodes = [[0, 0], [1, 1]].map(|of| of.map(node));
        assert_eq!(watch(&server, [0; 4].map(node), nodes, settled), 0);
    }
}

/// Rarely, even sessions of one MariaDB server disagree. For a snapshot it lists the running transactions one by one, while they commit
/// (`trx_sys.snapshot_ids` in its source).
#[test]
fn a_mariadb_primary_and_its_replica() {
    let pair = MariadbPair::start().expect("MariaDB is installed");
    let node = |node| pair.connect(node);
    schema::create(&mut node(0));
    let settled = |of| {
        pair.wait_until_applied();
        node(of)
    };
    settled(1);
    let nodes = [[0, 0], [1, 1]].map(|of| of.map(node));
    watch("MariaDB", [0; 4].map(node), nodes, settled);
}

/// First with sessions that read at once, then with such as wait for the commits of other nodes.
fn nodes_of<C: Cluster>(server: &str, cluster: &C) -> usize {
    prepare(cluster);
    let at_once = |node| cluster.connect(node);
    let settled = |node| cluster.up_to_date(node);
    let writers = || (0..2 * NODES).map(|writer| at_once(writer / 2));
    let readers = (0..NODES).map(|node| [node; 2].map(at_once));
    let within = watch(server, writers(), readers, settled);
    let readers = (0..NODES).map(|node| [node; 2].map(settled));
    let server = format!("{server}, {}", C::WAIT_FOR_OTHERS);
    within + watch(&server, writers(), readers, settled)
}

/// Galera commits in one order on all nodes (`repl.commit_order = 3`), but they read as every MariaDB server does.
#[test]
fn the_nodes_of_galera() {
    nodes_of("Galera", &Galera::start());
}

/// They may fork: a node may commit its own counts before earlier ones of other nodes (https://bugs.mysql.com/bug.php?id=89195).
#[test]
#[ignore = "containers; scripts/test-clusters.sh runs it"]
fn the_nodes_of_group_replication() {
    assert_eq!(nodes_of("Group Replication", &GroupReplication::start()), 0);
}
