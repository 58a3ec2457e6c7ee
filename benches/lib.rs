//! What the measurements share.

use std::time::{Duration, Instant};

/// How long each of `works` takes, run in turn `rounds` times, as medians: what disturbs one disturbs all.
pub fn side_by_side<const N: usize>(
    rounds: usize,
    mut works: [&mut dyn FnMut(); N],
) -> [Duration; N] {
    let mut times = [const { Vec::new() }; N];
    for _ in 0..rounds {
        for (work, times) in works.iter_mut().zip(&mut times) {
            let start = Instant::now();
            work();
            times.push(start.elapsed());
        }
    }
    times.map(median)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
