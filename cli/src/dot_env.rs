//! The file `.env`, here or above.

use std::env;
use std::fs;
use std::path::PathBuf;

/// A file that was read.
#[derive(Default)]
pub struct DotEnv {
    /// The nearest one, if there is one.
    pub file: Option<PathBuf>,
    /// One for each line that makes no sense.
    pub warnings: Vec<String>,
}

/// Sets the variables of the nearest file, except those that are set already. Its lines that make no sense are left out.
pub fn load() -> DotEnv {
    let Some(file) = find() else {
        return DotEnv::default();
    };
    let shown = file.display();
    let warnings = match fs::read(&file) {
        Ok(bytes) if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") => {
            vec![format!("{shown} is UTF-16, left out: save it as UTF-8")]
        }
        Ok(bytes) => {
            let (good, bad) = split(bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes));
            let bad = bad
                .iter()
                .map(|(line, why)| format!("{shown}, line {line}: {why}, left out"));
            let loaded = dotenvy::from_read(good.as_bytes());
            let failed = loaded
                .err()
                .map(|error| format!("{shown} cannot be read: {error}"));
            bad.chain(failed).collect()
        }
        Err(error) => vec![format!("{shown} cannot be read: {error}")],
    };
    DotEnv {
        file: Some(file),
        warnings,
    }
}

fn find() -> Option<PathBuf> {
    let here = env::current_dir().ok()?;
    let files = here.ancestors().map(|folder| folder.join(".env"));
    files.into_iter().find(|file| file.is_file())
}

/// Why a line is left out.
type Why = &'static str;

/// The lines that are left out, by their numbers.
type Bad = Vec<(usize, Why)>;

/// The text without the lines that cannot be read, and the numbers of these.
fn split(bytes: &[u8]) -> (String, Bad) {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let lines: Vec<_> = lines.map(|line| std::str::from_utf8(line).ok()).collect();
    let (mut good, mut bad) = (String::new(), vec![]);
    let mut at = 0;
    while let Some(rest) = lines.get(at..).filter(|rest| !rest.is_empty()) {
        match item(rest) {
            Ok((text, number)) => {
                good += &text;
                at += number;
            }
            // The lines behind it are read by themselves, whatever a quote in it opened.
            Err(why) => {
                at += 1;
                bad.push((at, why));
            }
        }
    }
    (good, bad)
}

const NO_VARIABLE: Why = "not NAME=VALUE";
const NOT_UTF_8: Why = "not UTF-8";
const UNCLOSED: Why = "its quote has no end";

/// The variable, blank line or comment that begins here, with the number of its lines.
fn item(lines: &[Option<&str>]) -> Result<(String, usize), Why> {
    let mut text = String::new();
    for (line, number) in lines.iter().zip(1..) {
        let line = line.ok_or(if number == 1 { NOT_UTF_8 } else { UNCLOSED })?;
        let mut quotes = line.match_indices(QUOTES);
        let closes = |at: usize| is_read(&(text.clone() + &line[..=at]));
        match quotes.find(|(at, _)| closes(*at)) {
            Some((at, _)) if number > 1 && !ends_value(line, at) => return Err(UNCLOSED),
            None if number == 1 && !is_read(line) && !is_open(line) => return Err(NO_VARIABLE),
            _ => text += line,
        }
        if is_read(&text) {
            return Ok((ended(&text), number));
        }
    }
    Err(UNCLOSED)
}

const QUOTES: [char; 2] = ['"', '\''];

/// Whether the line begins a value between quotes.
fn is_open(line: &str) -> bool {
    line.contains('=') && line.contains(QUOTES)
}

/// Whether the quote here ends a value of several lines: nothing follows, and it is not the one that begins the value of another name.
fn ends_value(line: &str, quote: usize) -> bool {
    let (before, behind) = (line[..quote].trim_end(), line[quote + 1..].trim_start());
    let begins_another = before.ends_with('=') && is_read(before);
    (behind.is_empty() || behind.starts_with('#')) && !begins_another
}

/// The last line may have no end, and dotenvy wants one behind a blank.
fn ended(text: &str) -> String {
    text.trim_end_matches(['\r', '\n']).to_owned() + "\n"
}

/// Whether it is a variable that the environment takes, or nothing at all.
fn is_read(text: &str) -> bool {
    let is_fine = |item: dotenvy::Result<(String, String)>| {
        item.is_ok_and(|(name, value)| !name.contains('\0') && !value.contains('\0'))
    };
    dotenvy::from_read_iter(ended(text).as_bytes()).all(is_fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> (Vec<(String, String)>, Bad) {
        let (good, bad) = split(text);
        let items = dotenvy::from_read_iter(good.as_bytes());
        (items.map(Result::unwrap).collect(), bad)
    }

    fn names(text: &[u8]) -> (String, Vec<usize>) {
        let (items, bad) = read(text);
        let names: Vec<_> = items.into_iter().map(|(name, _)| name).collect();
        (
            names.join(" "),
            bad.into_iter().map(|(line, _)| line).collect(),
        )
    }

    #[test]
    fn bad_lines_are_left_out_and_named() {
        let text =
            b"# a comment, it's\nA=1\n\nthis is no variable\nB='two\nlines'\nexport C=3 # so\n=4\nD=5";
        assert_eq!(names(text), ("A B C D".to_owned(), vec![4, 8]));
        assert_eq!(names(b""), (String::new(), vec![]));
        assert_eq!(names(b"A=1\nB"), ("A".to_owned(), vec![2]));
        assert_eq!(names(b"A=\0\nB=1\n"), ("B".to_owned(), vec![1]));
        assert_eq!(names(b"A=\xff\nB=1\n"), ("B".to_owned(), vec![1]));
        assert_eq!(names(b"A=1 \r\nB=2 "), ("A B".to_owned(), vec![]));
    }

    /// It swallows no later line.
    #[test]
    fn a_quote_that_nothing_ends_is_one_bad_line() {
        for text in [
            &b"A=1\nB='x\nC=3\n"[..],
            b"A=1\nB=\"x\nC=3\n",
            b"A=1\nB='x\nC='3'\n",
            b"A=1\nB='x\nC=''\n",
            b"A=1\nB='x\nexport C = 'it is'\n",
            b"A=1\nB=it's\nC='3' # the quote's end\n",
        ] {
            let shown = String::from_utf8_lossy(text);
            assert_eq!(names(text), ("A C".to_owned(), vec![2]), "{shown}");
        }
        let text = b"A=\"a=1\nb=2\" # both\nB='\\'\nC=\"x\n\xff\"\nD=4";
        let (items, bad) = read(text);
        assert_eq!(items[0], ("A".to_owned(), "a=1\nb=2".to_owned()));
        assert_eq!(items[1], ("D".to_owned(), "4".to_owned()));
        assert_eq!(bad, [(3, UNCLOSED), (4, UNCLOSED), (5, NOT_UTF_8)]);
    }
}
