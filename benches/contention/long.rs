//! Runs of many minutes, so that checkpoints and vacuums fall into the slices.

use diesel_sharded_benches::names::LONG;
use diesel_sharded_benches::report::Upkeep;
use indicatif::ProgressBar;

use crate::arena::{Disk, Stage};
use crate::contender::{APPEND_ONLY_PREPARED, COALESCED, DEFAULT, PREPARED, SLOTTED_PREPARED};
use crate::contenders::Contenders;
use crate::load::{self, Cell, Entrant, Pace, Scene};
use crate::write_behind::Redis;

/// The contenders of the long run.
pub const CONTENDERS: [&str; 5] = [
    PREPARED,
    SLOTTED_PREPARED,
    APPEND_ONLY_PREPARED,
    DEFAULT,
    COALESCED,
];

const THREADS: usize = 64;

/// Measures the contenders, and the upkeep of the database meanwhile, if it tells.
pub fn measure<Conn: Contenders>(
    pace: Pace,
    redis: &Redis,
    bar: &ProgressBar,
) -> (Vec<Cell>, Option<(&'static str, Upkeep)>) {
    let stage = Stage::<Conn>::new(Disk::Local);
    let all = Conn::alone(&stage, redis);
    let entrants: Vec<_> = all
        .iter()
        .filter(|contender| CONTENDERS.contains(&contender.name()))
        .map(|contender| Entrant::Contender(contender.as_ref()))
        .collect();
    let mut conn = stage.connect();
    let before = conn.upkeep();
    let cells = load::measure(&stage, Scene::hot(LONG, THREADS), pace, &entrants, bar);
    let upkeep = before.zip(conn.upkeep()).map(|(before, after)| {
        let upkeep = Upkeep {
            checkpoints: after.checkpoints - before.checkpoints,
            autovacuums: after.autovacuums - before.autovacuums,
        };
        (Conn::NAME, upkeep)
    });
    (cells, upkeep)
}
