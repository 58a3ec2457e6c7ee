//! The simulation beside measurements that its times were not taken from.

use super::choice::{Choice, Load};
use super::engine::simulate;
use super::server::Server;
use crate::median;
use crate::names::*;
use crate::report::{Cell, Missing, Report};

/// A measurement, and its simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    pub database: &'static str,
    pub disk: &'static str,
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

/// The median of the errors' sizes.
pub fn error_at_median<'a>(checked: impl IntoIterator<Item = &'a Checked>) -> Option<f64> {
    median(checked.into_iter().map(|one| one.error().abs()).collect())
}

/// The greatest of the errors' sizes.
pub fn greatest_error<'a>(checked: impl IntoIterator<Item = &'a Checked>) -> f64 {
    let errors = checked.into_iter().map(|one| one.error().abs());
    errors.fold(0.0, f64::max)
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
                let load = Load {
                    processes,
                    writers: cell.threads / processes,
                    shards: SHARDS,
                    choice: *choice,
                };
                all.push(Checked {
                    database,
                    disk,
                    load,
                    measured: cell.per_second,
                    simulated: simulate(&server, &load, COUNTS).per_second,
                });
            }
        }
    }
    Ok(all)
}
