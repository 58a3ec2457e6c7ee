//! All faults. Each is a file here and an entry of [`ALL`].

mod backends_terminated;
mod cache;
mod client_killed;
mod clocks;
mod connection_cut;
mod disk_full;
mod failover;
pub mod fold_killed;
mod parents_replaced;
mod server_killed;
mod server_stopped;
mod storms;

use crate::fault::Fault;

/// All faults.
pub const ALL: &[Fault] = &[
    client_killed::FAULT,
    connection_cut::FAULT,
    server_killed::FAULT,
    failover::FAULT,
    server_stopped::FAULT,
    backends_terminated::FAULT,
    storms::DEADLOCKS,
    storms::SERIALIZATION,
    fold_killed::FAULT,
    parents_replaced::FAULT,
    disk_full::FAULT,
    cache::FAULT,
    clocks::FAULT,
];
