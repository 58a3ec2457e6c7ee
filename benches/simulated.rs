//! Counts on one hot row, simulated: how throughput and wait follow from writers, shards and processes on servers that nobody here has.
//!
//! A count takes a core for its first half, then the lock of its shard, a core for a quarter, the next flush, and a core for the last
//! quarter. A flush takes all counts along that are ready when it begins, and the next one begins when the count that began this one has
//! ended. Waiting counts take cores and locks in the order in which they came. [`Server`] has the times of these steps, from the
//! [published measurements](crate::report); [`check`] compares other measurements with the simulation.
//!
//! Nothing else is simulated: no network, no checkpoints, no bloat, no cost of switching between threads.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::names::*;
use crate::report::{Cell, Missing, Report};

/// How a count chooses its shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// There is one row, as without shards.
    OneRow,
    /// Any shard.
    Random,
    /// Each writer has its own. Those of a process are neighbours, and begin anywhere.
    Striped,
    /// The lowest rank of a hot row that is free in the process. The ranks of a process are neighbours, and begin anywhere.
    Adaptive,
    /// Each process has a coalescer, with a shard of its own.
    Coalesced,
}

/// Writers that count on one hot row, each as soon as its last count is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    pub processes: usize,
    /// The writers of each process.
    pub writers: usize,
    /// The most shards of the row.
    pub shards: usize,
    pub choice: Choice,
}

impl Load {
    pub const fn new(processes: usize, writers: usize, shards: usize, choice: Choice) -> Self {
        Load {
            processes,
            writers,
            shards,
            choice,
        }
    }

    /// All writers.
    pub fn all_writers(&self) -> usize {
        self.processes * self.writers
    }
}

/// A database server, together with the cores of its clients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Server {
    pub cores: usize,
    /// The time on a core that a count takes, in its client and in the server.
    pub count: u64,
    /// The time for which the log waits for further counts before it flushes: PostgreSQL's `commit_delay`.
    pub delay: u64,
    /// The time of one flush of the log.
    pub flush: u64,
    /// The time from the release of a lock until a count that waits for it goes on.
    pub handover: u64,
    /// Whether a count holds its lock until its flush is done. PostgreSQL does; InnoDB releases it before.
    pub holds_while_flushing: bool,
    /// The time on a core that a coalescer's batch takes, however many counts it carries.
    pub batch: u64,
    /// The time on a core that each count of a batch takes, in its caller and in the worker.
    pub addition: u64,
}

/// The writers of the measurements that the times are taken from.
const WRITERS: usize = 64;

/// `commit_delay` of the slower disk.
const COMMIT_DELAY: f64 = 1e6;

impl Server {
    /// The server that was measured, on this disk:
    ///
    /// | time | from the report's section `disks`, one hot row |
    /// |---|---|
    /// | count | the rate of 64 threads that count: the cores are busy |
    /// | flush | the rate of one thread that counts |
    /// | delay | the setting of the slower disk |
    /// | handover | the rate of 64 threads on one row, by a prepared statement |
    /// | batch | the rate of one thread that counts through a coalescer |
    /// | addition | the rate of 10,000 tasks that do (section `tasks`) |
    pub fn measured(report: &Report, database: &str, disk: &str) -> Result<Self, Missing> {
        let part = report.part(DISKS, database)?;
        let nanoseconds = |threads, entrant| -> Result<f64, Missing> {
            Ok(1e9 / part.cell(disk, threads, entrant)?.per_second)
        };
        let cores = part.machine.cores;
        let count = nanoseconds(WRITERS, DEFAULT)? * cores as f64;
        let delay = if disk == SLOW_DISK { COMMIT_DELAY } else { 0.0 };
        let flush = (nanoseconds(1, DEFAULT)? - delay - count).max(0.0);
        let batch = (nanoseconds(1, COALESCED)? - delay - flush).max(count);
        let tasks = report.part(TASKS, database)?;
        let of_tasks = tasks.cell(LOCAL_DISK, tasks.most_threads(), COALESCED)?;
        let addition = 1e9 / of_tasks.per_second * cores as f64;
        let mut server = Server {
            cores,
            count: count as u64,
            delay: delay as u64,
            flush: flush as u64,
            handover: 0,
            holds_while_flushing: database == POSTGRESQL,
            batch: batch as u64,
            addition: addition as u64,
        };
        server.handover = (nanoseconds(WRITERS, PREPARED)? as u64).saturating_sub(server.held());
        Ok(server)
    }

    /// A quarter of a count's time on a core.
    fn quarter(&self) -> u64 {
        self.count / 4
    }

    /// The time for which a count holds its lock if nothing else is waited for.
    fn held(&self) -> u64 {
        match self.holds_while_flushing {
            true => 2 * self.quarter() + self.delay + self.flush,
            false => self.quarter(),
        }
    }
}

