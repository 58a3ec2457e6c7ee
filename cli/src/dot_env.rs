//! The file `.env`, in this folder or one above.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// Sets the variables of the nearest file, if there is one, except variables that are set already. Returns the file, with a warning if it
/// could not be read to its end.
pub fn load() -> Option<(PathBuf, Option<String>)> {
    let here = env::current_dir().ok()?;
    let mut files = here.ancestors().map(|folder| folder.join(".env"));
    let file = files.find(|file| file.is_file())?;
    let why = set(&file).err();
    let warning = why.map(|why| format!("{}{why}", file.display()));
    Some((file, warning))
}

/// Stops at a line that is not an assignment.
fn set(file: &Path) -> Result<(), String> {
    let text = fs::read_to_string(file).map_err(|error| format!(" cannot be read: {error}"))?;
    dotenvy::from_read(text.trim_end().as_bytes()).map_err(|error| match error {
        // Only the line's number: its text may be a password.
        dotenvy::Error::LineParse(line, _) => {
            let begins = |other: &str| line.lines().next() == Some(other);
            let number = text.lines().position(begins).map_or(1, |i| i + 1);
            format!(", line {number}: not NAME=VALUE; it and what is behind it are left out")
        }
        error => format!(" cannot be read: {error}"),
    })
}
