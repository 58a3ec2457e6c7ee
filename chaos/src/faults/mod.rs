//! All faults. Each is a file here and an entry of [`ALL`].

mod disk_full;
mod failover;
pub mod fold_killed;
mod killed;
mod server_stopped;
mod silent;
mod storms;

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
    killed::SERVER,
    failover::FAULT,
    server_stopped::FAULT,
    killed::CONNECTIONS,
    silent::STOPPED,
    silent::CUT,
    storms::DEADLOCKS,
    storms::SERIALIZATION,
    fold_killed::FAULT,
    disk_full::FAULT,
    disk_full::BINARY_LOG,
];
