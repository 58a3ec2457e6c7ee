//! Blocks on runs of many minutes.

use super::hot_row::rate_and_latencies;
use super::numbers::{grouped, rate, time};
use super::text::{measured, paragraph, row, table as render_table};
use crate::names::*;
use crate::report::{Missing, Part, Report};

pub fn table(report: &Report) -> Result<String, Missing> {
    let parts = [report.part(LONG, POSTGRESQL)?, report.part(LONG, MARIADB)?];
    let ways = [
        ("one row, prepared by hand", PREPARED),
        ("100 slots, prepared by hand", SLOTTED_PREPARED),
        (
            "append-only `INSERT`, prepared by hand",
            APPEND_ONLY_PREPARED,
        ),
        ("**`diesel_sharded::update`**", DEFAULT),
        ("**`Coalescer::add`**", COALESCED),
    ];
    let mut rows = vec![row![
        "64 threads: counts a second<br>p50 / p99",
        POSTGRESQL,
        "slowest and fastest slice",
        MARIADB,
        "slowest and fastest slice"
    ]];
    for (title, entrant) in ways {
        let mut row = row![title];
        for part in parts {
            let cell = part.cell(LOCAL_DISK, 64, entrant)?;
            let (slowest, fastest) = cell.slowest_and_fastest();
            row.push(rate_and_latencies(cell));
            row.push(format!("{}, {}", rate(slowest), rate(fastest)));
        }
        rows.push(row);
    }
    let [postgresql, _] = parts;
    let slices = paragraph(&format!(
        "On each database the ways took turns, {} of {:.0} s each.{} {}",
        postgresql.pace.rounds,
        postgresql.pace.slice_ms as f64 / 1000.0,
        upkeep(postgresql),
        measured(postgresql)
    ));
    Ok(format!("{slices}\n\n{}", render_table(&rows)))
}

fn upkeep(part: &Part) -> String {
    part.upkeep.as_ref().map_or(String::new(), |upkeep| {
        format!(
            " {} checkpoints and {} vacuums fell into them on PostgreSQL.",
            upkeep.checkpoints, upkeep.autovacuums
        )
    })
}

pub fn soak(report: &Report) -> Result<String, Missing> {
    let soaks = report
        .parts
        .iter()
        .filter_map(|part| Some((part, part.soak.as_ref()?)));
    let soaks: Vec<_> = soaks.collect();
    let first = soaks
        .first()
        .ok_or_else(|| Missing(format!("section {SOAK}")))?;
    let measured = measured(first.0);
    let mut rows = vec![row![
        "",
        "minutes",
        "requests",
        "requests a second, first and last tenth",
        "p99, first and last tenth",
        "shards table, greatest and last",
        "shards",
        "views acknowledged",
        "totals rose by",
        "failed"
    ]];
    for (part, soak) in soaks {
        let samples = &soak.samples;
        let tenth = samples.len().div_ceil(10);
        let first = &samples[..tenth];
        let last = &samples[samples.len() - tenth..];
        let mean = |of: &[_], value: fn(&crate::report::Sample) -> f64| {
            of.iter().map(value).sum::<f64>() / of.len() as f64
        };
        let bytes = || samples.iter().map(|sample| sample.table_bytes);
        let kilobytes = |bytes: i64| format!("{} KiB", grouped((bytes / 1024) as u64));
        rows.push(row![
            part.database,
            soak.minutes,
            grouped(soak.requests),
            format!(
                "{}, {}",
                rate(mean(first, |sample| sample.per_second)),
                rate(mean(last, |sample| sample.per_second))
            ),
            format!(
                "{}, {}",
                time(mean(first, |sample| sample.p99_us)),
                time(mean(last, |sample| sample.p99_us))
            ),
            format!(
                "{}, {}",
                kilobytes(bytes().max().unwrap_or(0)),
                kilobytes(bytes().next_back().unwrap_or(0))
            ),
            samples.last().map_or(0, |sample| sample.shards),
            grouped(soak.acknowledged),
            grouped(soak.rose_by),
            grouped(soak.failed),
        ]);
    }
    Ok(format!("{}\n\n{measured}", render_table(&rows)))
}
