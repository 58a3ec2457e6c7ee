//! Blocks on reads of totals and on top lists.

use super::numbers::{grouped, ratio, time};
use super::text::{measured, paragraph, row, table as render_table};
use crate::names::*;
use crate::report::{Missing, Part, Report};

const DATABASES: [&str; 3] = [POSTGRESQL, MARIADB, SQLITE];

/// The time of a total, as a multiple of the plain column's.
fn of_plain(part: &Part, read: &str) -> Result<f64, Missing> {
    Ok(part.reading(read, TOTAL)? / part.reading(read, PLAIN)?)
}

pub fn table(report: &Report) -> Result<String, Missing> {
    let mut rows = vec![row!["`total()`", POSTGRESQL, MARIADB, SQLITE]];
    for (mix, shards) in [
        ("", "16 shards each"),
        (FOLDED, "one in ten has 16, the rest are folded"),
    ] {
        for page in [ONE_TOTAL, PAGE] {
            let read = &format!("{page}{mix}");
            let mut row = row![format!("{page}; {shards}")];
            for database in DATABASES {
                let part = report.part(READS, database)?;
                row.push(format!(
                    "{} times ({} : {})",
                    ratio(of_plain(part, read)?),
                    time(part.reading(read, TOTAL)?),
                    time(part.reading(read, PLAIN)?)
                ));
            }
            rows.push(row);
        }
    }
    let measured = measured(report.part(READS, POSTGRESQL)?);
    Ok(format!("{}\n\n{measured}", render_table(&rows)))
}

pub fn cost(report: &Report) -> Result<String, Missing> {
    let times = |read, database| -> Result<String, Missing> {
        Ok(ratio(of_plain(report.part(READS, database)?, read)?))
    };
    Ok(paragraph(&format!(
        "With 16 shards a total of one row takes {} (PostgreSQL), {} (MariaDB) or {} times (SQLite) as long as the plain column, and a \
         page of 50 totals {}, {} or {} times.",
        times(ONE_TOTAL, POSTGRESQL)?,
        times(ONE_TOTAL, MARIADB)?,
        times(ONE_TOTAL, SQLITE)?,
        times(PAGE, POSTGRESQL)?,
        times(PAGE, MARIADB)?,
        times(PAGE, SQLITE)?,
    )))
}

fn list(part: &Part, mix: &str, form: &str) -> Result<f64, Missing> {
    part.reading(&format!("{mix}, {ALL_ROWS}"), form)
}

fn ranked(part: &Part) -> String {
    grouped(ranked_rows(part.pace.quick) as u64)
}

pub fn sort(report: &Report) -> Result<String, Missing> {
    let of = |database| -> Result<String, Missing> {
        Ok(time(list(
            report.part(TOP, database)?,
            SIXTEEN_SHARDS,
            SORT,
        )?))
    };
    Ok(paragraph(&format!(
        "A sort of {} rows with 16 shards each takes {} on PostgreSQL, {} on MariaDB and {} on SQLite.",
        ranked(report.part(TOP, POSTGRESQL)?),
        of(POSTGRESQL)?,
        of(MARIADB)?,
        of(SQLITE)?,
    )))
}

pub fn top(report: &Report) -> Result<String, Missing> {
    let rows_of_table = ranked(report.part(TOP, POSTGRESQL)?);
    let mut rows = vec![row![
        format!("the first 10 of {rows_of_table} rows"),
        "",
        "sort of all totals",
        "`top`",
        "plain column with an index",
        "sort : `top`",
        "`top` : plain"
    ]];
    for mix in [FEW_HOT, FOLDED_KEEPING, NO_SHARDS, SIXTEEN_SHARDS] {
        for database in DATABASES {
            let part = report.part(TOP, database)?;
            let (sort, top) = (list(part, mix, SORT)?, list(part, mix, TOP_LIST)?);
            let plain = list(part, mix, INDEXED)?;
            let title = if database == POSTGRESQL { mix } else { "" };
            rows.push(row![
                title,
                database,
                time(sort),
                time(top),
                time(plain),
                ratio(sort / top),
                ratio(top / plain)
            ]);
        }
    }
    let measured = measured(report.part(TOP, POSTGRESQL)?);
    Ok(format!("{}\n\n{measured}", render_table(&rows)))
}

pub fn top_without_shards(report: &Report) -> Result<String, Missing> {
    let times = |database| -> Result<String, Missing> {
        let part = report.part(TOP, database)?;
        let (top, plain) = (
            list(part, NO_SHARDS, TOP_LIST)?,
            list(part, NO_SHARDS, INDEXED)?,
        );
        Ok(ratio(top / plain))
    };
    Ok(paragraph(&format!(
        "Even without shards `top` takes {} (PostgreSQL), {} (MariaDB) or {} times (SQLite) as long as a list by the plain column and \
         its index: it is another statement, which also has to see that there are no shards.",
        times(POSTGRESQL)?,
        times(MARIADB)?,
        times(SQLITE)?,
    )))
}
