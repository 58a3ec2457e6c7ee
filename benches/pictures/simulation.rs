//! The picture of simulated rates and times: writers, shards and processes grow, and each mark has twice as many as the one before.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::canvas::{Area, Drawn, OURS, SECOND, TEXT, THEIRS, svg, write};
use crate::figures::{rate, time};
use crate::names::{LOCAL_DISK, POSTGRESQL};
use crate::report::{Missing, Report};
use crate::simulated::{
    Choice, LARGE_CORES, Load, Outcome, Server, by_processes, by_shards, by_writers,
};

const WIDTH: i32 = 330;
const HEIGHT: i32 = 170;
const TOP: i32 = 52;

type Series = Vec<(Load, Outcome)>;

/// A column: its title, the numbers below its marks, and a line for each choice.
struct Column {
    title: &'static str,
    marks: Vec<usize>,
    lines: Vec<(Choice, Series)>,
}

fn column(
    title: &'static str,
    choices: &[Choice],
    series: impl Fn(Choice) -> Series,
    grows: fn(&Load) -> usize,
) -> Column {
    let lines = choices.iter().map(|choice| (*choice, series(*choice)));
    let lines: Vec<_> = lines.collect();
    let first = lines.first().map(|(_, series)| series.as_slice());
    let loads = first
        .unwrap_or_default()
        .iter()
        .map(|(load, _)| grows(load));
    Column {
        title,
        marks: loads.collect(),
        lines,
    }
}

fn color(choice: Choice) -> RGBColor {
    match choice {
        Choice::Adaptive => OURS,
        Choice::Random => SECOND,
        _ => THEIRS,
    }
}

pub fn draw(report: &Report) -> Result<String, Missing> {
    use Choice::{Adaptive, OneRow, Random};
    let server = Server::measured(report, POSTGRESQL, LOCAL_DISK)?.with_cores(LARGE_CORES);
    let columns = [
        column(
            "writers of one process, 128 shards",
            &[OneRow, Random, Adaptive],
            |choice| by_writers(&server, choice),
            Load::all_writers,
        ),
        column(
            "shards, 256 writers in 8 processes",
            &[Random, Adaptive],
            |choice| by_shards(&server, choice),
            |load| load.shards,
        ),
        column(
            "processes of 8 writers, 128 shards",
            &[OneRow, Random, Adaptive],
            |choice| by_processes(&server, choice),
            |load| load.processes,
        ),
    ];
    let size = ((WIDTH * 3) as u32, (TOP + HEIGHT * 2 + 10) as u32);
    Ok(svg(size, |area| {
        let title = format!(
            "Simulated: one hot row, {POSTGRESQL}, {LARGE_CORES} cores, the disk that was measured"
        );
        write(area, &title, 16, (10, 16), HPos::Left)?;
        let names = [
            (Adaptive, "default"),
            (Random, "random shards"),
            (OneRow, "one row"),
        ];
        for (place, (choice, name)) in (0..).zip(names) {
            let x = 620 + 125 * place;
            let key = [(x, 16), (x + 22, 16)];
            area.draw(&PathElement::new(key, color(choice).stroke_width(3)))?;
            write(area, name, 13, (x + 28, 16), HPos::Left)?;
        }
        for (place, column) in (0..).zip(&columns) {
            let left = WIDTH * place;
            let per_second = |outcome: &Outcome| outcome.per_second;
            panel(
                area,
                (left, TOP),
                "counts a second",
                column,
                per_second,
                rate,
            )?;
            let p99 = |outcome: &Outcome| outcome.p99_us;
            panel(
                area,
                (left, TOP + HEIGHT),
                "p99 of a count",
                column,
                p99,
                time,
            )?;
        }
        Ok(())
    }))
}

fn panel(
    area: &Area<'_>,
    (left, top): (i32, i32),
    title: &str,
    column: &Column,
    value: fn(&Outcome) -> f64,
    number: fn(f64) -> String,
) -> Drawn {
    let (x0, x1) = (left + 70, left + WIDTH - 20);
    let (y0, y1) = (top + HEIGHT - 44, top + 12);
    write(area, title, 13, (x0, top), HPos::Left)?;
    let all = column.lines.iter().flat_map(|(_, series)| series);
    let greatest = all.map(|(_, outcome)| value(outcome)).fold(1.0, f64::max);
    let axis = TEXT.stroke_width(1);
    area.draw(&PathElement::new([(x0, y1), (x0, y0), (x1, y0)], axis))?;
    write(area, "0", 12, (x0 - 6, y0), HPos::Right)?;
    write(area, &number(greatest), 12, (x0 - 6, y1), HPos::Right)?;
    let last = column.marks.len().saturating_sub(1).max(1) as i32;
    let x = |mark: i32| x0 + (x1 - x0) * mark / last;
    for (mark, number) in (0..).zip(&column.marks) {
        write(
            area,
            &number.to_string(),
            11,
            (x(mark), y0 + 11),
            HPos::Center,
        )?;
    }
    write(
        area,
        column.title,
        12,
        ((x0 + x1) / 2, y0 + 26),
        HPos::Center,
    )?;
    for (choice, series) in &column.lines {
        let points = (0..).zip(series).map(|(mark, (_, outcome))| {
            let height = value(outcome) / greatest * f64::from(y0 - y1);
            (x(mark), (f64::from(y0) - height).round() as i32)
        });
        let points: Vec<_> = points.collect();
        area.draw(&PathElement::new(points, color(*choice).stroke_width(2)))?;
    }
    Ok(())
}
