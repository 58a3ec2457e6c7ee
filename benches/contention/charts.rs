//! The charts of the measurements, as SVG.

use std::error::Error;
use std::ops::Range;
use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use crate::load::Cell;
use crate::results::Results;

const SIZE: (u32, u32) = (1000, 560);
const LEGEND: u32 = 280;
const FONT: (&str, i32) = ("sans-serif", 15);
const COLORS: [RGBColor; 13] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 39, 40),
    RGBColor(44, 160, 44),
    RGBColor(255, 127, 14),
    RGBColor(148, 103, 189),
    RGBColor(140, 86, 75),
    RGBColor(227, 119, 194),
    RGBColor(23, 190, 207),
    RGBColor(188, 189, 34),
    RGBColor(127, 127, 127),
    RGBColor(0, 0, 0),
    RGBColor(0, 100, 0),
    RGBColor(90, 0, 160),
];

/// A line of a chart.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// Draws throughput and latency by the number of threads, a chart for each database and disk, and the rates beside an old snapshot.
pub fn draw(results: &Results, folder: &Path) {
    let same = |a: &Cell, b: &Cell| {
        (a.scene.section, a.database, a.disk, a.scene.keys)
            == (b.scene.section, b.database, b.disk, b.scene.keys)
    };
    for cells in results.cells.chunk_by(same) {
        let first = &cells[0];
        let is_one_number = cells
            .iter()
            .all(|cell| cell.scene.threads == first.scene.threads);
        if is_one_number || first.scene.shape.is_some() {
            continue;
        }
        let (section, database, disk) = (first.scene.section, first.database, first.disk.name());
        let title = format!("{section}: {database}, {disk}");
        let name = format!("{section}-{database}-{disk}")
            .to_lowercase()
            .replace([' ', '+'], "-");
        let greatest = cells
            .iter()
            .map(|cell| cell.scene.threads)
            .max()
            .unwrap_or(1);
        let threads = || (1.0..greatest as f64).log_scale().base(2.0);
        let rates = lines(cells, |cell| Some(cell.rate));
        let p99s = lines(cells, |cell| Some(cell.latencies[2]?.as_secs_f64() * 1e6));
        save(
            &folder.join(format!("{name}.svg")),
            &format!("{title}, per second, by threads"),
            "threads",
            threads(),
            &rates,
        );
        save(
            &folder.join(format!("{name}-p99.svg")),
            &format!("{title}, p99 in µs, by threads"),
            "threads",
            threads(),
            &p99s,
        );
    }
    let courses = results.courses.iter().map(|course| Line {
        name: format!(
            "{}{}",
            course.contender,
            if course.pinned { ", old snapshot" } else { "" }
        ),
        points: (1..)
            .map(f64::from)
            .zip(course.rates.iter().copied())
            .collect(),
    });
    let courses: Vec<_> = courses.collect();
    if !courses.is_empty() {
        let title = "PostgreSQL, one hot row: counts per second, by tenths of the counts";
        save(
            &folder.join("snapshot.svg"),
            title,
            "tenths",
            1.0..10.0,
            &courses,
        );
    }
}

fn lines(cells: &[Cell], value: impl Fn(&Cell) -> Option<f64>) -> Vec<Line> {
    let mut lines: Vec<Line> = vec![];
    for cell in cells {
        let Some(value) = value(cell) else { continue };
        let point = (cell.scene.threads as f64, value);
        match lines.iter_mut().find(|line| line.name == cell.entrant) {
            Some(line) => line.points.push(point),
            None => lines.push(Line {
                name: cell.entrant.to_owned(),
                points: vec![point],
            }),
        }
    }
    lines
}

fn save<X>(file: &Path, title: &str, x_name: &str, x: X, lines: &[Line])
where
    X: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
{
    let root = SVGBackend::new(file, SIZE).into_drawing_area();
    let drawn = draw_lines(&root, title, x_name, x, lines);
    drawn
        .and_then(|()| Ok(root.present()?))
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
}

fn draw_lines<X>(
    root: &DrawingArea<SVGBackend<'_>, Shift>,
    title: &str,
    x_name: &str,
    x: X,
    lines: &[Line],
) -> Result<(), Box<dyn Error>>
where
    X: AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64>>,
{
    root.fill(&WHITE)?;
    let (plot, legend) = root.split_horizontally(SIZE.0 - LEGEND);
    let points = || lines.iter().flat_map(|line| &line.points);
    let mut chart = ChartBuilder::on(&plot)
        .caption(title, ("sans-serif", 18))
        .margin(10)
        .x_label_area_size(40)
        .y_label_area_size(80)
        .build_cartesian_2d(x, decades(points().map(|point| point.1)).log_scale())?;
    let mesh = &mut chart.configure_mesh();
    mesh.x_desc(x_name)
        .label_style(FONT)
        .x_label_formatter(&whole)
        .y_label_formatter(&whole)
        .draw()?;
    for (i, line) in lines.iter().enumerate() {
        let color = COLORS[i % COLORS.len()];
        chart.draw_series(LineSeries::new(
            line.points.iter().copied(),
            color.stroke_width(2),
        ))?;
        let y = 50 + 24 * i as i32;
        legend.draw(&PathElement::new([(0, y), (24, y)], color.stroke_width(3)))?;
        legend.draw(&Text::new(line.name.clone(), (30, y - 8), FONT))?;
    }
    Ok(())
}

fn whole(value: &f64) -> String {
    format!("{value:.0}")
}

/// The powers of ten around all values: the axis has its labels there.
fn decades(values: impl Iterator<Item = f64>) -> Range<f64> {
    let logs = values.map(|value| value.max(1.0).log10());
    let (least, greatest) = logs.fold((f64::INFINITY, 1.0_f64), |(least, greatest), log| {
        (least.min(log), greatest.max(log))
    });
    10_f64.powf(least.min(greatest - 1.0).floor())..10_f64.powf(greatest.ceil())
}
