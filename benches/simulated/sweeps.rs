//! Series of simulations in which one thing grows.

use super::choice::{Choice, Load};
use super::engine::simulate;
use super::outcome::Outcome;
use super::server::Server;

/// The cores of a server that nobody measured.
pub const LARGE_CORES: usize = 32;

const SHARDS: usize = 128;
const COUNTS: usize = 4_000;

type Points = Vec<(Load, Outcome)>;

fn points(server: &Server, loads: impl IntoIterator<Item = Load>) -> Points {
    let loads = loads.into_iter();
    loads
        .map(|load| {
            // Each writer counts several times, however many there are.
            let counts = COUNTS.max(10 * load.all_writers());
            (load, simulate(server, &load, counts))
        })
        .collect()
}

/// From 1 to 256 writers in one process, with 128 shards.
pub fn by_writers(server: &Server, choice: Choice) -> Points {
    let loads = (0..=8).map(|power| Load {
        processes: 1,
        writers: 1 << power,
        shards: SHARDS,
        choice,
    });
    points(server, loads)
}

/// From 1 to 256 shards, with 256 writers in 8 processes.
pub fn by_shards(server: &Server, choice: Choice) -> Points {
    let loads = (0..=8).map(|power| Load {
        processes: 8,
        writers: 32,
        shards: 1 << power,
        choice,
    });
    points(server, loads)
}

/// From 1 to 64 processes of 8 writers each, with 128 shards.
pub fn by_processes(server: &Server, choice: Choice) -> Points {
    let loads = (0..=6).map(|power| Load {
        processes: 1 << power,
        writers: 8,
        shards: SHARDS,
        choice,
    });
    points(server, loads)
}
