//! Blocks on the shapes of an update, on tasks, and on old snapshots.

use super::hot_row::rate_and_latencies;
use super::numbers::{grouped, rate, ratio};
use super::text::{measured, paragraph, row, table as render_table};
use crate::names::*;
use crate::report::{Cell, Missing, Part, Report};

/// The greatest number of threads of a part.
fn most_threads(part: &Part) -> usize {
    part.cells
        .iter()
        .map(|cell| cell.threads)
        .max()
        .unwrap_or(0)
}

pub fn table(report: &Report) -> Result<String, Missing> {
    let databases = [POSTGRESQL, MARIADB];
    let parts = databases.map(|database| report.part(SHAPES, database));
    let [postgresql, mariadb] = parts;
    let parts = [postgresql?, mariadb?];
    let threads = most_threads(parts[0]);
    let mut rows = vec![row![
        format!("{threads} threads"),
        "PostgreSQL, Diesel",
        "PostgreSQL, this crate",
        "ratio",
        "MariaDB, Diesel",
        "MariaDB, this crate",
        "ratio"
    ]];
    let of_diesel = |cell: &&Cell| cell.entrant == ONE_ROW && cell.threads == threads;
    for first in parts[0].cells.iter().filter(of_diesel) {
        let shape = first.shape.as_deref().unwrap_or_default();
        let mut row = row![format!("`{}`", shape.replace('`', ""))];
        if shape.contains(':') || shape.contains("rows") {
            row = row![shape]; // words rather than code
        }
        for part in parts {
            let cell = |entrant| {
                let mut cells = part.cells.iter();
                let found = cells.find(|cell| {
                    cell.entrant == entrant
                        && cell.threads == threads
                        && cell.shape.as_deref() == Some(shape)
                });
                found.ok_or_else(|| Missing(format!("shape {shape}, {entrant}")))
            };
            let (diesel, ours) = (cell(ONE_ROW)?, cell(DEFAULT)?);
            row.extend([
                rate_and_latencies(diesel),
                rate_and_latencies(ours),
                ratio(ours.per_second / diesel.per_second),
            ]);
        }
        rows.push(row);
    }
    let measured = measured(parts[0]);
    Ok(format!("{}\n\n{measured}", render_table(&rows)))
}

pub fn tasks(report: &Report) -> Result<String, Missing> {
    let postgresql = report.part(TASKS, POSTGRESQL)?;
    let tasks = most_threads(postgresql);
    let mut rows = vec![row![
        format!(
            "{} tasks: counts a second<br>p50 / p99",
            grouped(tasks as u64)
        ),
        POSTGRESQL,
        MARIADB,
        SQLITE
    ]];
    let ways = [
        ("`diesel_async`'s own update, one row", ONE_ROW),
        ("`asynchronous::update`", DEFAULT),
        ("`Coalescer::add_async`", COALESCED),
    ];
    for (title, entrant) in ways {
        let mut row = row![title];
        for database in [POSTGRESQL, MARIADB, SQLITE] {
            let part = report.part(TASKS, database)?;
            let cell = |entrant| part.cell(LOCAL_DISK, most_threads(part), entrant);
            let (of_row, of_way) = (cell(ONE_ROW)?, cell(entrant)?);
            let times = ratio(of_way.per_second / of_row.per_second);
            row.push(format!("{}<br>{times} times", rate_and_latencies(of_way)));
        }
        rows.push(row);
    }
    let measured = measured(postgresql);
    Ok(format!("{}\n\n{measured}", render_table(&rows)))
}

pub fn old_snapshot(report: &Report) -> Result<String, Missing> {
    let part = report.part(SNAPSHOT, POSTGRESQL)?;
    let course = |contender: &str| {
        let mut courses = part.courses.iter();
        let found = courses.find(|course| course.contender == contender && course.old_snapshot);
        let tenths = found.map(|course| &course.per_second_of_tenths[..]);
        match tenths {
            Some([first, .., last]) => Ok((rate(*first), rate(*last))),
            _ => Err(Missing(format!(
                "the course of {contender} in section {SNAPSHOT}"
            ))),
        }
    };
    let (one_row, one_row_at_last) = course(ONE_ROW)?;
    let (sharded, sharded_at_last) = course(DEFAULT)?;
    Ok(paragraph(&format!(
        "An old snapshot keeps PostgreSQL from removing any version of a row that was counted, on one row as on shards. While one \
         was open, 8 threads made {one_row} counts a second on one row in the first tenth of their run and {one_row_at_last} in the \
         last, and {sharded} and {sharded_at_last} by `update` (no fsync)."
    )))
}
