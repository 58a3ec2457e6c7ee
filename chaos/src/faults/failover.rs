//! A PostgreSQL primary dies or is cut off, its standby takes over, and the old primary becomes the standby. Some clients wait for
//! futures. They look for the primary by an address of both servers, or reach it through HAProxy.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use diesel_sharded_tests::haproxy::Haproxy;
use diesel_sharded_tests::replication::{Pair, Replication};

use super::Fault;
use crate::backend::Backend;
use crate::checker::{Finding, Rule};
use crate::history::{Moment, now};
use crate::place::Place;
use crate::report::Line;
use crate::round::{Crew, Played, Playing, Process, judged, play};
use crate::workload::{Kind, Mix, everything};

pub const FAULT: Fault = Fault {
    name: "failover",
    about: "the primary is killed or cut off and its synchronous standby promoted; nothing acknowledged is lost, nothing is doubled",
    backends: &[Backend::Postgres],
    rounds: (48, 1),
    run,
};

const DATABASE: &str = "chaos";

/// The events that happen to the servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Blow {
    /// The primary is killed.
    Killed,
    /// The primary does not reach the standby any more. The standby is promoted while the primary still runs, and then the primary is killed.
    CutOff,
    /// The standby is stopped for a while, and goes on.
    StandbyStopped,
    /// The link is silent for a while, and then delivers everything.
    LinkSilent,
}

/// How long a server or a link is away that comes back.
const AWAY: Duration = Duration::from_millis(1500);

/// How long a primary goes on alone before it is killed.
const ALONE: Duration = Duration::from_millis(500);

fn run(line: &mut Line) {
    let mut pair = Pair::start().unwrap_or_else(|missing| panic!("{missing}"));
    create_database(&pair);
    let mut place = Place::at(line.backend, pair.url(DATABASE));
    let by_proxy = (!line.extent.short).then(|| {
        let proxy = Haproxy::before(&pair).unwrap_or_else(|missing| panic!("{missing}"));
        proxy.url_of_primary(DATABASE)
    });
    let crew = crew();
    let operations = line.choose(100, 20);
    let mut pauses = Pauses::default();
    while line.goes_on() {
        let round = line.rounds as usize;
        let blow = Blow::value_variants()[round % 4];
        let replication = [Replication::On, Replication::RemoteApply][round / 4 % 2];
        place.url = match &by_proxy {
            Some(url) if round / 8 % 2 == 1 => url.clone(),
            _ => pair.url(DATABASE),
        };
        pair.replicate(replication);
        let mut struck = 0;
        let played = play(&mut place, &crew, line, |_, playing| {
            playing.wait_for(operations);
            thread::sleep(Duration::from_micros(rand::random_range(0..20_000)));
            struck = now();
            strike(&mut pair, blow, playing, operations);
            pair.replicate(replication);
            playing.wait_for(operations);
        });
        pauses.measure(blow, struck, &played);
        judge_coalesced(&played, line);
    }
    line.remark(pauses.describe());
    if !line.extent.short {
        place.url = pair.url(DATABASE);
        lose(&mut pair, &mut place, line);
    }
}

fn create_database(pair: &Pair) {
    let url = pair.primary_url("postgres");
    let mut conn = PgConnection::establish(&url).expect("the primary answers");
    conn.batch_execute(&format!("CREATE DATABASE {DATABASE}"))
        .expect("a database");
}

/// All operations.
fn crew() -> Crew {
    let mut mix = everything();
    mix.push((Kind::CountBounded, 8));
    one_awaited(mix)
}

/// Two processes of three clients, one of which waits for futures.
fn one_awaited(mix: Mix) -> Crew {
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

/// The times without an acknowledged count, in milliseconds.
#[derive(Debug, Default)]
struct Pauses(BTreeMap<Blow, Vec<u64>>);

impl Pauses {
    /// Adds the longest time without an acknowledged count since the blow.
    fn measure(&mut self, blow: Blow, struck: Moment, played: &Played) {
        let counts = played.history.operations.iter();
        let mut ends: Vec<_> = counts
            .filter(|done| done.is_ok() && !done.operation.is_read() && done.span.ended >= struck)
            .map(|done| done.span.ended)
            .collect();
        ends.push(struck);
        ends.sort_unstable();
        let longest = ends.windows(2).map(|pair| pair[1] - pair[0]).max();
        let pauses = self.0.entry(blow).or_default();
        pauses.push(longest.unwrap_or_default() / 1_000_000);
    }

    fn describe(&self) -> String {
        let each = self.0.iter().map(|(blow, pauses)| {
            let (median, longest) = median_and_largest(pauses);
            format!("{blow:?} {median} ms ({longest} ms)")
        });
        let each = each.collect::<Vec<_>>().join(", ");
        format!("longest time without an acknowledged count, median and largest: {each}")
    }
}

fn median_and_largest(numbers: &[u64]) -> (u64, u64) {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    let largest = sorted.last().copied().unwrap_or_default();
    let median = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
    (median, largest)
}

/// The rounds of each measurement of asynchronous replication.
const ASYNCHRONOUS: u32 = 7;

/// Measures how many acknowledged transactions a failover loses if commits do not wait for the standby. A transaction is lost as a whole,
/// and nothing else is wrong.
fn lose(pair: &mut Pair, place: &mut Place, line: &mut Line) {
    let crew = one_awaited(vec![(Kind::Transaction, 1)]);
    for silent in [Duration::ZERO, ALONE] {
        let (mut lost, mut acknowledged) = (vec![], vec![]);
        for _ in 0..ASYNCHRONOUS {
            pair.replicate(Replication::Asynchronous);
            let played = judged(place, &crew, line, |_, playing| {
                playing.wait_for(300);
                if !silent.is_zero() {
                    pair.cut_the_link();
                    thread::sleep(silent);
                }
                pair.kill_the_primary();
                pair.promote();
                pair.join_the_links();
                playing.wait_for(20);
                pair.rejoin();
            });
            line.rounds += 1;
            acknowledged.push(played.judgement.ok as u64);
            let findings = &played.judgement.findings;
            let is_loss = |finding: &&Finding| finding.rule == Rule::NothingLost;
            lost.push(findings.iter().filter(is_loss).count() as u64);
            for finding in findings.iter().filter(|finding| !is_loss(finding)) {
                line.find(format!("asynchronous replication: {finding}"));
            }
        }
        let (median, largest) = median_and_largest(&lost);
        let (of, _) = median_and_largest(&acknowledged);
        line.remark(format!(
            "asynchronous replication, link silent for {silent:.1?} before the kill: {median} (at most {largest}) of {of} \
             acknowledged transactions were lost, medians of {ASYNCHRONOUS} rounds"
        ));
    }
}
