//! A round: client processes count, a fault strikes, and the checker judges the history.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backend::{Locks, Settings};
use crate::checker::{Aftermath, Judgement, judge};
use crate::client::{self, Client, Orders, Progress};
use crate::history::History;
use crate::place::Place;
use crate::report::Line;
use crate::until;
use crate::workload::{Mix, Round, everything};

/// The client processes of a round, and their settings.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Crew {
    pub processes: Vec<Process>,
    pub settings: Settings,
    /// The attempts of every call, if not the library's default.
    pub attempts: Option<u32>,
    /// The number of shards, if not the derive's.
    pub shards: Option<u16>,
}

/// One process of a crew.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Process {
    /// The number of clients. Each is a thread with a connection.
    pub clients: u16,
    /// Whether its calls wait for futures, on asynchronous connections. On PostgreSQL only.
    pub awaited: bool,
    pub mix: Mix,
    /// The database's address for this process, if it has one of its own.
    pub url: Option<String>,
}

impl Process {
    pub fn new(clients: u16, mix: Mix) -> Self {
        Process {
            clients,
            awaited: false,
            mix,
            url: None,
        }
    }
}

impl Crew {
    /// Processes with two clients each, which run all operations.
    pub fn of_all_trades(processes: usize) -> Self {
        Crew::of(vec![Process::new(2, everything()); processes])
    }

    /// These processes, with the usual settings.
    pub fn of(processes: Vec<Process>) -> Self {
        Crew {
            processes,
            settings: Settings {
                deadline: Duration::from_secs(10),
                locks: Locks::Waited,
            },
            attempts: None,
            shards: None,
        }
    }

    /// With another deadline of every call.
    pub fn with_deadline(mut self, deadline: Duration) -> Self {
        self.settings.deadline = deadline;
        self
    }

    /// The numbers of the clients of a process.
    pub fn clients_of(&self, process: usize) -> Range<u16> {
        let before = self.processes[..process].iter();
        let first = before.map(|process| process.clients).sum();
        first..first + self.processes[process].clients
    }
}

/// The records of a round that is over.
pub struct Played {
    pub round: Round,
    pub history: History,
    /// The number that the clients met.
    pub conflicts: u64,
    pub judgement: Judgement,
    aftermath: Aftermath,
    logs: PathBuf,
}

impl Played {
    /// Adds the round to `line`, with what the checker found, and deletes its logs if it found nothing.
    pub fn add_to(&self, line: &mut Line) {
        line.add(&self.history, &self.judgement);
        if !self.judgement.findings.is_empty() {
            self.keep_logs(line).expect("a folder for the logs");
        }
        fs::remove_dir_all(&self.logs).expect("a folder for logs");
    }

    /// Copies the logs out of the database's folder, which is deleted at the end, and adds the state at the round's end.
    fn keep_logs(&self, line: &Line) -> io::Result<()> {
        let (fault, backend, round) = (line.fault, line.backend, self.round.number);
        let process = std::process::id();
        let kept = format!("diesel-sharded-chaos-{fault}-{backend}-{process}-{round}");
        let kept = std::env::temp_dir().join(kept);
        fs::create_dir_all(&kept)?;
        for entry in fs::read_dir(&self.logs)? {
            let entry = entry?;
            fs::copy(entry.path(), kept.join(entry.file_name()))?;
        }
        let aftermath = serde_json::to_vec_pretty(&self.aftermath)?;
        fs::write(kept.join("aftermath.json"), aftermath)?;
        eprintln!("the logs of this round are kept in {}", kept.display());
        Ok(())
    }
}

/// A round that is being played.
pub struct Playing {
    pub clients: Vec<Client>,
    pub round: Round,
    /// The folder of the logs.
    pub logs: PathBuf,
    progress: Progress,
}

impl Playing {
    /// Waits until `more` further operations are acknowledged.
    ///
    /// # Panics
    /// If that takes longer than five minutes, or if a client process exits.
    pub fn wait_for(&mut self, more: usize) {
        let enough = self.acknowledged() + more;
        self.wait_until(|playing| playing.acknowledged() >= enough);
    }

    /// Waits until `more` further operations of each of these clients are acknowledged.
    ///
    /// # Panics
    /// As [`wait_for`](Self::wait_for).
    pub fn wait_for_each(&mut self, clients: Range<u16>, more: usize) {
        let before = self.acknowledged_of(clients.clone());
        self.wait_until(|playing| {
            let by_now = playing.acknowledged_of(clients.clone());
            by_now
                .iter()
                .zip(&before)
                .all(|(by_now, before)| by_now - before >= more)
        });
    }

    /// Returns the number of each client's operations that are acknowledged by now.
    pub fn acknowledged_of(&mut self, clients: Range<u16>) -> Vec<usize> {
        self.acknowledged();
        let clients = clients.map(|client| self.progress.of_client(client));
        clients.collect()
    }

    fn wait_until(&mut self, is_so: impl Fn(&mut Self) -> bool) {
        until("the clients make progress", || {
            for client in &mut self.clients {
                let ended = client.has_ended().expect("a process");
                assert_eq!(ended, None, "a client exited");
            }
            is_so(self)
        });
    }

    /// Returns the number of operations that are acknowledged by now.
    pub fn acknowledged(&mut self) -> usize {
        self.progress.acknowledged().expect("the logs")
    }

    /// Kills a client process.
    pub fn kill(&mut self, client: usize) {
        let mut client = self.clients.remove(client);
        client.kill().expect("a process");
    }
}

/// Plays one round after those of `line`, judges it, and adds it to `line`.
///
/// The clients start. As soon as every process has counted, `strike` runs the fault. Then the clients stop and the checker judges
/// their history.
///
/// # Panics
/// If anything but the counting fails.
pub fn play(
    place: &mut Place,
    crew: &Crew,
    line: &mut Line,
    strike: impl FnOnce(&mut Place, &mut Playing),
) -> Played {
    let round = Round {
        number: i64::from(line.rounds) + 1,
        clients: crew.processes.iter().map(|process| process.clients).sum(),
    };
    place.prepare(round);
    let logs = place.folder().join(format!("round-{}", round.number));
    fs::create_dir(&logs).expect("a folder for logs");
    let clients = (0..crew.processes.len()).map(|process| {
        let orders = Orders {
            backend: place.backend,
            url: crew.processes[process]
                .url
                .as_ref()
                .unwrap_or(&place.url)
                .clone(),
            round,
            crew: crew.clone(),
            process,
            logs: logs.clone(),
            seed: (line.extent.seed).wrapping_add(1000 * u64::from(line.rounds)),
        };
        Client::start(&orders).expect("this program again")
    });
    let mut playing = Playing {
        clients: clients.collect(),
        round,
        logs: logs.clone(),
        progress: Progress::of(&logs),
    };
    playing.wait_until(|playing| {
        playing.acknowledged();
        let mut processes = 0..crew.processes.len();
        processes.all(|process| {
            let mut clients = crew.clients_of(process);
            clients.any(|client| playing.progress.of_client(client) > 0)
        })
    });
    strike(place, &mut playing);
    for client in playing.clients {
        client.stop().unwrap_or_else(|error| panic!("{error}"));
    }
    let aftermath = place.aftermath(round);
    let history = History::read(&logs).expect("the logs");
    let conflicts = client::conflicts(&logs).expect("the logs");
    let judgement = judge(&round.rules(), &history, &aftermath);
    let played = Played {
        round,
        history,
        conflicts,
        judgement,
        aftermath,
        logs,
    };
    played.add_to(line);
    played
}
