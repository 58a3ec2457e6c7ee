//! Leaders who fork while they acquire their connections, and others wait for them: each child counts its own amount, and once more through
//! the same combiner. It counts for nobody of its parent, and waits for none of them.

use std::cell::Cell;
use std::fs;
use std::process::exit;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use diesel::prelude::*;
use diesel_sharded::combine::Combiner;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::update;
use diesel_sharded_tests::schema::videos::dsl::*;
use diesel_sharded_tests::until;

use super::Conn;
use super::operations::{connect, total};
use crate::{CHILDREN, ends_well};

/// The first caller, and one who has waited for it and leads instead.
const LEADERS: usize = 2;

pub fn combine(url: &str) {
    let (before, combiner) = (total(url), Combiner::new());
    // A caller that waits for the leader waits longer than a child may live.
    let patient = RetryPolicy::global().with_deadline(Duration::from_secs(3600));
    let count = |acquire: &dyn Fn() -> Conn| {
        let count = update(videos.find(1)).set(views.eq(views + 1));
        let count = count.retry(patient.clone()).combine(&combiner);
        let counted = count.execute_with(|| QueryResult::Ok(Box::new(acquire())));
        assert_eq!(counted, Ok(1));
    };
    let [lead, wait] = [(); 2].map(|()| Barrier::new(LEADERS + 1));
    let (forked, well) = (Barrier::new(LEADERS), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..LEADERS {
            scope.spawn(|| {
                let is_child = Cell::new(false);
                count(&|| {
                    lead.wait(); // who acquires a connection leads
                    wait.wait();
                    match fork::fork().expect("a child") {
                        fork::Fork::Child => is_child.set(true),
                        fork::Fork::Parent(child) => {
                            well.fetch_add(ends_well(child).into(), Ordering::SeqCst);
                            forked.wait(); // a child of SQLite's may not open what its parent has open
                        }
                    }
                    connect(url)
                });
                if is_child.get() {
                    count(&|| connect(url));
                    exit(0);
                }
            });
        }
        lead.wait();
        for _ in 0..CHILDREN {
            scope.spawn(|| count(&|| connect(url)));
        }
        until("the others wait", || running() == 1);
        wait.wait();
    });
    let (well, rose) = (well.into_inner(), total(url) - before);
    let due = 3 * LEADERS as i64 + CHILDREN;
    println!("forked by leaders\t{well}, {rose}\t{LEADERS}, {due}");
}

/// How many threads of this process run.
fn running() -> usize {
    let threads = fs::read_dir("/proc/self/task").expect("Linux");
    let state = |thread: fs::DirEntry| fs::read_to_string(thread.path().join("stat"));
    let states = threads.filter_map(|thread| state(thread.ok()?).ok());
    states.filter(|state| state.contains(") R ")).count()
}
