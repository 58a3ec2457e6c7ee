//! The answers that writers got while a fault happened, compared with what the nodes hold afterwards.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_sharded::prelude::*;
use diesel_sharded::retry::{self, RetryPolicy};
use diesel_sharded::{Error, update};
use diesel_sharded_tests::Stop;
use diesel_sharded_tests::cluster::{Cluster, NODES};
use diesel_sharded_tests::schema::videos::dsl::*;

use super::{PATIENCE, on_all_nodes, prepare, tokens};

/// The answer that a writer got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    Counted,
    Refused,
    Unknown,
}

impl Told {
    fn of(result: Result<(), Error>) -> Self {
        match result {
            Ok(()) => Told::Counted,
            Err(Error::OutcomeUnknown { .. }) => Told::Unknown,
            Err(_) => Told::Refused,
        }
    }
}

/// The answers that the writer on one node got.
#[derive(Debug, Default)]
pub struct Ledger {
    counts: Mutex<Vec<Told>>,
    tokens: Mutex<Vec<(i64, Told)>>,
    pub errors: Mutex<Vec<String>>,
}

impl Ledger {
    fn counted(&self) -> usize {
        let counts = self.counts.lock().unwrap();
        counts.iter().filter(|told| **told == Told::Counted).count()
    }

    fn wait_for_more(&self, more: usize) {
        let (before, begun) = (self.counted(), Instant::now());
        while self.counted() < before + more {
            assert!(begun.elapsed() < PATIENCE, "{:?}", self.errors);
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Counts on the node's own row by itself, and on the first one in transactions with a token, until it is time to stop.
    fn write(&self, cluster: &impl Cluster, node: usize, stop: &AtomicBool) {
        static TOKEN: AtomicI64 = AtomicI64::new(1);
        let connect = || MysqlConnection::establish(&cluster.url(node));
        let mut conn = None;
        while !stop.load(Ordering::Relaxed) {
            let Some(connected) = &mut conn else {
                conn = connect().ok(); // the node may be gone
                thread::sleep(Duration::from_millis(20));
                continue;
            };
            let count = update(videos.find(node as i64 + 1)).set(views.eq(views + 1));
            let counted = count.execute(connected);
            let ok = self.note(counted, |told| self.counts.lock().unwrap().push(told));
            let token = TOKEN.fetch_add(1, Ordering::Relaxed);
            let counted: QueryResult<usize> =
                retry::transaction(connected, RetryPolicy::new(), |conn| {
                    let add = diesel::insert_into(tokens::table).values(tokens::id.eq(token));
                    add.execute(conn)?;
                    let count = update(videos.find(1)).set(likes.eq(likes + 1));
                    count.execute(conn)
                });
            let tokens = |told| self.tokens.lock().unwrap().push((token, told));
            if !(self.note(counted, tokens) && ok) {
                conn = None;
            }
        }
    }

    fn note(&self, counted: QueryResult<usize>, told: impl FnOnce(Told)) -> bool {
        let result = counted.map_err(Error::from);
        if let Err(error) = &result {
            self.errors.lock().unwrap().push(format!("{error:?}"));
        }
        let ok = result.is_ok();
        told(Told::of(result.map(|rows| assert_eq!(rows, 1))));
        ok
    }
}

/// Compares the answers with what the nodes hold: each acknowledged increment is there once, no refused one is, and the nodes hold the same.
fn check(cluster: &impl Cluster, ledgers: &[Ledger]) {
    let (totals, first_likes, there) = on_all_nodes(cluster, |conn| {
        let totals: Vec<i64> = videos.select(views.total()).order(id).load(conn)?;
        let first_likes: i32 = videos.find(1).select(likes.total()).first(conn)?;
        let there = tokens::table.select(tokens::id).order(tokens::id);
        Ok((totals, first_likes, there.load::<i64>(conn)?))
    });
    assert_eq!(first_likes as usize, 1 + there.len());
    for (node, ledger) in ledgers.iter().enumerate() {
        let counts = ledger.counts.lock().unwrap();
        let number = |told| counts.iter().filter(|other| **other == told).count() as i64;
        let (acknowledged, unknown) = (number(Told::Counted), number(Told::Unknown));
        let counted = totals[node] - 100 * (node as i64 + 1);
        let errors = ledger.errors.lock().unwrap();
        assert!(
            (acknowledged..=acknowledged + unknown).contains(&counted),
            "{node}: {counted}, {acknowledged} and {unknown} unknown: {errors:?}"
        );
        for (token, told) in ledger.tokens.lock().unwrap().iter() {
            let is_there = there.binary_search(token).is_ok();
            let wrong = if is_there {
                Told::Refused
            } else {
                Told::Counted
            };
            assert!(
                *told != wrong,
                "{node}: token {token}, {told:?}: {errors:?}"
            );
        }
    }
}

/// Lets a writer count on each node while `fault` happens, and checks the answers that they got.
pub fn while_counting(
    cluster: &impl Cluster,
    fault: impl FnOnce(&[Ledger; NODES]),
) -> [Ledger; NODES] {
    prepare(cluster);
    let ledgers: [Ledger; NODES] = Default::default();
    let stop = &AtomicBool::new(false);
    thread::scope(|scope| {
        for (node, ledger) in ledgers.iter().enumerate() {
            scope.spawn(move || ledger.write(cluster, node, stop));
        }
        let _stop = Stop(stop); // also when the fault panics
        wait_for_all(&ledgers);
        fault(&ledgers);
        wait_for_all(&ledgers);
    });
    check(cluster, &ledgers);
    ledgers
}

pub fn wait_for_all(ledgers: &[Ledger]) {
    for ledger in ledgers {
        ledger.wait_for_more(20);
    }
}
