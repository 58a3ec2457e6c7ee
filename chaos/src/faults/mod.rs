//! All faults. Each is a file here and an entry of [`ALL`].

mod cache;
mod clocks;
mod connection_cut;
mod disk_full;
mod failover;
pub mod fold_killed;
mod killed;
mod parents_replaced;
mod server_stopped;
mod storms;

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use diesel::QueryResult;

use crate::backend::Backend;
use crate::report::Line;

/// A fault: its name, the databases on which it strikes, and the function that plays its rounds.
#[derive(Debug, Clone, Copy)]
pub struct Fault {
    /// Its name on the command line.
    pub name: &'static str,
    /// The fault itself, and the property that must hold.
    pub about: &'static str,
    pub backends: &'static [Backend],
    /// The number of rounds of a full run and of a short one.
    pub rounds: (u32, u32),
    pub run: fn(&mut Line),
}

/// All faults.
pub const ALL: &[Fault] = &[
    killed::CLIENT,
    connection_cut::FAULT,
    killed::SERVER,
    failover::FAULT,
    server_stopped::FAULT,
    killed::CONNECTIONS,
    storms::DEADLOCKS,
    storms::SERIALIZATION,
    fold_killed::FAULT,
    parents_replaced::FAULT,
    disk_full::FAULT,
    cache::FAULT,
    clocks::FAULT,
];

/// What the clients of a round find, and their slowest call.
#[derive(Debug, Default)]
struct Findings(Mutex<(Vec<String>, Duration)>);

impl Findings {
    fn find(&self, finding: String) {
        let mut all = self.0.lock().expect("no panic while it is held");
        all.0.push(finding);
    }

    /// Makes a call, and checks that it ends in time.
    fn time<T>(&self, what: &str, longest: Duration, call: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let told = call();
        let took = began.elapsed();
        if took > longest {
            self.find(format!("{what} took {took:?}"));
        }
        let mut all = self.0.lock().expect("no panic while it is held");
        all.1 = took.max(all.1);
        told
    }

    fn slowest(&self) -> Duration {
        self.0.lock().expect("no panic while it is held").1
    }

    fn is_empty(&self) -> bool {
        let all = self.0.lock().expect("no panic while it is held");
        all.0.is_empty()
    }

    fn tell(&self, line: &mut Line) {
        let mut all = self.0.lock().expect("no panic while it is held");
        all.0.drain(..).for_each(|finding| line.find(finding));
    }
}

/// Retries a statement until it succeeds: on SQLite any statement may meet a conflict.
fn patiently<T>(mut statement: impl FnMut() -> QueryResult<T>) -> T {
    let patience = Instant::now() + Duration::from_secs(30);
    loop {
        match statement() {
            Ok(done) => return done,
            Err(_) if Instant::now() < patience => thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
    }
}
