//! A client process: this program, started again with orders.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use diesel_sharded::combine::Combiner;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded_tests::own_server;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::backend::{AwaitedPg, Backend, ChaosConnection, Locks};
use crate::history::Log;
use crate::operation::Operation;
use crate::round::Crew;
use crate::sql_store::{SqlStore, coalescer};
use crate::with_connection;
use crate::workload::{Kind, Round, Workload};

/// The subcommand that makes this program a client.
pub const SUBCOMMAND: &str = "client";

/// The orders of one client process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Orders {
    pub backend: Backend,
    pub url: String,
    pub round: Round,
    pub crew: Crew,
    /// The number of this process among those of the crew.
    pub process: usize,
    pub logs: PathBuf,
    pub seed: u64,
}

/// Follows the orders until the standard input ends.
pub fn run(orders: &str) -> io::Result<()> {
    let orders: Orders = serde_json::from_str(orders)?;
    let stop = AtomicBool::new(false);
    let crew = &orders.crew;
    let conflicts = Arc::new(AtomicU64::new(0));
    let met = Arc::clone(&conflicts);
    let mut policy = RetryPolicy::new().with_deadline(crew.settings.deadline);
    if let Some(attempts) = crew.attempts {
        policy = policy.with_attempts(attempts);
    }
    if crew.settings.locks == Locks::Retried {
        policy = policy.with_max_delay(Duration::from_millis(5));
    }
    let policy = policy.with_notify(move |_| {
        met.fetch_add(1, Ordering::SeqCst);
    });
    policy.set_global();
    thread::scope(|scope| {
        scope.spawn(|| {
            // An error means the same as the end: the parent process has closed the pipe.
            let _ = io::stdin().read_to_end(&mut vec![]);
            stop.store(true, Ordering::SeqCst);
        });
        if crew.processes[orders.process].awaited {
            return work::<AwaitedPg>(&orders, &stop);
        }
        with_connection!(orders.backend, Conn => work::<Conn>(&orders, &stop))
    })?;
    let file = format!("{}.{CONFLICTS}", orders.process);
    let conflicts = conflicts.load(Ordering::SeqCst);
    fs::write(orders.logs.join(file), conflicts.to_string())
}

/// The extension of the files to which client processes write the number of their conflicts when they stop.
const CONFLICTS: &str = "conflicts";

/// The number of conflicts that all clients met.
pub fn conflicts(logs: &Path) -> io::Result<u64> {
    let mut all = 0;
    for entry in fs::read_dir(logs)? {
        let path = entry?.path();
        if path.extension() == Some(CONFLICTS.as_ref()) {
            let met = fs::read_to_string(&path)?.parse::<u64>();
            all += met.map_err(io::Error::other)?;
        }
    }
    Ok(all)
}

fn work<Conn: ChaosConnection>(orders: &Orders, stop: &AtomicBool) -> io::Result<()> {
    let crew = &orders.crew;
    let mix = &crew.processes[orders.process].mix;
    let coalesces = mix.iter().any(|(kind, _)| *kind == Kind::CountCoalesced);
    let coalescer = coalesces
        .then(|| persist(stop, || coalescer::<Conn>(&orders.url, crew.settings)))
        .transpose()?;
    if let Some(shards) = crew.shards {
        persist(stop, || {
            let mut conn = Conn::establish(&orders.url)?;
            conn.set_up(crew.settings)?;
            Ok(conn.run(&Operation::Resize { shards })?)
        })?;
    }
    // In every other process the threads combine.
    let combines = orders.seed.wrapping_add(orders.process as u64) % 2 == 1;
    let combiner = combines.then(Combiner::new);
    thread::scope(|scope| {
        let clients: Vec<_> = crew
            .clients_of(orders.process)
            .map(|client| {
                let (coalescer, combiner) = (coalescer.clone(), combiner.clone());
                scope.spawn(move || {
                    let log = orders.logs.join(log_of(client));
                    let mut log = Log::create(&log)?;
                    let seed = orders.seed.wrapping_add(u64::from(client));
                    let mut workload = Workload::new(orders.round, client, mix.clone(), seed);
                    let store = SqlStore::<Conn>::new(&orders.url, crew.settings, coalescer);
                    let mut store = store.combining(combiner);
                    workload.run(&mut store, &mut log, stop)
                })
            })
            .collect();
        clients
            .into_iter()
            .try_for_each(|client| client.join().expect("no panic"))
    })
}

