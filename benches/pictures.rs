//! The picture in the README and on the page of benchmarks, drawn from the report. It has no background, and colours that stand out on
//! light and on dark pages. The axis begins at zero.

use std::path::PathBuf;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::names::*;
use crate::report::{Missing, Report, folder};

const TEXT: RGBColor = RGBColor(125, 133, 144);
const THEIRS: RGBColor = RGBColor(140, 155, 171);
const OURS: RGBColor = RGBColor(47, 129, 247);

/// Where the picture is kept.
pub fn path() -> PathBuf {
    folder().join("one-hot-row.svg")
}

/// Six ways to count one hot row, on PostgreSQL, on MariaDB with its binary log, and on SQLite.
pub fn one_hot_row(report: &Report) -> Result<String, Missing> {
    const WAYS: [(&str, &str); 6] = [
        ("one row, diesel::update", ONE_ROW),
        ("one row, prepared by hand", PREPARED),
        ("100 slots, prepared by hand", SLOTTED_PREPARED),
        ("append-only INSERT, prepared", APPEND_ONLY_PREPARED),
        ("diesel_sharded::update", DEFAULT),
        ("the same, combined", COMBINED),
    ];
    const LABELS: i32 = 225;
    const PANEL: i32 = 222;
    const BAR: i32 = 150;
    const LINE: i32 = 34;
    let mut panels = vec![];
    for database in [POSTGRESQL, MARIADB, SQLITE] {
        let part = report.part(LEAD, database)?;
        let rates = WAYS.map(|(_, entrant)| match part.cell(LOCAL_DISK, 64, entrant) {
            Err(_) if database == SQLITE => Ok(None), // slots are not measured there
            cell => Ok(Some(cell?.per_second)),
        });
        let rates: Result<Vec<_>, Missing> = rates.into_iter().collect();
        panels.push((database, rates?));
    }
    let all = panels.iter().flat_map(|(_, rates)| rates).flatten();
    let greatest = all.copied().fold(1.0, f64::max);
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, (900, 274)).into_drawing_area();
    let write = |text: &str, size, at: (i32, i32), side| {
        let style = TextStyle::from(("sans-serif", size)).color(&TEXT);
        let style = style.pos(Pos::new(side, VPos::Center));
        area.draw(&Text::new(text.to_owned(), at, style))
            .expect("a text takes any drawing");
    };
    let title = "Counts a second on one hot row: 64 threads, each waits for its commits (fsync, MariaDB with its binary log)";
    write(title, 16, (10, 18), HPos::Left);
    for (line, (label, _)) in (0..).zip(WAYS) {
        write(label, 15, (LABELS - 12, 82 + LINE * line), HPos::Right);
    }
    for (panel, (database, rates)) in (0..).zip(&panels) {
        let x = LABELS + PANEL * panel;
        write(database, 15, (x, 50), HPos::Left);
        for (line, (&rate, (_, entrant))) in (0..).zip(rates.iter().zip(WAYS)) {
            let Some(rate) = rate else { continue };
            let y = 82 + LINE * line;
            let end = x + (rate / greatest * f64::from(BAR)).round() as i32;
            let color = match entrant {
                DEFAULT | COMBINED => OURS,
                _ => THEIRS,
            };
            let bar = Rectangle::new([(x, y - 11), (end, y + 11)], color.filled());
            area.draw(&bar).expect("a text takes any drawing");
            write(&crate::figures::rate(rate), 15, (end + 6, y), HPos::Left);
        }
    }
    area.present().expect("a text takes any drawing");
    drop(area);
    Ok(text)
}
