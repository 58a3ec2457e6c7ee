//! Transactions of several statements, beside writers on all nodes.

use std::thread;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::prelude::*;
use diesel_sharded::retry;
use diesel_sharded::shard_choice::Stripe;
use diesel_sharded::{Error, RowCounter};
use diesel_sharded_tests::cluster::{Cluster, NODES};
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::{assert_matches, number, pool};

use super::thousands::folds_sets_and_exchanges;
use super::writers::each_operation_on_all_nodes;
use super::{on_all_nodes, patient, prepare, tokens};

/// Operations of several statements, beside writers on all nodes: a transaction that another node ends between two statements
/// is retried as a whole, also where the server does not report that.
pub fn transactions_of_several_statements_beside_writers(cluster: &impl Cluster) {
    let conn = &mut prepare(cluster);
    // Transactions that hold rows are guarded in every process.
    folds_sets_and_exchanges(cluster, conn, 40);
    let stripe = Stripe::global();
    Stripe::new(1, NODES as u16).unwrap().set_global();
    // All others are guarded in the processes that have a stripe.
    each_operation_on_all_nodes(cluster, conn);
    coalescers_on_all_nodes(cluster);
    what_follows_a_lost_transaction_is_not_committed(conn);
    stripe.set_global();
    assert!(cluster.conflicts() > 0);
}

fn coalescers_on_all_nodes(cluster: &impl Cluster) {
    const ROUNDS: i64 = 40;
    let read = |conn: &mut MysqlConnection| {
        let totals = videos.filter(id.le(3)).select(views.total());
        totals.order(id).load(conn)
    };
    let before: Vec<i64> = on_all_nodes(cluster, read);
    thread::scope(|scope| {
        for node in 0..NODES {
            scope.spawn(move || {
                let coalescer = Coalescer::builder(pool::<MysqlConnection>(&cluster.url(node)));
                let coalescer = coalescer.retry(patient()).build().unwrap();
                for round in 0..ROUNDS {
                    for video in 1..=3 {
                        let views_of_video = RowCounter::of(views, video);
                        coalescer.add_later(&views_of_video, 1).unwrap();
                    }
                    if round % 4 == 0 {
                        coalescer.flush().unwrap();
                    }
                }
                coalescer.close().unwrap();
            });
        }
    });
    let expected = before.iter().map(|total| total + ROUNDS * NODES as i64);
    let expected: Vec<_> = expected.collect();
    assert_eq!(on_all_nodes(cluster, read), expected);
}

/// In a process that has a stripe.
fn what_follows_a_lost_transaction_is_not_committed(conn: &mut MysqlConnection) {
    let lost: QueryResult<()> = retry::transaction(conn, patient(), |conn| {
        conn.batch_execute("ROLLBACK")?; // as the server does, and the driver would not notice
        diesel::insert_into(tokens::table)
            .values(tokens::id.eq(1))
            .execute(conn)
            .map(drop)
    });
    let error = Error::from(lost.unwrap_err());
    assert_matches!(error, Error::TransactionAborted);
    assert_eq!(tokens::table.count().get_result(conn), Ok(0_i64));
    assert_eq!(number!("@@autocommit", conn), 1);
}
