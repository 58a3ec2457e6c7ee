//! Measuring alternatives side by side, and the report on them.

pub mod figures;
pub mod machine;
pub mod measured;
pub mod names;
pub mod pictures;
pub mod program;
pub mod report;
pub mod simulated;
pub mod videos;

use std::cmp::Ordering;
use std::time::{Duration, Instant};

/// Runs `works` in turn for `rounds` rounds and returns the median time of each. A disturbance of the machine hits all of them.
pub fn side_by_side<const N: usize>(
    rounds: usize,
    mut works: [&mut dyn FnMut(); N],
) -> [Duration; N] {
    let times = all_side_by_side(rounds, &mut works);
    times.try_into().expect("as many times as works")
}

/// Does the same for any number of works.
pub fn all_side_by_side(rounds: usize, works: &mut [impl FnMut()]) -> Vec<Duration> {
    let mut times = vec![vec![]; works.len()];
    for round in 0..rounds {
        for turn in 0..works.len() {
            let work = (round + turn) % works.len();
            let start = Instant::now();
            works[work]();
            times[work].push(start.elapsed());
        }
    }
    let medians = times.into_iter().map(median);
    medians.map(|time| time.expect("a round")).collect()
}

/// Returns the median of comparable values, of an even number the greater one in the middle; `None` if there is no value.
pub fn median<T: Copy + PartialOrd>(mut values: Vec<T>) -> Option<T> {
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
    values.get(values.len() / 2).copied()
}