/// Retries a step that a process needs at its start: the fault may have struck already.
fn persist<T>(
    stop: &AtomicBool,
    mut begin: impl FnMut() -> Result<T, Box<dyn Error + Send + Sync>>,
) -> io::Result<T> {
    loop {
        match begin() {
            Ok(begun) => return Ok(begun),
            Err(error) if stop.load(Ordering::SeqCst) => return Err(io::Error::other(error)),
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// This program, to be started again with orders.
pub(crate) fn this_program(subcommand: &str, orders: &impl Serialize) -> io::Result<Command> {
    let mut this = Command::new(std::env::current_exe()?);
    this.arg(subcommand).arg(serde_json::to_string(orders)?);
    Ok(this)
}

/// A handle of a client process. Dropping it kills the process.
#[derive(Debug)]
pub struct Client {
    process: Child,
}

impl Client {
    pub fn start(orders: &Orders) -> io::Result<Self> {
        let mut this = this_program(SUBCOMMAND, orders)?;
        let process = this.stdin(Stdio::piped()).spawn()?;
        Ok(Client { process })
    }

    /// Kills the process (SIGKILL).
    pub fn kill(&mut self) -> io::Result<()> {
        self.process.kill()?;
        self.process.wait().map(drop)
    }

    /// Stops the process (SIGSTOP) with all the locks that it holds.
    pub fn pause(&self) {
        own_server::stop(&[self.process.id()]);
    }

    /// Continues the process after [`pause`](Self::pause).
    pub fn resume(&self) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.process), Signal::CONT)?)
    }

    pub fn has_ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    /// Tells the process to finish its open calls, and waits until it exits.
    pub fn stop(mut self) -> io::Result<()> {
        drop(self.process.stdin.take());
        let patience = Instant::now() + Duration::from_secs(120);
        loop {
            match self.process.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => {
                    return Err(io::Error::other(format!("a client ended with {status}")));
                }
                None if Instant::now() < patience => thread::sleep(Duration::from_millis(2)),
                None => return Err(io::Error::other("a client does not exit")),
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // The process may have exited already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The name of a client's log.
fn log_of(client: u16) -> String {
    format!("{client}.jsonl")
}

/// Counts the acknowledged operations in a folder of logs, while the logs grow.
#[derive(Debug)]
pub struct Progress {
    logs: PathBuf,
    /// The number of bytes of each log that were read.
    read: BTreeMap<PathBuf, u64>,
    /// The number of acknowledged operations in each log.
    acknowledged: BTreeMap<PathBuf, usize>,
}

impl Progress {
    pub fn of(logs: &Path) -> Self {
        Progress {
            logs: logs.to_owned(),
            read: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
        }
    }

    /// Reads on, and returns the number of acknowledged operations so far.
    pub fn acknowledged(&mut self) -> io::Result<usize> {
        for entry in fs::read_dir(&self.logs)? {
            let path = entry?.path();
            let read = self.read.entry(path.clone()).or_default();
            let mut log = File::open(&path)?;
            log.seek(SeekFrom::Start(*read))?;
            let mut text = String::new();
            log.read_to_string(&mut text)?;
            let complete = text.rfind('\n').map_or(0, |end| end + 1);
            *read += complete as u64;
            let acknowledged = text[..complete].matches(r#""what":{"Ok":"#).count();
            *self.acknowledged.entry(path).or_default() += acknowledged;
        }
        Ok(self.acknowledged.values().sum())
    }

    /// The number of a client's acknowledged operations when the logs were last read.
    pub fn of_client(&self, client: u16) -> usize {
        let log = self.logs.join(log_of(client));
        self.acknowledged.get(&log).copied().unwrap_or(0)
    }
}
