//! The shapes in the summary: this crate's rate beside Diesel's.

use crate::contender::{DEFAULT, ONE_ROW, PREPARED};
use crate::load::Cell;
use crate::text::{line, short};

/// One shape with one number of threads.
struct Comparison<'a> {
    shape: &'static str,
    plain: &'a Cell,
    prepared: Option<&'a Cell>,
    sharded: &'a Cell,
}

impl<'a> Comparison<'a> {
    fn of(cells: &'a [Cell]) -> Option<Self> {
        let find = |entrant| cells.iter().find(|cell| cell.entrant == entrant);
        Some(Comparison {
            shape: cells.first()?.scene.shape?,
            plain: find(ONE_ROW)?,
            prepared: find(PREPARED),
            sharded: find(DEFAULT)?,
        })
    }

    /// This crate's median rate as a multiple of Diesel's.
    fn ratio(&self) -> f64 {
        self.sharded.rate / self.plain.rate
    }
}

fn comparisons(cells: &[Cell]) -> impl Iterator<Item = Comparison<'_>> {
    let same = |a: &Cell, b: &Cell| {
        (a.database, a.scene.shape, a.scene.threads) == (b.database, b.scene.shape, b.scene.threads)
    };
    cells.chunk_by(same).filter_map(Comparison::of)
}

/// Writes a table for each database: a row for each shape and number of threads.
pub fn write_tables(text: &mut String, cells: &[Cell]) {
    let comparisons: Vec<_> = comparisons(cells).collect();
    for comparisons in comparisons.chunk_by(|a, b| a.plain.database == b.plain.database) {
        let plain = comparisons[0].plain;
        let (section, database, disk) = (plain.scene.section, plain.database, plain.disk.name());
        line(
            text,
            format_args!(
                "\n## {section}: {database}, {disk}\n\n\
                 Updates per second; latencies are p50 / p99 of one update, or of its transaction.\n\n\
                 | shape | threads | Diesel | prepared by hand | diesel_sharded | : Diesel | latency, Diesel | latency, diesel_sharded | failed, Diesel / diesel_sharded |\n\
                 |---|---|---|---|---|---|---|---|---|"
            ),
        );
        for comparison in comparisons {
            let Comparison {
                shape,
                plain,
                prepared,
                sharded,
            } = comparison;
            let prepared = prepared.map_or(String::new(), |cell| format!("{:.0}", cell.rate));
            line(
                text,
                format_args!(
                    "| {shape} | {} | {:.0} | {prepared} | {:.0} | {:.2} | {} | {} | {} / {} |",
                    plain.scene.threads,
                    plain.rate,
                    sharded.rate,
                    comparison.ratio(),
                    latencies(plain),
                    latencies(sharded),
                    plain.failed,
                    sharded.failed
                ),
            );
        }
    }
}

fn latencies(cell: &Cell) -> String {
    let [p50, _, p99] = cell
        .latencies
        .map(|latency| latency.map_or(String::new(), short));
    format!("{p50} / {p99}")
}
