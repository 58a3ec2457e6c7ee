//! The picture in the README and on the page of benchmarks, drawn from the report. It has no background, and colours that stand out on
//! light and on dark pages. The axis begins at zero.

use std::path::PathBuf;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::names::*;
use crate::report::{Missing, Report, folder};

const TEXT: RGBColor = RGBColor(110, 119, 129);
const THEIRS: RGBColor = RGBColor(125, 138, 153);
const OURS: RGBColor = RGBColor(47, 129, 247);

/// Where the picture is kept.
pub fn path() -> PathBuf {
    folder().join("one-hot-row.svg")
}

/// Six ways to count one hot row of PostgreSQL. Combined, the last way shares commits and has a scale of its own, beside the way that
/// does not.
pub fn one_hot_row(report: &Report) -> Result<String, Missing> {
    const COMMITS: [(&str, &str); 5] = [
        ("one row, diesel::update", ONE_ROW),
        ("one row, prepared by hand", PREPARED),
        ("100 slots, prepared by hand", SLOTTED_PREPARED),
        ("append-only INSERT, prepared", APPEND_ONLY_PREPARED),
        ("diesel_sharded::update", DEFAULT),
    ];
    const SHARES: [(&str, &str); 2] = [
        ("diesel_sharded::update", DEFAULT),
        ("the same, combined", COMBINED),
    ];
    let part = report.part(DISKS, POSTGRESQL)?;
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, (900, 244)).into_drawing_area();
    let write = |text: &str, size, at: (i32, i32), side| {
        let style = TextStyle::from(("sans-serif", size)).color(&TEXT);
        let style = style.pos(Pos::new(side, VPos::Center));
        area.draw(&Text::new(text.to_owned(), at, style))
            .expect("a text takes any drawing");
    };
    let title = "Increments a second on one hot row of PostgreSQL: 64 threads, each waits for its commit (fsync)";
    write(title, 16, (10, 18), HPos::Left);
    let panel = |name, ways: &[(&str, &str)], labels: i32, width: i32| {
        let rates = ways
            .iter()
            .map(|(_, entrant)| Ok(part.cell(LOCAL_DISK, 64, entrant)?.per_second));
        let rates: Vec<f64> = rates.collect::<Result<_, Missing>>()?;
        let greatest = rates.iter().copied().fold(1.0, f64::max);
        write(name, 15, (labels, 50), HPos::Left);
        for (line, ((label, entrant), rate)) in (0..).zip(ways.iter().zip(rates)) {
            let y = 82 + 34 * line;
            let end = labels + (rate / greatest * f64::from(width)).round() as i32;
            let color = if [DEFAULT, COMBINED].contains(entrant) {
                OURS
            } else {
                THEIRS
            };
            let bar = Rectangle::new([(labels, y - 11), (end, y + 11)], color.filled());
            area.draw(&bar).expect("a text takes any drawing");
            write(label, 15, (labels - 12, y), HPos::Right);
            write(&crate::figures::rate(rate), 15, (end + 6, y), HPos::Left);
        }
        Ok::<(), Missing>(())
    };
    panel("each increment commits", &COMMITS, 220, 190)?;
    panel("on another scale: threads share commits", &SHARES, 650, 170)?;
    area.present().expect("a text takes any drawing");
    drop(area);
    Ok(text)
}
