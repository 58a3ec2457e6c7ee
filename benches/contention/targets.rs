//! The targets of this crate, beside the measurements.

use crate::arena::Disk;
use crate::by_hand::{self, PAGE};
use crate::contender::{APPEND_ONLY, COALESCED, DEFAULT, ONE_ROW};
use crate::limits::PGBENCH;
use crate::load::Cell;
use crate::reads::{PLAIN, TOTAL};
use crate::results::Results;

#[derive(Debug, Clone, Copy)]
pub enum Bound {
    AtLeast(f64),
    Below(f64),
}

#[derive(Debug)]
pub struct Target {
    pub what: String,
    pub bound: Bound,
    /// `None` if its section did not run, or if its program is not installed.
    pub measured: Option<f64>,
}

impl Target {
    pub fn is_reached(&self) -> Option<bool> {
        self.measured.map(|measured| match self.bound {
            Bound::AtLeast(least) => measured >= least,
            Bound::Below(limit) => measured <= limit,
        })
    }
}

pub fn of(results: &Results) -> Vec<Target> {
    let mut targets = vec![];
    let mut target = |what: String, bound, measured| {
        targets.push(Target {
            what,
            bound,
            measured,
        });
    };
    let rates = |section, disk, database, threads, ours: &str, theirs: &str| {
        let cell = |entrant: &str| find(results, section, disk, database, threads, entrant);
        Some(cell(ours)?.rate / cell(theirs)?.rate)
    };
    // Commits wait for a disk here, as an application's do. Without that, a row's lock is held for next to no time.
    for (disk, least) in [(Disk::Local, 5.0), (Disk::Slow, 20.0)] {
        let against = |what: &str, least, section, theirs| {
            (
                format!("default : {what}, PostgreSQL, 32 threads, {}", disk.name()),
                Bound::AtLeast(least),
                rates(section, disk, "PostgreSQL", 32, DEFAULT, theirs),
            )
        };
        let compared = [
            against("one row", least, "disks", ONE_ROW),
            against("append-only INSERT", 0.9, "disks", APPEND_ONLY),
            against("the same SQL by pgbench", 0.7, "limits", PGBENCH),
        ];
        for (what, bound, measured) in compared {
            target(what, bound, measured);
        }
    }
    for (threads, least) in [(32, 1.5), (64, 1.0)] {
        for (section, disk) in [("hot", Disk::Free), ("disks", Disk::Local)] {
            target(
                format!(
                    "default : one row, MariaDB, {threads} threads, {}",
                    disk.name()
                ),
                Bound::AtLeast(least),
                rates(section, disk, "MariaDB", threads, DEFAULT, ONE_ROW),
            );
        }
    }
    for database in ["PostgreSQL", "MariaDB", "SQLite"] {
        target(
            format!(
                "default : one row, {database}, 1 thread, {}",
                Disk::Free.name()
            ),
            Bound::AtLeast(0.95),
            rates("hot", Disk::Free, database, 1, DEFAULT, ONE_ROW),
        );
    }
    for (database, least) in [("PostgreSQL", 80.0), ("MariaDB", 20.0), ("SQLite", 20.0)] {
        let disk = Disk::Local;
        let cell = |entrant| find(results, "disks", disk, database, 64, entrant);
        target(
            format!(
                "coalesced, acknowledged : one row, {database}, 64 threads, {}",
                disk.name()
            ),
            Bound::AtLeast(least),
            rates("disks", disk, database, 64, COALESCED, ONE_ROW),
        );
        target(
            format!(
                "p99 of coalesced : p50 of one row, {database}, 64 threads, {}",
                disk.name()
            ),
            Bound::Below(1.0),
            cell(COALESCED)
                .zip(cell(ONE_ROW))
                .and_then(|(ours, theirs)| {
                    Some(ours.latencies[2]?.as_secs_f64() / theirs.latencies[0]?.as_secs_f64())
                }),
        );
    }
    let in_process = results.in_process.as_ref();
    target(
        "buffered adds per second, one hot key, one process".into(),
        Bound::AtLeast(5e6),
        in_process.map(|in_process| in_process.hot_adds),
    );
    for database in ["PostgreSQL", "MariaDB", "SQLite"] {
        let time = |read: &str, form: &str| {
            let mut readings = results
                .readings
                .iter()
                .filter(|r| r.database == database && r.read == read);
            let reading = readings.find(|reading| reading.form == form)?;
            Some(reading.time.as_secs_f64())
        };
        target(
            format!("time of one total : plain column, {database}"),
            Bound::Below(1.3),
            time(by_hand::ONE_ROW, TOTAL)
                .zip(time(by_hand::ONE_ROW, PLAIN))
                .map(|(ours, plain)| ours / plain),
        );
        let best = results.best_by_hand(database, PAGE);
        target(
            format!("time of a page of 50 totals : best SQL by hand, {database}"),
            Bound::Below(1.1),
            time(PAGE, TOTAL)
                .zip(best)
                .map(|(ours, best)| ours / best.time.as_secs_f64()),
        );
    }
    target(
        "bytes for each idle key in the coalescer".into(),
        Bound::Below(200.0),
        in_process.map(|in_process| in_process.bytes_of_idle_key),
    );
    targets
}

fn find<'a>(
    results: &'a Results,
    section: &str,
    disk: Disk,
    database: &str,
    threads: usize,
    entrant: &str,
) -> Option<&'a Cell> {
    results.cells.iter().find(|cell| {
        (cell.scene.section, cell.disk, cell.database) == (section, disk, database)
            && (cell.scene.threads, cell.entrant) == (threads, entrant)
    })
}
