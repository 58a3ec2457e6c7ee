//! The results of a simulation.

/// The resource that counts wait for the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bottleneck {
    /// The cores are busy.
    Cores,
    /// The locks of shards.
    Locks,
    /// The flushes of the log.
    Flushes,
}

impl Bottleneck {
    pub fn name(self) -> &'static str {
        match self {
            Bottleneck::Cores => "cores",
            Bottleneck::Locks => "row locks",
            Bottleneck::Flushes => "flushes",
        }
    }
}

/// The counts that ended after the warm-up.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    pub counts: usize,
    pub per_second: f64,
    /// The times of the counts, in microseconds.
    pub mean_us: f64,
    pub p99_us: f64,
    /// The part of the cores' time that was used, from 0 to 1.
    pub cores_busy: f64,
    pub bottleneck: Bottleneck,
}

/// Sums that grow while a simulation runs.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// The time of each count, in nanoseconds.
    pub times: Vec<u64>,
    pub cores: u64,
    pub locks: u64,
    pub flushes: u64,
}

/// The part of the cores' time from which on they are the bottleneck.
const BUSY: f64 = 0.9;

impl Tally {
    /// The results of so many nanoseconds.
    pub fn outcome(mut self, elapsed: u64, cores: usize) -> Outcome {
        self.times.sort_unstable();
        let counts = self.times.len();
        let at = |part: f64| {
            let place = ((counts as f64 * part) as usize).min(counts.saturating_sub(1));
            self.times.get(place).map_or(0.0, |ns| *ns as f64 / 1e3)
        };
        let cores_busy = self.cores as f64 / (elapsed as f64 * cores as f64);
        Outcome {
            counts,
            per_second: counts as f64 / (elapsed as f64 / 1e9),
            mean_us: self.times.iter().sum::<u64>() as f64 / counts as f64 / 1e3,
            p99_us: at(0.99),
            cores_busy,
            bottleneck: match () {
                () if cores_busy >= BUSY => Bottleneck::Cores,
                () if self.locks > self.flushes => Bottleneck::Locks,
                () => Bottleneck::Flushes,
            },
        }
    }
}
