//! The extent of a run: how many rounds of each fault, and until when.

use std::time::Instant;

/// The extent of a run of one fault on one database.
#[derive(Debug, Clone)]
pub struct Extent {
    pub short: bool,
    /// The number of rounds, unless `until` is set.
    pub rounds: u32,
    /// The moment after which no further round begins.
    pub until: Option<Instant>,
    pub seed: u64,
}

impl Extent {
    /// Whether the round of this number is played; the first is 0.
    pub fn goes_on(&self, round: u32) -> bool {
        match self.until {
            Some(until) => Instant::now() < until,
            None => round < self.rounds,
        }
    }

    /// Returns `full` or `short`, as the run is.
    pub fn choose<T>(&self, full: T, short: T) -> T {
        if self.short { short } else { full }
    }
}
