//! Measuring alternatives side by side, and the report on them.

pub mod figures;
pub mod machine;
pub mod measured;
pub mod names;
pub mod pictures;
pub mod report;
pub mod videos;

use std::time::{Duration, Instant};

/// Runs `works` in turn for `rounds` rounds and returns the median time of each. A disturbance of the machine hits all of them.
pub fn side_by_side(rounds: usize, works: &mut [impl FnMut()]) -> Vec<Duration> {
    let times = in_turns(rounds, works.len(), |_, work| {
        let start = Instant::now();
        works[work]();
        start.elapsed().as_secs_f64()
    });
    let medians = times.into_iter().filter_map(median);
    medians.map(Duration::from_secs_f64).collect()
}

/// Runs this many works in turn for `rounds` rounds, in an order that rotates. Returns the results of each work.
pub fn in_turns<T>(
    rounds: usize,
    works: usize,
    mut run: impl FnMut(usize, usize) -> T,
) -> Vec<Vec<T>> {
    let mut results: Vec<Vec<T>> = (0..works).map(|_| vec![]).collect();
    for round in 0..rounds {
        for turn in 0..works {
            let work = (round + turn) % works;
            results[work].push(run(round, work));
        }
    }
    results
}

/// The times of which half and 99 of a hundred latencies were no longer; none if there is no latency.
pub fn percentiles(mut latencies: Vec<Duration>) -> [Option<Duration>; 2] {
    latencies.sort_unstable();
    [0.50, 0.99].map(|percentile| {
        let last = latencies.len().checked_sub(1)?;
        Some(latencies[(last as f64 * percentile) as usize])
    })
}

/// Returns the median: of an even number of values the mean of the two in the middle; `None` if there is no value.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some((lower + upper) / 2.0)
}
