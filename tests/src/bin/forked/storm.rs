//! Forks beside threads that count: a lock that one of these holds is held forever in the child, which must not wait for it.
//!
//! No thread connects meanwhile. libpq takes a lock of the Kerberos library's then, and the child would wait for it where it connects itself.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;

use diesel::prelude::*;
use diesel_sharded::combine::Combiner;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::{Counter, update};
use diesel_sharded_tests::schema::videos::dsl::*;

use super::Conn;
use super::operations::{COUNTER, connect, total};
use crate::{CHILDREN, ends_well, in_child};

const FORKS: usize = 100;

/// Each counts alone, or all through a combiner that admits their connections.
pub fn storm(url: &str, name: &str, combiner: Option<Combiner>) {
    let connect = || {
        let mut conn = connect(url);
        if let Some(combiner) = &combiner {
            assert_eq!(combiner.admit(&mut conn), Ok(true));
        }
        conn
    };
    let count = |conn: &mut Conn| {
        RetryPolicy::global().set_global();
        let counted = update(videos.find(1))
            .set(views.eq(views + 1))
            .execute(conn);
        assert_eq!(counted, Ok(1));
        Counter::named(COUNTER).add(1, conn).expect("a count");
    };
    let (before, counts, ended) = (total(url), AtomicI64::new(0), AtomicBool::new(false));
    let connected = Barrier::new(CHILDREN as usize + 1);
    let well = thread::scope(|scope| {
        for _ in 0..CHILDREN {
            scope.spawn(|| {
                let mut conn = connect();
                connected.wait();
                while !ended.load(Ordering::Relaxed) {
                    count(&mut conn);
                    counts.fetch_add(2, Ordering::Relaxed);
                }
            });
        }
        connected.wait();
        let forks = (0..FORKS).map(|_| in_child(|| count(&mut connect())));
        let well = forks.filter(|child| ends_well(*child)).count();
        ended.store(true, Ordering::Relaxed);
        well
    });
    let missing = counts.load(Ordering::Relaxed) + 2 * FORKS as i64 - (total(url) - before);
    println!("{name}\t{well}, {missing}\t{FORKS}, 0");
}
