//! Measuring alternatives side by side, and the report on them.

pub mod figures;
pub mod machine;
pub mod names;
pub mod pictures;
pub mod report;
pub mod synced;

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
    times.into_iter().map(median).collect()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
