//! What the measurements share.

use std::time::{Duration, Instant};

/// How long each of `works` takes, run in turn `rounds` times, as medians: what disturbs one disturbs all.
pub fn side_by_side<const N: usize>(
    rounds: usize,
    mut works: [&mut dyn FnMut(); N],
) -> [Duration; N] {
    let times = all_side_by_side(rounds, &mut works);
    times.try_into().expect("as many times as works")
}

/// The same of any number.
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
