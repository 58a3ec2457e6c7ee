//! The operations of counting, each done by children at once.

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel::r2d2::{ConnectionManager, Pool};
use diesel_sharded::coalescer::Coalescer;
use diesel_sharded::prelude::*;
use diesel_sharded::{Counter, RowCounter};
use diesel_sharded_tests::schema::videos::dsl::*;

use super::all::{self, Before, arrange, is_once, together};
use super::{Conn, SETTINGS};
use crate::{CHILDREN, KEYS, in_children};

pub const COUNTER: &str = "a";

pub fn connect(url: &str) -> Conn {
    let mut conn = Conn::establish(url).expect("a connection");
    conn.batch_execute(SETTINGS).expect("settings");
    conn
}

pub fn pool(url: &str) -> Pool<ConnectionManager<Conn>> {
    diesel_sharded_tests::pool_with(url, &[SETTINGS])
}

/// The sum of all views, and a named counter.
pub fn total(url: &str) -> i64 {
    let conn = &mut connect(url);
    let totals: Vec<i64> = videos.select(views.total()).load(conn).expect("totals");
    totals.iter().sum::<i64>() + Counter::named(COUNTER).get(conn).expect("a total")
}

/// Each operation: once by the parent, then by children, each of whom does it on all videos.
pub fn count(url: &str) {
    let first_of = (1_000..).step_by(KEYS as usize + 1);
    for (first, (name, before, work)) in first_of.zip(together()) {
        let videos_of = first..first + KEYS;
        let mut conn = connect(url);
        for video in first..=first + KEYS {
            arrange(name, before, video, &mut conn);
        }
        let one = work(&mut conn, first + KEYS).expect(name);
        drop(conn); // a connection is never open in a fork
        let sum = || -> i64 {
            let conn = &mut connect(url);
            videos_of
                .clone()
                .map(|video| all::totals(video, conn))
                .sum()
        };
        let before = sum();
        let well = in_children(|wait| {
            let conn = &mut connect(url);
            wait();
            for video in videos_of.clone() {
                assert_eq!(work(conn, video), Ok(one), "{name}");
            }
        });
        let due = match is_once(name) {
            true => KEYS * one,
            false => KEYS * CHILDREN * one,
        };
        println!("{name}\t{well}, {}\t{CHILDREN}, {due}", sum() - before);
    }
    coalesce(url);
}

/// Each child has a coalescer of its own.
fn coalesce(url: &str) {
    let mut conn = connect(url);
    let of_coalescers = 500..500 + KEYS;
    for video in of_coalescers.clone() {
        arrange("coalescer", Before::Parent, video, &mut conn);
    }
    drop(conn);
    let before = total(url);
    let well = in_children(|wait| {
        let coalescer = Coalescer::new(pool(url)).expect("a coalescer");
        wait();
        for video in of_coalescers.clone() {
            let added = coalescer.add_later(&RowCounter::of(views, video), 1);
            added.expect("room");
        }
        coalescer.close().expect("a last flush");
    });
    let due = KEYS * CHILDREN;
    println!("coalescer\t{well}, {}\t{CHILDREN}, {due}", total(url) - before);
}