/// A measurement, and its simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    pub load: Load,
    pub measured: f64,
    pub simulated: f64,
}

impl Checked {
    /// By how much the simulation is off, as a part of the measurement; above 0 if it is too fast.
    pub fn error(&self) -> f64 {
        self.simulated / self.measured - 1.0
    }
}

const SHARDS: usize = 128;
const COUNTS: usize = 4_000;
const PLACES: [(&str, &str); 3] = [
    (POSTGRESQL, LOCAL_DISK),
    (POSTGRESQL, SLOW_DISK),
    (MARIADB, LOCAL_DISK),
];
const ENTRANTS: [(&str, Choice); 5] = [
    (PREPARED, Choice::OneRow),
    (RANDOM, Choice::Random),
    (STRIPED, Choice::Striped),
    (DEFAULT, Choice::Adaptive),
    (COALESCED, Choice::Coalesced),
];

/// The sections, and the processes that count in them.
const SECTIONS: [(&str, usize); 2] = [(DISKS, 1), (PROCESSES, 8)];

/// The times of the server are those of these cells.
fn is_source(cell: &Cell, choice: Choice) -> bool {
    matches!(
        (cell.threads, choice),
        (1, Choice::Adaptive | Choice::Coalesced) | (64, Choice::Adaptive | Choice::OneRow)
    )
}

/// Simulates each measurement of one hot row that waits for a disk.
pub fn check(report: &Report) -> Result<Vec<Checked>, Missing> {
    let mut all = vec![];
    for (database, disk) in PLACES {
        let server = Server::measured(report, database, disk)?;
        for (section, processes) in SECTIONS {
            let cells = &report.part(section, database)?.cells;
            for cell in cells.iter().filter(|cell| cell.disk == disk) {
                let entrant = ENTRANTS.iter().find(|(name, _)| *name == cell.entrant);
                let Some((_, choice)) = entrant else {
                    continue;
                };
                if section == DISKS && is_source(cell, *choice) {
                    continue;
                }
                let load = Load::new(processes, cell.threads / processes, SHARDS, *choice);
                all.push(Checked {
                    load,
                    measured: cell.per_second,
                    simulated: simulate(&server, &load, COUNTS).per_second,
                });
            }
        }
    }
    Ok(all)
}

/// The resource that counts wait for the longest: the cores are busy, or the locks of shards or the flushes of the log are waited for.
pub const CORES: &str = "cores";
pub const LOCKS: &str = "row locks";
pub const FLUSHES: &str = "flushes";

/// The counts that ended after the warm-up.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    pub per_second: f64,
    /// The time of all but one of a hundred counts, in microseconds.
    pub p99_us: f64,
    pub bottleneck: &'static str,
}

/// Sums that grow while a simulation runs.
#[derive(Debug, Clone, Default)]
struct Tally {
    /// The time of each count, in nanoseconds.
    times: Vec<u64>,
    cores: u64,
    locks: u64,
    flushes: u64,
}

/// The part of the cores' time from which on they are the bottleneck.
const BUSY: f64 = 0.9;

impl Tally {
    /// The results of so many nanoseconds.
    fn outcome(mut self, elapsed: u64, cores: usize) -> Outcome {
        self.times.sort_unstable();
        let counts = self.times.len();
        let p99 = (counts * 99 / 100).min(counts.saturating_sub(1));
        let cores_busy = self.cores as f64 / (elapsed as f64 * cores as f64);
        Outcome {
            per_second: counts as f64 / (elapsed as f64 / 1e9),
            p99_us: self.times.get(p99).map_or(0.0, |ns| *ns as f64 / 1e3),
            bottleneck: match () {
                () if cores_busy >= BUSY => CORES,
                () if self.locks > self.flushes => LOCKS,
                () => FLUSHES,
            },
        }
    }
}

/// The steps of a count that take a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// Up to the lock.
    Prepare,
    /// From the lock to the flush.
    Write,
    /// From the flush to the answer.
    Finish,
    /// The whole work of a writer that has a coalescer.
    Add,
}

/// Who sends statements: a writer, or the worker of a coalescer.
#[derive(Debug, Clone, Default)]
struct Actor {
    process: usize,
    /// Its number among the writers of its process.
    number: usize,
    shard: usize,
    /// The rank that it holds in its process.
    rank: Option<usize>,
    /// When a writer's count began.
    began: u64,
    /// The writers whose counts a worker's batch carries.
    carries: Vec<usize>,
    /// When it began to wait for a lock or for a flush.
    since: u64,
}

