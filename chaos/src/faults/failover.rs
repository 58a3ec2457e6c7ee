//! A PostgreSQL primary dies or is cut off, its standby takes over, and the old primary becomes the standby. Some clients wait for
//! futures. They look for the primary by an address of both servers.

use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded_tests::replication::{Pair, Replication};

use super::Fault;
use crate::backend::Backend;
use crate::place::Place;
use crate::report::Line;
use crate::round::{Crew, Played, Playing, Process, play};
use crate::workload::{Kind, everything};

pub const FAULT: Fault = Fault {
    name: "failover",
    about: "the primary is killed or cut off and its synchronous standby promoted; nothing acknowledged is lost, nothing is doubled",
    backends: &[Backend::Postgres],
    rounds: (32, 1),
    run,
};

const DATABASE: &str = "chaos";

/// The events that happen to the servers.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Blow {
    /// The primary is killed.
    Killed,
    /// The primary can no longer reach the standby. The standby is promoted while the primary still runs, and then the primary is killed.
    CutOff,
    /// The standby is stopped for a while, and then resumes.
    StandbyStopped,
    /// The link is silent for a while, and then delivers everything.
    LinkSilent,
}

/// How long a server or a link that comes back is away.
const AWAY: Duration = Duration::from_millis(1500);

/// How long a primary goes on alone before it is killed.
const ALONE: Duration = Duration::from_millis(500);

fn run(line: &mut Line) {
    let mut pair = Pair::start().unwrap_or_else(|missing| panic!("{missing}"));
    create_database(&pair);
    let mut place = Place::at(line.backend, pair.url(DATABASE));
    let crew = crew();
    let operations = line.choose(100, 20);
    while line.goes_on() {
        let round = line.rounds as usize;
        let blow = Blow::value_variants()[round % 4];
        let replication = [Replication::On, Replication::RemoteApply][round / 4 % 2];
        pair.replicate(replication);
        let played = play(&mut place, &crew, line, |_, playing| {
            playing.wait_for(operations);
            thread::sleep(Duration::from_micros(rand::random_range(0..20_000)));
            strike(&mut pair, blow, playing, operations);
            pair.replicate(replication);
            playing.wait_for(operations);
        });
        judge_coalesced(&played, line);
    }
}

fn create_database(pair: &Pair) {
    let url = pair.primary_url("postgres");
    let mut conn = PgConnection::establish(&url).expect("the primary answers");
    conn.batch_execute(&format!("CREATE DATABASE {DATABASE}"))
        .expect("a database");
}

/// All operations in two processes of three clients, one of which waits for futures.
fn crew() -> Crew {
    let mut mix = everything();
    mix.push((Kind::CountBounded, 8));
    let process = Process::new(3, mix);
    let awaited = Process {
        awaited: true,
        ..process.clone()
    };
    Crew::of(vec![process, awaited])
}

/// Strikes while clients count, and returns when the pair is complete again.
fn strike(pair: &mut Pair, blow: Blow, playing: &mut Playing, operations: usize) {
    match blow {
        Blow::Killed => {
            pair.kill_the_primary();
            pair.promote();
        }
        Blow::CutOff => {
            pair.cut_the_link();
            thread::sleep(ALONE); // its commits wait
            pair.promote();
            thread::sleep(ALONE / 2); // there are two primaries
            pair.kill_the_other();
            pair.join_the_links();
        }
        Blow::StandbyStopped => {
            pair.pause_the_standby();
            thread::sleep(AWAY);
            pair.resume_the_standby();
            return;
        }
        Blow::LinkSilent => {
            pair.cut_the_link();
            thread::sleep(AWAY);
            pair.join_the_links();
            return;
        }
    }
    playing.wait_for(operations); // on the new primary alone
    pair.rejoin();
}

/// The coalescer finds its batch on the new primary by the batch's idempotency key, so its flushes end well.
fn judge_coalesced(played: &Played, line: &mut Line) {
    for done in &played.history.operations {
        if done.operation.is_coalesced() && !done.is_ok() {
            let (round, at, outcome) = (line.rounds, done.at(), &done.outcome);
            line.find(format!("round {round}: {at} was not resolved: {outcome:?}"));
        }
    }
}
