//! A process that counts downloads on one node of a cluster, keeping to its stripe:
//!
//!     cluster_writer URL INDEX OF THREADS COUNTS
//!
//! It says "ready", waits for a line, counts that often in each of its threads, and says how many conflicts it met.

use std::io::stdin;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use diesel::prelude::*;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::shard_choice::Stripe;
use diesel_sharded::update;
use diesel_sharded_tests::schema::Day;
use diesel_sharded_tests::schema::downloads::dsl::{downloads, number};

static CONFLICTS: AtomicU64 = AtomicU64::new(0);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, index, of, threads, counts] = arguments.as_slice() else {
        panic!("cluster_writer URL INDEX OF THREADS COUNTS");
    };
    let [index, of, threads, counts] =
        [index, of, threads, counts].map(|text| text.parse::<u16>().expect("a number"));
    let stripe = Stripe::new(index, of).expect("an index below the number");
    stripe.set_global();
    RetryPolicy::new()
        .with_notify(|_| {
            CONFLICTS.fetch_add(1, Ordering::Relaxed);
        })
        .set_global();
    let begin = Barrier::new(usize::from(threads) + 1);
    thread::scope(|scope| {
        for _ in 0..threads {
            let mut conn = MysqlConnection::establish(url).expect("a connection");
            let begin = &begin;
            scope.spawn(move || {
                begin.wait();
                for _ in 0..counts {
                    let counted = update(downloads.find((1, Day(1))))
                        .set(number.eq(number + 1))
                        .execute(&mut conn);
                    assert_eq!(counted, Ok(1));
                }
            });
        }
        println!("ready");
        stdin().read_line(&mut String::new()).expect("a line");
        begin.wait();
    });
    println!("{}", CONFLICTS.load(Ordering::Relaxed));
}