/// Random numbers that are the same on every machine, so that the published figures are: SplitMix64.
#[derive(Debug, Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A time between half and one and a half of the mean.
    fn around(&mut self, mean: u64) -> u64 {
        mean / 2 + self.next() % (mean + 1)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ran(usize, Step),
    HandedOver(usize),
    Gathered,
    Flushed,
}

/// A row that one count at a time may lock.
#[derive(Debug, Clone, Default)]
struct Row {
    is_locked: bool,
    waiting: VecDeque<usize>,
}

/// The log. One flush at a time takes along all that wait.
#[derive(Debug, Default)]
struct Log {
    waiting: Vec<usize>,
    flushing: Vec<usize>,
    /// Who began the flush, until it has ended its count.
    leader: Option<usize>,
}

/// The counts that no worker has taken yet.
#[derive(Debug, Clone, Default)]
struct Coalescer {
    worker_is_busy: bool,
    waiting: Vec<usize>,
}

struct Engine<'a> {
    server: &'a Server,
    load: &'a Load,
    random: Random,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    /// The number of events so far: of two at the same time the older one comes first.
    sent: u64,
    idle_cores: usize,
    ready: VecDeque<(usize, Step)>,
    rows: Vec<Row>,
    log: Log,
    actors: Vec<Actor>,
    /// Where the shards of each process begin.
    offsets: Vec<usize>,
    /// The ranks that are taken in each process.
    ranks: Vec<Vec<bool>>,
    /// The coalescer of each process, which only [`Choice::Coalesced`] uses.
    coalescers: Vec<Coalescer>,
    tally: Tally,
}

/// Runs until so many counts have ended after a warm-up of a tenth as many.
///
/// # Panics
/// If there is no core, no writer or no shard.
pub fn simulate(server: &Server, load: &Load, counts: usize) -> Outcome {
    assert!(server.cores > 0 && load.all_writers() > 0 && load.shards > 0);
    let mut engine = Engine::new(server, load);
    (0..load.all_writers()).for_each(|writer| engine.begin(writer));
    engine.run(counts / 10);
    let begin = engine.now;
    engine.tally = Tally::default();
    engine.run(counts);
    engine.tally.outcome(engine.now - begin, server.cores)
}

impl<'a> Engine<'a> {
    fn new(server: &'a Server, load: &'a Load) -> Self {
        let mut random = Random(1);
        let offsets = (0..load.processes)
            .map(|_| random.next() as usize % load.shards)
            .collect();
        let actor = |process, number| Actor {
            process,
            number,
            ..Actor::default()
        };
        let writers = (0..load.processes * load.writers)
            .map(|writer| actor(writer / load.writers, writer % load.writers));
        let workers = (0..load.processes).map(|process| actor(process, 0));
        Engine {
            server,
            load,
            random,
            now: 0,
            events: BinaryHeap::new(),
            sent: 0,
            idle_cores: server.cores,
            ready: VecDeque::new(),
            rows: vec![Row::default(); load.shards],
            log: Log::default(),
            actors: writers.chain(workers).collect(),
            offsets,
            ranks: vec![vec![false; load.shards.max(load.writers)]; load.processes],
            coalescers: vec![Coalescer::default(); load.processes],
            tally: Tally::default(),
        }
    }

    fn run(&mut self, counts: usize) {
        while self.tally.times.len() < counts {
            let Some(Reverse((time, _, event))) = self.events.pop() else {
                unreachable!("a writer is always under way")
            };
            self.now = time;
            match event {
                Event::Ran(actor, step) => self.ran(actor, step),
                Event::HandedOver(actor) => self.locked(actor),
                Event::Gathered => self.gathered(),
                Event::Flushed => self.flushed(),
            }
        }
    }

    fn send(&mut self, after: u64, event: Event) {
        self.sent += 1;
        let entry = (self.now + after, self.sent, event);
        self.events.push(Reverse(entry));
    }

    /// Begins the next count of a writer.
    fn begin(&mut self, writer: usize) {
        self.actors[writer].began = self.now;
        if self.load.choice == Choice::Coalesced {
            return self.take_core(writer, Step::Add);
        }
        self.choose(writer);
        self.take_core(writer, Step::Prepare);
    }

    /// Begins the next batch of a process, if its worker is idle and counts wait.
    fn begin_batch(&mut self, process: usize) {
        let coalescer = &mut self.coalescers[process];
        if coalescer.worker_is_busy || coalescer.waiting.is_empty() {
            return;
        }
        coalescer.worker_is_busy = true;
        let worker = self.load.all_writers() + process;
        self.actors[worker].carries = std::mem::take(&mut coalescer.waiting);
        self.choose(worker);
        self.take_core(worker, Step::Prepare);
    }

