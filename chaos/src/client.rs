//! A client process: this program, started again.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::backend::{Backend, ChaosConnection, policy};
use crate::history::Log;
use crate::sql_store::{SqlStore, coalescer};
use crate::with_connection;
use crate::workload::{Kind, Mix, Round, Workload};

/// The subcommand by which this program is a client.
pub const SUBCOMMAND: &str = "client";

/// What one client process does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Orders {
    pub backend: Backend,
    pub url: String,
    pub round: Round,
    /// The number of the first client of this process.
    pub first_client: u16,
    /// Each a thread with a connection.
    pub clients: u16,
    pub mix: Mix,
    /// The deadline of every call.
    pub deadline: Duration,
    pub logs: PathBuf,
    pub seed: u64,
}

/// Follows the orders until the standard input ends.
pub fn run(orders: &str) -> io::Result<()> {
    let orders: Orders = serde_json::from_str(orders)?;
    let stop = AtomicBool::new(false);
    policy(orders.deadline).make_process_wide();
    thread::scope(|scope| {
        scope.spawn(|| {
            // However it ends: whoever wrote to it is done, or gone.
            let _ = io::stdin().read_to_end(&mut vec![]);
            stop.store(true, Ordering::SeqCst);
        });
        with_connection!(orders.backend, Conn => work::<Conn>(&orders, &stop))
    })
}

fn work<Conn: ChaosConnection + Send>(orders: &Orders, stop: &AtomicBool) -> io::Result<()>
where
    Conn::Backend: diesel_sharded::BackendOf<Conn>,
{
    let coalesces = orders
        .mix
        .iter()
        .any(|(kind, _)| *kind == Kind::CountCoalesced);
    let coalescer = coalesces
        .then(|| coalescer::<Conn>(&orders.url, orders.deadline))
        .transpose()
        .map_err(io::Error::other)?;
    thread::scope(|scope| {
        let clients: Vec<_> = (0..orders.clients)
            .map(|n| {
                let client = orders.first_client + n;
                let coalescer = coalescer.clone();
                scope.spawn(move || {
                    let log = orders.logs.join(format!("{client}.jsonl"));
                    let mut log = Log::create(&log)?;
                    let seed = orders.seed.wrapping_add(u64::from(client));
                    let mut workload =
                        Workload::new(orders.round, client, orders.mix.clone(), seed);
                    let mut store = SqlStore::<Conn>::new(&orders.url, coalescer);
                    workload.run(&mut store, &mut log, stop)
                })
            })
            .collect();
        clients
            .into_iter()
            .try_for_each(|client| client.join().expect("no panic"))
    })
}

/// A client process, seen from outside. Killed when it is dropped.
#[derive(Debug)]
pub struct Client {
    process: Child,
}

impl Client {
    pub fn start(orders: &Orders) -> io::Result<Self> {
        let orders = serde_json::to_string(orders)?;
        let process = Command::new(std::env::current_exe()?)
            .args([SUBCOMMAND, &orders])
            .stdin(Stdio::piped())
            .spawn()?;
        Ok(Client { process })
    }

    /// Ends it where it is.
    pub fn kill(&mut self) -> io::Result<()> {
        self.process.kill()?;
        self.process.wait().map(drop)
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    pub fn has_ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    /// Lets it finish what it has begun, and waits for that.
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
                None => return Err(io::Error::other("a client does not end")),
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// How many operations have been acknowledged in the logs in a folder so far.
pub fn acknowledged(logs: &Path) -> io::Result<usize> {
    let mut acknowledged = 0;
    for entry in std::fs::read_dir(logs)? {
        let text = std::fs::read_to_string(entry?.path())?;
        acknowledged += text.matches(r#""what":{"Ok":"#).count();
    }
    Ok(acknowledged)
}
