//! A fork while one thread leads and others wait to be counted by it: the child counts through the same combiner, and waits for none of them.

use std::fs;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use diesel::prelude::*;
use diesel_sharded::backend::{Dialect, ShardedBackend};
use diesel_sharded::combine::Combiner;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::update;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::until;

use super::Conn;
use super::operations::{connect, total};
use crate::{CHILDREN, ends_well, in_child};

pub fn combine(url: &str) {
    let (before, combiner) = (total(url), Combiner::new());
    // Whoever waits for the leader waits for longer than a child may live.
    let patient = RetryPolicy::global().with_deadline(Duration::from_secs(3600));
    let count = |acquire: &dyn Fn() -> Conn| {
        let count = update(videos.find(1)).set(views.eq(views + 1));
        let count = count.retry(patient.clone()).combine(&combiner);
        let counted = count.execute_with(|| QueryResult::Ok(Box::new(acquire())));
        assert_eq!(counted, Ok(1));
    };
    let leaders: i64 = match <Conn as Connection>::Backend::default().dialect() {
        Dialect::Sqlite => 1,
        _ => 2,
    };
    let (leads, forked) = {
        let all = leaders as usize + 1;
        (Barrier::new(all), Barrier::new(all))
    };
    let well = thread::scope(|scope| {
        for _ in 0..leaders {
            scope.spawn(|| {
                count(&|| {
                    leads.wait(); // who acquires a connection leads
                    forked.wait(); // and connects afterwards, since a child of SQLite's may not open what its parent has open
                    connect(url)
                });
            });
        }
        leads.wait();
        for _ in 0..CHILDREN {
            scope.spawn(|| count(&|| connect(url)));
        }
        until("the others wait", || running() == 1);
        let child = in_child(|| count(&|| connect(url)));
        let well = usize::from(ends_well(child));
        forked.wait();
        well
    });
    let rose = total(url) - before;
    println!(
        "forked beside a leader\t{well}, {rose}\t1, {}",
        leaders + CHILDREN + 1
    );
}

/// How many threads of this process run.
fn running() -> usize {
    let threads = fs::read_dir("/proc/self/task").expect("Linux");
    let state = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("stat"));
    let states = threads.filter_map(|thread| state(thread.ok()?).ok());
    states.filter(|state| state.contains(") R ")).count()
}
