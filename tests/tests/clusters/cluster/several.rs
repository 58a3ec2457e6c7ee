//! Transactions of several statements, beside writers on all nodes.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::prelude::*;
use diesel_sharded::retry;
use diesel_sharded::shard_choice::{ShardChoice, Stripe};
use diesel_sharded::{Error, RowCounter, fold, set_total, update};
use diesel_sharded_tests::cluster::{Cluster, NODES};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{Stop, assert_matches, gives, number, pool};

use super::{on_all_nodes, patient, prepare, tokens};

/// Operations of several statements, beside writers on all nodes: a transaction that another node ends between two statements
/// is retried as a whole, also where the server does not report that.
pub fn transactions_of_several_statements_beside_writers(cluster: &impl Cluster) {
    const ROUNDS: i64 = 40;
    const NEW: i64 = ROUNDS * NODES as i64;
    prepare(cluster);
    let stocked = AtomicI64::new(0);
    let folds = AtomicI64::new(0);
    let stop = AtomicBool::new(false);
    let beside_writers = |on_node: &(dyn Fn(usize) + Sync)| {
        stop.store(false, Ordering::Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| {
                let conn = &mut cluster.connect(1);
                while !stop.load(Ordering::Relaxed) {
                    let _ = fold(videos).retry(patient()).run(conn).unwrap();
                    folds.fetch_add(1, Ordering::Relaxed);
                }
            });
            let _stop = Stop(&stop); // also when a writer panics
            thread::scope(|scope| {
                for node in 0..NODES {
                    scope.spawn(move || on_node(node));
                    scope.spawn(move || {
                        let conn = &mut cluster.connect(node);
                        for _ in 0..ROUNDS {
                            for video in 1..=3 {
                                one_view(video, conn);
                            }
                        }
                    });
                }
            });
        });
    };
    // Transactions that hold rows are guarded in every process.
    beside_writers(&|node| {
        let conn = &mut cluster.connect(node);
        let stock = RowCounter::of(likes, 2)
            .never_below(0)
            .never_above(20)
            .retry(patient());
        for round in 0..ROUNDS {
            if node == 0 {
                let set = set_total(videos.find(3), likes, round as i32);
                assert_eq!(set.retry(patient()).execute(conn), Ok(1));
            }
            let restock = stock.add(3, conn).unwrap();
            let sale = (0..3).filter(|_| stock.add(-2, conn).unwrap()).count();
            let change = 3 * i64::from(restock) - 2 * sale as i64;
            stocked.fetch_add(change, Ordering::Relaxed);
        }
    });
    let stocked = stocked.into_inner();
    let stripe = Stripe::global();
    Stripe::new(1, NODES as u16).unwrap().set_global();
    // All others are guarded in the processes that have a stripe.
    beside_writers(&|node| {
        let coalescer = Coalescer::builder(pool::<MysqlConnection>(&cluster.url(node)));
        let coalescer = coalescer.retry(patient()).build().unwrap();
        let conn = &mut cluster.connect(node);
        for round in 0..ROUNDS {
            for video in 1..=3 {
                let view = RowCounter::of(views, video);
                coalescer.add_later(&view, 1).unwrap();
            }
            if round % 4 == 0 {
                coalescer.flush().unwrap();
            }
            let count = update(videos.filter(slug.eq_any(["a", "b", "c"])));
            let count = count.set(views.eq(views + 1)).retry(patient());
            gives!(count.execute(conn), 3);
            let count = update(videos.filter(slug.eq_any(["b", "c"])));
            let count = count.set(views.eq(views + 1)).retry(patient());
            let now: Vec<i64> = count.returning(views).get_results(conn).unwrap();
            assert_eq!(now.len(), 2);
        }
        coalescer.close().unwrap();
    });
    what_follows_a_lost_transaction_is_not_committed(&mut cluster.connect(2));
    stripe.set_global();
    assert!(folds.into_inner() > 0 && cluster.conflicts() > 0);
    let totals: Vec<(i64, i32)> = on_all_nodes(cluster, |conn| {
        let totals = videos.select((views.total(), likes.total()));
        totals.order(id).load(conn)
    });
    let a = (100 + 4 * NEW, 1);
    let b = (200 + 5 * NEW, 2 + stocked as i32);
    assert_eq!(totals, [a, b, (300 + 5 * NEW, ROUNDS as i32 - 1)]);
}

/// In a process that has a stripe.
fn what_follows_a_lost_transaction_is_not_committed(conn: &mut MysqlConnection) {
    let lost: QueryResult<()> = retry::transaction(conn, patient(), |conn| {
        conn.batch_execute("ROLLBACK")?; // as the server does, and the driver would not notice
        let token = diesel::insert_into(tokens::table).values(tokens::id.eq(1));
        token.execute(conn).map(drop)
    });
    let error = Error::from(lost.unwrap_err());
    assert_matches!(error, Error::TransactionAborted);
    assert_eq!(tokens::table.count().get_result(conn), Ok(0_i64));
    assert_eq!(number!("@@autocommit", conn), 1);
}

fn one_view(video: i64, conn: &mut MysqlConnection) {
    let count = update(videos.find(video)).set(views.eq(views + 1));
    let count = count.shard_choice(ShardChoice::Random);
    gives!(count.retry(patient()).execute(conn), 1);
}
