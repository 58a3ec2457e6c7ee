//! Results on standard output, notes on standard error, and on a terminal the progress of a command.

use std::env;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::builder::styling::Style;
use serde::Serialize;

use crate::error::Error;

pub fn line(line: &str) -> Result<(), Error> {
    match writeln!(io::stdout(), "{line}") {
        // A reader such as `head` has seen enough; the work continues.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.map_err(unwritten),
    }
}

fn unwritten(error: io::Error) -> Error {
    Error::Refused(format!("the output cannot be written: {error}"))
}

/// The word in this style, if standard output is a terminal and [NO_COLOR](https://no-color.org) is not set.
pub fn styled(word: &str, style: Style) -> String {
    let refused = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    match io::stdout().is_terminal() && !refused {
        true => format!("{style}{word}{style:#}"),
        false => word.to_owned(),
    }
}

/// Prints a note beside the results.
pub fn note(note: &str) {
    // If standard error is closed, nobody wants notes.
    let _ = writeln!(io::stderr(), "{note}");
}

/// Prints a value for other programs.
pub fn json(value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value);
    line(&text.map_err(|error| unwritten(error.into()))?)
}

/// A row of a table: the cells with the names of their columns.
pub type Cells<'n> = Vec<(&'n str, String)>;

/// Prints columns under their names, with numbers aligned to the right.
pub fn table(rows: &[Cells<'_>]) -> Result<(), Error> {
    aligned(rows).iter().try_for_each(|row| line(row))
}

fn aligned(rows: &[Cells<'_>]) -> Vec<String> {
    let head = rows.iter().take(1);
    let head = head.map(|row| row.iter().map(|(name, _)| *name).collect());
    let cells = rows.iter();
    let cells = cells.map(|row| row.iter().map(|(_, cell)| &**cell).collect());
    let lines: Vec<Vec<&str>> = head.chain(cells).collect();
    let is_number = |cell: &str| {
        let number = cell.trim_end_matches('%');
        let number = number.trim_start_matches(['~', '>', '=']);
        number.parse::<f64>().is_ok() || cell == "-"
    };
    let column = |i: usize| {
        let width = lines.iter().map(|line| line[i].chars().count()).max();
        let is_right = lines[1..].iter().all(|line| is_number(line[i]));
        (width.unwrap_or(0), is_right)
    };
    let columns = lines.first().map_or(0, Vec::len);
    let columns: Vec<_> = (0..columns).map(column).collect();
    let line = |cells: &Vec<&str>| {
        let cells = cells.iter().zip(&columns);
        let cells = cells.map(|(cell, (width, is_right))| match is_right {
            true => format!("{cell:>width$}"),
            false => format!("{cell:<width$}"),
        });
        joined("  ", cells).trim_end().to_owned()
    };
    lines.iter().map(line).collect()
}

/// Joins items with `separator` in between.
pub fn joined(separator: &str, items: impl IntoIterator<Item = impl ToString>) -> String {
    let items: Vec<_> = items.into_iter().map(|item| item.to_string()).collect();
    items.join(separator)
}

/// A value in a table, or `-`.
pub fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// `1 row`, `2 rows`
pub fn plural(n: u64, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}

/// The progress of a command. If standard error is a terminal, it is noted at first, and then at most every second.
#[derive(Debug)]
pub struct Progress {
    what: String,
    noted: Option<Instant>,
}

impl Progress {
    pub fn of(what: impl ToString) -> Self {
        let what = what.to_string();
        let mut progress = Progress { what, noted: None };
        progress.at(0);
        progress
    }

    pub fn at(&mut self, rows: u64) {
        let is_due = |noted: Instant| noted.elapsed() >= Duration::from_secs(1);
        if self.noted.is_none_or(is_due) && io::stderr().is_terminal() {
            note(&format!("{}: {} so far", self.what, plural(rows, "row")));
            self.noted = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let row =
            |table, rows: &str| vec![("table", String::from(table)), ("rows", rows.to_owned())];
        assert_eq!(
            aligned(&[row("videos", "7"), row("é", "1200")]),
            ["table   rows", "videos     7", "é       1200"]
        );
    }
}
