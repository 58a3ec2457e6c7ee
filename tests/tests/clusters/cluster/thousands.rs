//! Thousands of folds, sets and bounded exchanges on every node, beside writers on all of them.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::shard_choice::ShardChoice;
use diesel_sharded::{RowCounter, fold, set_total, update};
use diesel_sharded_tests::cluster::{Cluster, NODES};
use diesel_sharded_tests::insert;
use diesel_sharded_tests::schema::videos::dsl::*;

use super::{Stop, on_all_nodes, patient, prepare};

/// How many of each operation have to succeed.
const EACH: u64 = 1_000;
const LONGEST: Duration = Duration::from_secs(900);
/// The stock that the nodes exchange is on this row. Each node sets the likes of a row of its own, the others.
const STOCK: i64 = 1;

/// The operations that succeeded, and the transactions that the nodes aborted.
#[derive(Debug, Default)]
pub struct Done {
    pub counts: AtomicU64,
    pub folds: AtomicU64,
    pub sets: AtomicU64,
    pub exchanges: AtomicU64,
    pub conflicts: AtomicU64,
}

impl Done {
    fn all(&self) -> bool {
        [&self.folds, &self.sets, &self.exchanges]
            .iter()
            .all(|number| number.load(Ordering::Relaxed) >= EACH)
    }
}

/// All shards of all rows are folded away again and again on each node, while the other nodes count on them, set and exchange.
pub fn thousands_of_folds_sets_and_exchanges(cluster: &impl Cluster) -> Done {
    let mut conn = prepare(cluster);
    let own_row = |node: usize| 4 + node as i64;
    for node in 0..NODES {
        insert!(
            videos,
            (
                id.eq(own_row(node)),
                title.eq("t"),
                slug.eq(format!("own {node}")),
            ),
            &mut conn
        );
    }
    let totals = |conn: &mut MysqlConnection| -> QueryResult<Vec<(i64, i64, i32)>> {
        let totals = videos.select((id, views.total(), likes.total()));
        totals.order(id).load(conn)
    };
    let before = on_all_nodes(cluster, totals);
    let done = Done::default();
    let stocked = AtomicI64::new(0);
    let last_set: [AtomicI64; NODES] = Default::default();
    let stop = AtomicBool::new(false);
    let node_works = |node: usize, work: &dyn Fn(&mut MysqlConnection), number: &AtomicU64| {
        let conn = &mut cluster.connect(node);
        while !stop.load(Ordering::Relaxed) {
            work(conn);
            number.fetch_add(1, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        let (done, stocked, last_set, node_works) = (&done, &stocked, &last_set, &node_works);
        let _stop = Stop(&stop); // also when it takes too long
        for (node, last_set) in last_set.iter().enumerate() {
            scope.spawn(move || {
                let count = |conn: &mut MysqlConnection| {
                    let counted = update(videos.filter(id.le(3)))
                        .set(views.eq(views + 1))
                        .shard_choice(ShardChoice::Random)
                        .retry(patient())
                        .execute(conn);
                    assert_eq!(counted, Ok(3));
                };
                node_works(node, &count, &done.counts);
            });
            scope.spawn(move || {
                let fold = |conn: &mut MysqlConnection| {
                    let fold = fold(videos).keep_shards(0).retry(patient());
                    let _ = fold.run(conn).unwrap();
                };
                node_works(node, &fold, &done.folds);
            });
            scope.spawn(move || {
                let set = |conn: &mut MysqlConnection| {
                    let value = 1 + last_set.load(Ordering::Relaxed);
                    let set = set_total(videos.find(own_row(node)), likes, value as i32);
                    assert_eq!(set.retry(patient()).execute(conn), Ok(1));
                    last_set.store(value, Ordering::Relaxed);
                };
                node_works(node, &set, &done.sets);
            });
            scope.spawn(move || {
                let stock = RowCounter::of(likes, STOCK)
                    .never_below(0)
                    .never_above(20)
                    .retry(patient());
                let exchange = |conn: &mut MysqlConnection| {
                    for n in [3, -2, -2] {
                        if stock.add(n, conn).unwrap() {
                            stocked.fetch_add(n, Ordering::Relaxed);
                        }
                    }
                };
                node_works(node, &exchange, &done.exchanges);
            });
        }
        let begun = Instant::now();
        while !done.all() {
            assert!(begun.elapsed() < LONGEST, "{done:?}");
            thread::sleep(Duration::from_millis(100));
        }
    });
    let expected: Vec<_> = before
        .into_iter()
        .map(|(video, seen, liked)| {
            let seen = match video {
                ..=3 => seen + done.counts.load(Ordering::Relaxed) as i64,
                _ => seen,
            };
            let liked = match video {
                STOCK => liked + stocked.load(Ordering::Relaxed) as i32,
                4.. => last_set[video as usize - 4].load(Ordering::Relaxed) as i32,
                _ => liked,
            };
            (video, seen, liked)
        })
        .collect();
    assert_eq!(on_all_nodes(cluster, totals), expected);
    done.conflicts.store(cluster.conflicts(), Ordering::Relaxed);
    done
}
