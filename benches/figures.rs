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

/// Puts figures in place of braces.
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
}

fn begin(line: &str) -> Option<&str> {
    line.strip_prefix(BEGIN)?.strip_suffix(BEGIN_END)
}
