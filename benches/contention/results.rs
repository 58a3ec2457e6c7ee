//! The measurements of a run.

use std::time::Duration;

use diesel::prelude::*;
use diesel_sharded_benches::machine;
use diesel_sharded_benches::names::{
    LONG, MARIADB, POSTGRESQL, PROCESS, READS, SNAPSHOT, SQLITE, TOP,
};
use diesel_sharded_benches::report::{self, Machine, Part, Upkeep, tenths};

use crate::load::{Cell, Pace};
use crate::process::InProcess;
use crate::reads::{PLAIN, Reading, TOTAL};
use crate::snapshot::Course;
use crate::text::micros;

pub struct Results {
    pub quick: bool,
    /// Each database with the machine.
    pub machines: Vec<(&'static str, Machine)>,
    pub cells: Vec<Cell>,
    pub readings: Vec<Reading>,
    /// The top lists.
    pub lists: Vec<Reading>,
    pub courses: Vec<Course>,
    pub in_process: Option<InProcess>,
    /// The upkeep of a database during the long run.
    pub upkeep: Vec<(&'static str, Upkeep)>,
    /// Each section, with its pace and its time.
    pub sections: Vec<(&'static str, Pace, Duration)>,
}

impl Results {
    pub fn new(quick: bool) -> Self {
        Results {
            quick,
            machines: vec![
                (POSTGRESQL, machine::with::<PgConnection>()),
                (MARIADB, machine::with::<MysqlConnection>()),
                (SQLITE, machine::with::<SqliteConnection>()),
            ],
            cells: vec![],
            readings: vec![],
            lists: vec![],
            courses: vec![],
            in_process: None,
            upkeep: vec![],
            sections: vec![],
        }
    }

    /// The fastest of the statements written by hand.
    pub fn best_by_hand(&self, database: &str, read: &str) -> Option<&Reading> {
        let readings = self
            .readings
            .iter()
            .filter(|r| r.database == database && r.read == read);
        let by_hand = readings.filter(|reading| ![PLAIN, TOTAL].contains(&reading.form));
        by_hand.min_by_key(|reading| reading.time)
    }

    /// The results as the report has them.
    pub fn parts(&self) -> Vec<Part> {
        let mut parts = vec![];
        for &(section, pace, _) in &self.sections {
            for (database, machine) in &self.machines {
                let part = self.part(section, pace, database, machine);
                let is_empty = part.cells.is_empty()
                    && part.readings.is_empty()
                    && part.courses.is_empty()
                    && part.in_process.is_none();
                parts.extend((!is_empty).then_some(part));
            }
        }
        parts
    }

    fn part(&self, section: &str, pace: Pace, database: &str, machine: &Machine) -> Part {
        let cells = self.cells.iter();
        let cells = cells.filter(|cell| (cell.scene.section, cell.database) == (section, database));
        let readings = match section {
            READS => &self.readings[..],
            TOP => &self.lists[..],
            _ => &[],
        };
        let readings = readings.iter();
        let readings = readings.filter(|reading| reading.database == database);
        let courses = self.courses.iter();
        let courses = courses.filter(|_| (section, database) == (SNAPSHOT, POSTGRESQL));
        let upkeep = self.upkeep.iter();
        let mut upkeep = upkeep.filter(|(of, _)| (section, *of) == (LONG, database));
        let in_process = self.in_process.as_ref();
        let in_process = in_process.filter(|_| (section, database) == (PROCESS, SQLITE));
        // Into slices of less than a minute hardly any upkeep falls.
        let is_short = section == LONG && pace.slice < Duration::from_secs(60);
        let pace = report::Pace {
            quick: self.quick || is_short,
            rounds: pace.rounds,
            slice_ms: pace.slice.as_millis() as u64,
        };
        Part {
            cells: cells.map(Cell::published).collect(),
            readings: readings.map(Reading::published).collect(),
            courses: courses.map(Course::published).collect(),
            in_process: in_process.map(InProcess::published),
            upkeep: upkeep.next().map(|(_, upkeep)| upkeep.clone()),
            ..Part::new(section, database, machine.clone(), pace)
        }
    }
}

impl Cell {
    fn published(&self) -> report::Cell {
        let [p50, p95, p99] = self
            .latencies
            .map(|latency| latency.map(micros).map(tenths));
        report::Cell {
            disk: self.disk.name().to_owned(),
            keys: self.scene.keys.name().to_owned(),
            shape: self.scene.shape.map(str::to_owned),
            threads: self.scene.threads,
            entrant: self.entrant.to_owned(),
            per_second: tenths(self.rate),
            per_second_of_rounds: self.rates.iter().copied().map(tenths).collect(),
            p50_us: p50,
            p95_us: p95,
            p99_us: p99,
            failed: self.failed,
        }
    }
}

impl Reading {
    fn published(&self) -> report::Reading {
        report::Reading {
            read: self.read.clone(),
            form: self.form.to_owned(),
            us: tenths(micros(self.time)),
        }
    }
}

impl Course {
    fn published(&self) -> report::Course {
        report::Course {
            contender: self.contender.to_owned(),
            old_snapshot: self.pinned,
            per_second_of_tenths: self.rates.iter().copied().map(tenths).collect(),
            table_bytes: self.table_bytes,
            dead_versions: self.dead_versions,
        }
    }
}

impl InProcess {
    fn published(&self) -> report::InProcess {
        report::InProcess {
            buffered_adds_per_second_hot: tenths(self.hot_adds),
            buffered_adds_per_second_uniform: tenths(self.uniform_adds),
            bytes_of_idle_key: tenths(self.bytes_of_idle_key),
        }
    }
}