    fn choose(&mut self, actor: usize) {
        let Actor {
            process, number, ..
        } = self.actors[actor];
        let (load, offset) = (self.load, self.offsets[process]);
        self.actors[actor].shard = match load.choice {
            Choice::OneRow => 0,
            Choice::Random => self.random.next() as usize % load.shards,
            Choice::Striped => (offset + number) % load.shards,
            Choice::Coalesced => process % load.shards,
            Choice::Adaptive => {
                let ranks = &mut self.ranks[process];
                let free = ranks.iter().position(|is_taken| !is_taken);
                let rank = free.expect("as many ranks as writers");
                ranks[rank] = true;
                self.actors[actor].rank = Some(rank);
                // Rank 0 is the same shard in each process, and comes last.
                let others = load.shards - 1;
                match rank % load.shards {
                    rank if rank < others => 1 + (offset + rank) % others,
                    _ => 0,
                }
            }
        };
    }

    fn take_core(&mut self, actor: usize, step: Step) {
        self.ready.push_back((actor, step));
        self.start();
    }

    /// Starts what is ready on the cores that are idle.
    fn start(&mut self) {
        while self.idle_cores > 0 {
            let Some((actor, step)) = self.ready.pop_front() else {
                return;
            };
            self.idle_cores -= 1;
            let time = self.random.around(self.time_of(step));
            self.tally.cores += time;
            self.send(time, Event::Ran(actor, step));
        }
    }

    fn time_of(&self, step: Step) -> u64 {
        let server = self.server;
        let whole = match self.load.choice {
            Choice::Coalesced => server.batch,
            _ => server.count,
        };
        match step {
            Step::Add => server.addition,
            Step::Prepare => whole.saturating_sub(2 * server.quarter()),
            Step::Write | Step::Finish => server.quarter(),
        }
    }

    fn ran(&mut self, actor: usize, step: Step) {
        self.idle_cores += 1;
        match step {
            Step::Add => {
                let process = self.actors[actor].process;
                self.coalescers[process].waiting.push(actor);
                self.begin_batch(process);
            }
            Step::Prepare => self.lock(actor),
            Step::Write => {
                if !self.server.holds_while_flushing {
                    self.release(actor);
                }
                self.actors[actor].since = self.now;
                self.log.waiting.push(actor);
                self.flush();
            }
            Step::Finish => {
                if self.server.holds_while_flushing {
                    self.release(actor);
                }
                if self.log.leader == Some(actor) {
                    self.log.leader = None;
                    self.flush();
                }
                self.end(actor);
            }
        }
        self.start();
    }

    fn lock(&mut self, actor: usize) {
        self.actors[actor].since = self.now;
        let row = &mut self.rows[self.actors[actor].shard];
        if row.is_locked {
            row.waiting.push_back(actor);
        } else {
            row.is_locked = true;
            self.locked(actor);
        }
    }

    fn locked(&mut self, actor: usize) {
        self.tally.locks += self.now - self.actors[actor].since;
        self.take_core(actor, Step::Write);
    }

    fn release(&mut self, actor: usize) {
        let row = &mut self.rows[self.actors[actor].shard];
        match row.waiting.pop_front() {
            Some(next) => {
                let time = self.random.around(self.server.handover);
                self.send(time, Event::HandedOver(next));
            }
            None => row.is_locked = false,
        }
    }

    /// Begins a flush of all that wait, unless one is under way.
    fn flush(&mut self) {
        let log = &mut self.log;
        if log.leader.is_some() || log.waiting.is_empty() {
            return;
        }
        log.leader = log.waiting.first().copied();
        self.send(self.server.delay, Event::Gathered);
    }

    fn gathered(&mut self) {
        self.log.flushing = std::mem::take(&mut self.log.waiting);
        let time = self.random.around(self.server.flush);
        self.send(time, Event::Flushed);
    }

    fn flushed(&mut self) {
        for actor in std::mem::take(&mut self.log.flushing) {
            self.tally.flushes += self.now - self.actors[actor].since;
            self.take_core(actor, Step::Finish);
        }
    }

    /// Ends the count of a writer, or those that a worker's batch carries, and begins the next ones.
    fn end(&mut self, actor: usize) {
        let process = self.actors[actor].process;
        if self.load.choice == Choice::Coalesced {
            for writer in std::mem::take(&mut self.actors[actor].carries) {
                self.count_is_done(writer);
            }
            self.coalescers[process].worker_is_busy = false;
            return self.begin_batch(process);
        }
        if let Some(rank) = self.actors[actor].rank.take() {
            self.ranks[process][rank] = false;
        }
        self.count_is_done(actor);
    }

    fn count_is_done(&mut self, writer: usize) {
        let time = self.now - self.actors[writer].began;
        self.tally.times.push(time);
        self.begin(writer);
    }
}
