//! The measurements of a run.

use std::time::Duration;

use serde_json::Value;

use crate::load::{Cell, Pace};
use crate::machine;
use crate::process::InProcess;
use crate::reads::{PLAIN, Reading, TOTAL};
use crate::snapshot::Course;

pub struct Results {
    pub quick: bool,
    pub pace: Pace,
    pub machine: Value,
    pub cells: Vec<Cell>,
    pub readings: Vec<Reading>,
    pub courses: Vec<Course>,
    pub in_process: Option<InProcess>,
    /// How long each section took.
    pub durations: Vec<(&'static str, Duration)>,
}

impl Results {
    pub fn new(quick: bool, pace: Pace) -> Self {
        Results {
            quick,
            pace,
            machine: machine::describe(),
            cells: vec![],
            readings: vec![],
            courses: vec![],
            in_process: None,
            durations: vec![],
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
}
