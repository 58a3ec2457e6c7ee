//! The times of a server, in nanoseconds.

use crate::names::*;
use crate::report::{Missing, Report};

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
        let of_tasks = tasks.cells.iter().find(|cell| cell.entrant == COALESCED);
        let of_tasks =
            of_tasks.ok_or_else(|| Missing(format!("{COALESCED} in section {TASKS}")))?;
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

    /// The same with other cores.
    pub fn with_cores(self, cores: usize) -> Self {
        Server { cores, ..self }
    }

    /// The time for which a count holds its lock if nothing else is waited for.
    pub fn held(&self) -> u64 {
        let until_the_flush = quarter(self.count);
        match self.holds_while_flushing {
            true => until_the_flush + self.delay + self.flush + quarter(self.count),
            false => until_the_flush,
        }
    }
}

/// A quarter of a count's time on a core.
pub fn quarter(count: u64) -> u64 {
    count / 4
}
