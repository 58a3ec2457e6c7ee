//! The report that is published: `docs/benchmarks/report.json`. All figures in the documentation come from it.
//!
//! It has a part for each section on each database. A run replaces the parts that it measured and no others, so each part
//! tells when, on which machine and at which pace it was measured.

use std::fs;
use std::path::{Path, PathBuf};

use chrono::Utc;
use serde::{Deserialize, Serialize};

use crate::median;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Report {
    pub parts: Vec<Part>,
}

/// One section on one database.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Part {
    pub section: String,
    pub database: String,
    /// The day, in UTC.
    pub date: String,
    pub machine: Machine,
    pub pace: Pace,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cells: Vec<Cell>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readings: Vec<Reading>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soak: Option<Soak>,
    /// The size of a table and its indexes, in bytes for each of its rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_row: Option<f64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub memory_gb: f64,
    pub kernel: String,
    /// The name and version of the database.
    pub server: String,
    pub redis: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Pace {
    /// Whether the extent was reduced, so that the figures are rough.
    pub quick: bool,
    pub rounds: usize,
    pub slice_ms: u64,
}

/// The results of one contender under one set of conditions, as medians of the rounds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Cell {
    pub disk: String,
    pub keys: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    /// Threads, or tasks.
    pub threads: usize,
    pub entrant: String,
    pub per_second: f64,
    pub per_second_of_rounds: Vec<f64>,
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    /// Failed increments in all rounds.
    pub failed: usize,
}

/// The time of one read in one form.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Reading {
    pub read: String,
    pub form: String,
    pub us: f64,
}

/// A site under load for a long time.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Soak {
    pub minutes: u64,
    pub clients: usize,
    pub requests: u64,
    pub failed: u64,
    /// The views that the site acknowledged, and by how much the totals rose.
    pub acknowledged: u64,
    pub rose_by: u64,
    pub samples: Vec<Sample>,
}

/// Some seconds of a soak.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sample {
    /// Seconds since the start, at the end of the sample.
    pub at: f64,
    pub per_second: f64,
    pub p99_us: f64,
    pub shards: i64,
    pub table_bytes: i64,
}

/// Figures that the report does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing(pub String);

/// The folder of the report and of the pictures that are drawn from it.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/benchmarks")
}

fn file() -> PathBuf {
    folder().join("report.json")
}

impl Report {
    /// Reads the report that is published.
    ///
    /// # Panics
    /// If the file is there and holds anything else.
    pub fn read() -> Self {
        let file = file();
        match fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text)
                .unwrap_or_else(|error| panic!("{}: {error}", file.display())),
            Err(_) => Report::default(),
        }
    }

    /// Replaces the parts of the same sections and databases, in the file that is published.
    pub fn publish(parts: impl IntoIterator<Item = Part>) {
        let mut report = Report::read();
        for part in parts {
            report.replace(part);
        }
        fs::create_dir_all(folder()).expect("a folder for the report");
        fs::write(file(), report.to_json()).expect("the report's file");
    }

    pub fn replace(&mut self, part: Part) {
        let key = |part: &Part| (part.section.clone(), part.database.clone());
        self.parts.retain(|other| key(other) != key(&part));
        self.parts.push(part);
        self.parts.sort_by_key(key);
    }

    pub fn part(&self, section: &str, database: &str) -> Result<&Part, Missing> {
        let mut parts = self.parts.iter();
        let found = parts.find(|part| part.section == section && part.database == database);
        found.ok_or_else(|| Missing(format!("section {section} on {database}")))
    }

    /// A line for each cell, so that a difference can be read.
    pub fn to_json(&self) -> String {
        let json = serde_json::to_string(self).expect("numbers and texts");
        json.replace(",{\"", ",\n{\"") + "\n"
    }
}

impl Cell {
    /// The cell of an entrant on one hot row with these rates, as medians of the rounds, and no latencies.
    pub fn hot(disk: &str, threads: usize, entrant: &str, rates: Vec<f64>) -> Self {
        Cell {
            disk: disk.to_owned(),
            keys: "one hot key".to_owned(),
            threads,
            entrant: entrant.to_owned(),
            per_second: median(rates.clone()).map_or(f64::NAN, tenths),
            per_second_of_rounds: rates.into_iter().map(tenths).collect(),
            ..Cell::default()
        }
    }

    /// The rates of the slowest and of the fastest round.
    pub fn slowest_and_fastest(&self) -> (f64, f64) {
        let rounds = || self.per_second_of_rounds.iter().copied();
        let slowest = rounds().fold(f64::INFINITY, f64::min);
        (slowest, rounds().fold(0.0, f64::max))
    }
}

impl Part {
    /// A part without results yet, measured today.
    pub fn new(section: &str, database: &str, machine: Machine, pace: Pace) -> Self {
        Part {
            section: section.to_owned(),
            database: database.to_owned(),
            date: Utc::now().date_naive().to_string(),
            machine,
            pace,
            ..Part::default()
        }
    }

    /// The greatest number of threads, or of tasks.
    pub fn most_threads(&self) -> usize {
        let threads = self.cells.iter().map(|cell| cell.threads);
        threads.max().unwrap_or(0)
    }

    /// The cell of a contender on one hot row.
    pub fn cell(&self, disk: &str, threads: usize, entrant: &str) -> Result<&Cell, Missing> {
        let mut cells = self.cells.iter();
        let found = cells.find(|cell| {
            (cell.disk.as_str(), cell.threads, cell.entrant.as_str()) == (disk, threads, entrant)
        });
        found.ok_or_else(|| self.lacks(&format!("{entrant}, {threads} threads, {disk}")))
    }

    pub fn reading(&self, read: &str, form: &str) -> Result<f64, Missing> {
        let mut readings = self.readings.iter();
        let found = readings.find(|reading| reading.read == read && reading.form == form);
        let missing = || self.lacks(&format!("{form} of {read}"));
        Ok(found.ok_or_else(missing)?.us)
    }

    fn lacks(&self, what: &str) -> Missing {
        let (section, database) = (&self.section, &self.database);
        Missing(format!("{what} in section {section} on {database}"))
    }
}

/// Rounds to a tenth: the report has no more digits than it can answer for.
pub fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
