//! The figures in the documentation: each block between `<!-- figures: NAME -->` and `<!-- /figures -->` is rendered from the
//! report, tables and sentences alike, as `figures/blocks.txt` has it.

mod figure;
mod numbers;

use std::fs;
use std::path::{Path, PathBuf};

use self::figure::figure;
pub use self::numbers::rate;
use crate::report::{Missing, Report};

const BEGIN: &str = "<!-- figures: ";
const BEGIN_END: &str = " -->";
const END: &str = "<!-- /figures -->";

/// The names of the blocks, and what they hold.
pub fn blocks() -> impl Iterator<Item = (&'static str, &'static str)> {
    let blocks = include_str!("figures/blocks.txt").split("\n# ").skip(1);
    let blocks = blocks.filter_map(|block| block.split_once('\n'));
    blocks.map(|(name, text)| (name, text.trim()))
}

/// Renders the block of this name.
fn render(name: &str, report: &Report) -> Result<String, String> {
    let block = blocks().find(|(of, _)| *of == name);
    let (_, text) = block.ok_or_else(|| format!("there is no block of figures {name:?}"))?;
    let paragraphs = text.split("\n\n").map(|paragraph| {
        if paragraph.starts_with('|') {
            return fill(paragraph, report);
        }
        Ok(broken(&fill(&paragraph.replace('\n', " "), report)?))
    });
    let paragraphs: Result<Vec<_>, _> = paragraphs.collect();
    let paragraphs = paragraphs.map_err(|Missing(what)| format!("{name:?}: there is no {what}"))?;
    Ok(paragraphs.join("\n\n"))
}

/// Puts figures in the place of braces.
fn fill(text: &str, report: &Report) -> Result<String, Missing> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, begun)) = rest.split_once('{') {
        let unclosed = || Missing(format!("end of the brace {begun:?}"));
        let (name, after) = begun.split_once('}').ok_or_else(unclosed)?;
        filled.push_str(before);
        filled.push_str(&figure(report, name)?);
        rest = after;
    }
    Ok(filled + rest)
}

/// The width of a line of text.
const WIDTH: usize = 130;

/// Breaks a paragraph into lines.
fn broken(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("at least one line");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines.join("\n")
}

/// A Markdown file of the repository.
pub struct Document {
    /// The path from the repository's root.
    pub name: String,
    pub text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The README, the guide's chapters, the reference pages and those in `docs/`.
///
/// # Panics
/// If one of them cannot be read.
pub fn documents() -> Vec<Document> {
    let mut names = vec!["README.md".to_owned()];
    for folder in ["src/guide", "src/reference", "docs"] {
        let files = fs::read_dir(root().join(folder)).expect("a folder of documents");
        let files = files.map(|file| file.expect("a file").file_name());
        let files = files.map(|name| name.to_string_lossy().into_owned());
        let pages = files.filter(|name| name.ends_with(".md"));
        names.extend(pages.map(|name| format!("{folder}/{name}")));
    }
    names.sort();
    let documents = names.into_iter().map(|name| Document {
        text: fs::read_to_string(root().join(&name)).expect("a document"),
        name,
    });
    documents.collect()
}

impl Document {
    /// The names of its blocks.
    pub fn blocks(&self) -> impl Iterator<Item = &str> {
        self.text.lines().filter_map(begin)
    }

    /// Its text with every block as the report has it, or the reason why a block cannot be rendered.
    pub fn with_figures(&self, report: &Report) -> Result<String, String> {
        let in_document = |why| format!("{}: {why}", self.name);
        let mut text = String::new();
        let mut open = false;
        for line in self.text.lines() {
            if let Some(name) = begin(line) {
                if open {
                    return Err(in_document(format!("{name:?} begins inside a block")));
                }
                let figures = render(name, report).map_err(in_document)?;
                text.push_str(&format!("{line}\n\n{figures}\n\n{END}\n"));
                open = true;
            } else if line == END {
                if !open {
                    return Err(in_document(format!("{END} ends no block")));
                }
                open = false;
            } else if !open {
                text.push_str(line);
                text.push('\n');
            }
        }
        match open {
            true => Err(in_document("a block has no end".into())),
            false => Ok(text),
        }
    }

    /// Writes the text in place of the document's own.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn write(&self, text: &str) {
        fs::write(root().join(&self.name), text).expect("a document");
    }

    /// The lines outside of blocks that have a figure: a number of thousands or millions, or of something a second.
    pub fn figures_by_hand(&self) -> Vec<&str> {
        let mut in_block = false;
        let lines = self.text.lines().filter(|line| {
            if begin(line).is_some() || *line == END {
                in_block = *line != END;
            }
            !in_block && has_figure(line)
        });
        lines.collect()
    }
}

fn begin(line: &str) -> Option<&str> {
    line.strip_prefix(BEGIN)?.strip_suffix(BEGIN_END)
}

fn has_figure(line: &str) -> bool {
    let is_digit = |c: char| c.is_ascii_digit();
    let has_thousands = line
        .split(|c: char| !is_digit(c) && c != ',')
        .any(|number| {
            let mut groups = number.split(',');
            let starts = groups.next().is_some_and(|first| !first.is_empty());
            starts && groups.any(|group| group.len() == 3)
        });
    let words: Vec<_> = line.split_whitespace().collect();
    let has_unit = words.windows(2).enumerate().any(|(at, pair)| {
        let unit = pair[1].trim_end_matches(|c: char| !c.is_alphanumeric());
        let is_rate = words[at + 1..].windows(2).take(4).any(|words| {
            words[0] == "a" && words[1].trim_end_matches(|c: char| !c.is_alphabetic()) == "second"
        });
        pair[0].starts_with(is_digit) && (unit == "million" || is_rate)
    });
    has_thousands || has_unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_told_from_other_numbers() {
        let figures = [
            "threads make 18,333 counts",
            "| one row | 2,227 |",
            "560 counts a second, at best",
            "about 13 million",
            "9 updates of it a second.",
        ];
        for line in figures {
            assert!(has_figure(line), "{line}");
        }
        let others = [
            "64 threads on 2 cores",
            "a second connection, and 2 others",
            "5.0, 6.3 times",
            "2026-11-22, 15.18 and 10.11.19",
            "about a thousand counts a second",
        ];
        for line in others {
            assert!(!has_figure(line), "{line}");
        }
    }

    #[test]
    fn figures_outside_of_blocks_are_found() {
        let text =
            "1,000 by hand\n<!-- figures: lead -->\n2,000\n<!-- /figures -->\n3,000 by hand\n";
        let document = Document {
            name: "page.md".into(),
            text: text.into(),
        };
        assert_eq!(
            document.figures_by_hand(),
            ["1,000 by hand", "3,000 by hand"]
        );
    }
}
