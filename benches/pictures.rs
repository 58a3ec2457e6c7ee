//! The pictures in the documentation, drawn from the report. They have no background, and colours that stand out on light and
//! on dark pages. All axes of values are linear and begin at zero.

mod canvas;
mod simulation;

use std::fs;
use std::path::PathBuf;

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use self::canvas::{Area, Drawn, OURS, SECOND, TEXT, THEIRS, svg, write};
use crate::figures::soaks;
use crate::names::*;
use crate::report::{Missing, Report, Sample, Soak, folder};

type Draw = fn(&Report) -> Result<String, Missing>;

/// The pictures, by the names of their files.
pub const PICTURES: [(&str, Draw); 3] = [
    ("one-hot-row.svg", one_hot_row),
    ("simulation.svg", simulation::draw),
    ("soak.svg", soak),
];

/// Where a picture is kept.
pub fn path(name: &str) -> PathBuf {
    folder().join(name)
}

/// The picture as it is kept; empty if it is not there.
pub fn kept(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_default()
}

/// Five ways to count one hot row, on PostgreSQL and on MariaDB.
fn one_hot_row(report: &Report) -> Result<String, Missing> {
    const WAYS: [(&str, &str); 5] = [
        ("one row, diesel::update", ONE_ROW),
        ("one row, prepared by hand", PREPARED),
        ("100 slots, prepared by hand", SLOTTED_PREPARED),
        ("append-only INSERT, prepared", APPEND_ONLY_PREPARED),
        ("diesel_sharded::update", DEFAULT),
    ];
    const LABELS: i32 = 225;
    const PANEL: i32 = 320;
    const BAR: i32 = 240;
    const LINE: i32 = 34;
    let mut panels = vec![];
    for database in [POSTGRESQL, MARIADB] {
        let part = report.part(DISKS, database)?;
        let rates = WAYS.map(|(_, entrant)| Ok(part.cell(LOCAL_DISK, 64, entrant)?.per_second));
        let rates: Result<Vec<f64>, Missing> = rates.into_iter().collect();
        panels.push((database, rates?));
    }
    let all = panels.iter().flat_map(|(_, rates)| rates);
    let greatest = all.copied().fold(1.0, f64::max);
    Ok(svg((900, 240), |area| {
        let title =
            "Counts a second on one hot row: 64 threads, each waits for its commits (fsync)";
        write(area, title, 16, (10, 18), HPos::Left)?;
        for (line, (label, _)) in (0..).zip(WAYS) {
            write(
                area,
                label,
                15,
                (LABELS - 12, 82 + LINE * line),
                HPos::Right,
            )?;
        }
        for (panel, (database, rates)) in (0..).zip(&panels) {
            let x = LABELS + PANEL * panel;
            write(area, database, 15, (x, 50), HPos::Left)?;
            for (line, (&rate, (_, entrant))) in (0..).zip(rates.iter().zip(WAYS)) {
                let y = 82 + LINE * line;
                let end = x + (rate / greatest * f64::from(BAR)).round() as i32;
                let color = if entrant == DEFAULT { OURS } else { THEIRS };
                area.draw(&Rectangle::new(
                    [(x, y - 11), (end, y + 11)],
                    color.filled(),
                ))?;
                let number = crate::figures::rate(rate);
                write(area, &number, 15, (end + 6, y), HPos::Left)?;
            }
        }
        Ok(())
    }))
}

/// A value over the time of a soak; a panel may show two.
type Value = fn(&Sample) -> Option<f64>;

/// Small panels over time: a column for each database, a row for each value.
fn soak(report: &Report) -> Result<String, Missing> {
    const PANELS: [(&str, &[Value]); 6] = [
        ("requests a second", &[|sample| Some(sample.per_second)]),
        (
            "p50 (blue) and p99 (orange) of a request, ms",
            &[
                |sample| Some(sample.p50_us / 1000.0),
                |sample| Some(sample.p99_us / 1000.0),
            ],
        ),
        (
            "rows of the shards table",
            &[|sample| Some(sample.shards as f64)],
        ),
        (
            "size of the shards table, KiB",
            &[|sample| Some(sample.table_bytes as f64 / 1024.0)],
        ),
        (
            "updates that touch no index, %",
            &[|sample| Some(sample.hot? * 100.0)],
        ),
        (
            "dead row versions",
            &[|sample| Some(sample.dead_versions? as f64)],
        ),
    ];
    const WIDTH: i32 = 440;
    const HEIGHT: i32 = 110;
    let soaks = soaks(report)?;
    let has = |soak: &Soak, values: &[Value]| {
        let mut samples = soak.samples.iter();
        samples.any(|sample| values[0](sample).is_some())
    };
    let size = (
        (WIDTH * soaks.len() as i32) as u32,
        (HEIGHT * PANELS.len() as i32 + 60) as u32,
    );
    Ok(svg(size, |area| {
        for (column, (part, soak)) in (0..).zip(&soaks) {
            let left = WIDTH * column;
            let title = format!("{}, {} minutes", part.database, soak.minutes);
            write(area, &title, 16, (left + 10, 16), HPos::Left)?;
            let panels = PANELS.iter().filter(|(_, values)| has(soak, values));
            for (line, (title, values)) in (0..).zip(panels) {
                let top = 36 + HEIGHT * line;
                panel(area, (left, top), (WIDTH, HEIGHT), title, values, soak)?;
            }
        }
        Ok(())
    }))
}

fn panel(
    area: &Area<'_>,
    (left, top): (i32, i32),
    (width, height): (i32, i32),
    title: &str,
    values: &[Value],
    soak: &Soak,
) -> Drawn {
    let (x0, x1) = (left + 70, left + width - 20);
    let (y0, y1) = (top + height - 22, top + 24);
    write(area, title, 13, (x0, top + 10), HPos::Left)?;
    let samples = &soak.samples;
    let all = samples
        .iter()
        .flat_map(|sample| values.iter().filter_map(|value| value(sample)));
    let greatest = all.fold(1.0, f64::max);
    let end = samples.last().map_or(1.0, |sample| sample.at);
    let axis = TEXT.stroke_width(1);
    area.draw(&PathElement::new([(x0, y1), (x0, y0), (x1, y0)], axis))?;
    write(area, "0", 12, (x0 - 6, y0), HPos::Right)?;
    write(
        area,
        &crate::figures::rate(greatest),
        12,
        (x0 - 6, y1),
        HPos::Right,
    )?;
    let minutes = format!("{:.0} min", end / 60.0);
    write(area, &minutes, 12, (x1, y0 + 11), HPos::Right)?;
    for (value, color) in values.iter().zip([OURS, SECOND]) {
        let points = samples.iter().filter_map(|sample| {
            let x = f64::from(x0) + sample.at / end * f64::from(x1 - x0);
            let y = f64::from(y0) - value(sample)? / greatest * f64::from(y0 - y1);
            Some((x.round() as i32, y.round() as i32))
        });
        area.draw(&PathElement::new(
            points.collect::<Vec<_>>(),
            color.stroke_width(2),
        ))?;
    }
    Ok(())
}
