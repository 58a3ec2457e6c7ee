//! The extent of a run: how many rounds of each fault, and until when.

use std::time::Instant;

/// How much is done.
#[derive(Debug, Clone)]
pub struct Extent {
    pub short: bool,
    /// The rounds of this fault.
    pub rounds: u32,
    /// When no further round begins, if by time.
    pub until: Option<Instant>,
    pub seed: u64,
}

impl Extent {
    /// Whether a round of this number, from 0, is played.
    pub fn goes_on(&self, round: u32) -> bool {
        match self.until {
            Some(until) => Instant::now() < until,
            None => round < self.rounds,
        }
    }

    /// One of two numbers.
    pub fn choose<T>(&self, full: T, short: T) -> T {
        if self.short { short } else { full }
    }
}
