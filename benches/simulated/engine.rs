//! The events, in the order of their times.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::actor::{Actor, Step};
use super::choice::{Choice, Load};
use super::outcome::{Outcome, Tally};
use super::random::Random;
use super::server::{Server, quarter};

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
    worker_is_idle: bool,
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
    /// The coalescer of each process, if they have one.
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
    engine.begin_all();
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
        let writers = (0..load.processes)
            .flat_map(|process| (0..load.writers).map(move |number| Actor::new(process, number)));
        let mut actors: Vec<_> = writers.collect();
        let mut coalescers = vec![];
        if load.choice == Choice::Coalesced {
            coalescers = vec![Coalescer::default(); load.processes];
            actors.extend((0..load.processes).map(|process| Actor::new(process, 0)));
        }
        Engine {
            server,
            load,
            random,
            now: 0,
            events: BinaryHeap::new(),
            sent: 0,
            idle_cores: server.cores,
            ready: VecDeque::new(),
            rows: vec![Row::default(); load.rows()],
            log: Log::default(),
            actors,
            offsets,
            ranks: vec![vec![false; load.shards.max(load.writers)]; load.processes],
            coalescers,
            tally: Tally::default(),
        }
    }

    fn begin_all(&mut self) {
        for coalescer in &mut self.coalescers {
            coalescer.worker_is_idle = true;
        }
        for writer in 0..self.load.all_writers() {
            self.begin(writer);
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
        if !coalescer.worker_is_idle || coalescer.waiting.is_empty() {
            return;
        }
        coalescer.worker_is_idle = false;
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
                load.shard_of_rank(rank % load.shards, offset)
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
        let Server {
            count,
            batch,
            addition,
            ..
        } = *self.server;
        let whole = match self.load.choice {
            Choice::Coalesced => batch,
            _ => count,
        };
        match step {
            Step::Add => addition,
            Step::Prepare => whole.saturating_sub(2 * quarter(count)),
            Step::Write | Step::Finish => quarter(count),
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
            self.coalescers[process].worker_is_idle = true;
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
