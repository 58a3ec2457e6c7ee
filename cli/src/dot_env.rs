//! The file `.env`, here or above.

use std::cell::Cell;
use std::env;
use std::fs;
use std::io::{self, Read};
use std::path::PathBuf;

/// Sets the variables of the nearest file, except those that are set already. Its lines that make no sense are left out; about each of
/// them there is a warning.
pub fn load() -> Vec<String> {
    let Some(file) = find() else {
        return vec![];
    };
    let shown = file.display();
    let text = match fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) => return vec![format!("{shown} cannot be read: {error}")],
    };
    let text = text.trim_start_matches('\u{feff}');
    let (good, bad) = split(text);
    let mut warnings: Vec<_> = bad
        .iter()
        .map(|line| format!("{shown}, line {line}: not NAME=VALUE, left out"))
        .collect();
    if let Err(error) = dotenvy::from_read(good.as_bytes()) {
        warnings.push(format!("{shown} cannot be read: {error}"));
    }
    warnings
}

fn find() -> Option<PathBuf> {
    let here = env::current_dir().ok()?;
    let files = here.ancestors().map(|folder| folder.join(".env"));
    files.into_iter().find(|file| file.is_file())
}

/// The text without the lines that cannot be read, and the numbers of these, by their first line.
fn split(text: &str) -> (String, Vec<usize>) {
    let lines: Vec<_> = text.split_inclusive('\n').collect();
    let read = Cell::new(0);
    let reader = Lines {
        lines: lines.iter().copied(),
        rest: &[],
        read: &read,
    };
    let (mut good, mut bad) = (String::new(), vec![]);
    let mut before = 0;
    for item in dotenvy::from_read_iter(reader) {
        // Blank lines and comments before it, and values of several lines, belong to an item.
        let until = read.get();
        let of_item = lines.get(before..until).unwrap_or_default();
        before = until;
        match item {
            // The environment takes no value with a NUL.
            Ok((name, value)) if name.contains('\0') || value.contains('\0') => bad.push(until),
            Ok(_) => good.extend(of_item.iter().copied()),
            Err(dotenvy::Error::LineParse(line, _)) => {
                let more = line.trim_end().matches('\n').count();
                bad.push(until.saturating_sub(more).max(1));
            }
            Err(_) => bad.push(until),
        }
    }
    (good, bad)
}

/// Hands out a line at a time, and counts them.
struct Lines<'a, I> {
    lines: I,
    rest: &'a [u8],
    read: &'a Cell<usize>,
}

impl<'a, I: Iterator<Item = &'a str>> Read for Lines<'a, I> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if self.rest.is_empty() {
            if let Some(line) = self.lines.next() {
                self.rest = line.as_bytes();
                self.read.set(self.read.get() + 1);
            }
        }
        self.rest.read(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_lines_are_left_out_and_named() {
        let text =
            "# a comment\nA=1\n\nthis is no variable\nB='two\nlines'\nexport C=3 # so\n=4\nD=5";
        let (good, bad) = split(text);
        assert_eq!(bad, [4, 8]);
        let names = dotenvy::from_read_iter(good.as_bytes()).map(|item| item.unwrap().0);
        assert_eq!(names.collect::<Vec<_>>(), ["A", "B", "C", "D"]);
        assert_eq!(split(""), (String::new(), vec![]));
        assert_eq!(split("A=1\nB").1, [2]);
        assert_eq!(split("A=\0\nB=1\n"), ("B=1\n".to_owned(), vec![1]));
        // A quote that nothing ends reaches to the end.
        assert_eq!(split("A=1\nB='x\nC=3\n").1, [2]);
    }
}
