//! The two files of a migration: printed, written, or compared with those that are there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::args::GenerateArgs;
use crate::error::Error;
use crate::exit::Ended;
use crate::migration_dir;
use crate::output::Output;

/// The two files of a migration.
pub struct Files {
    pub up: String,
    pub down: String,
}

impl Files {
    fn named(&self) -> [(&'static str, &str); 2] {
        [("up.sql", &self.up), ("down.sql", &self.down)]
    }
}

/// Prints both files, compares them with the newest ones, or writes them.
pub fn deliver(
    files: &Files,
    name: &str,
    args: &GenerateArgs,
    out: &mut Output,
) -> Result<Ended, Error> {
    if args.print {
        out.line(&format!("-- {name}/up.sql\n{}", files.up))?;
        out.line(&format!("-- {name}/down.sql\n{}", files.down.trim_end()))?;
        return Ok(Ended::Done);
    }
    let folder = match &args.migration_dir {
        Some(folder) => folder.clone(),
        None => migration_dir::find()?,
    };
    match args.locked {
        true => compare(files, &folder, name, out),
        false => write(files, &folder, name, out),
    }
}

/// A table's name as a part of a folder's.
pub fn file_name(table: &str) -> String {
    let plain = |c: char| {
        if c.is_alphanumeric() || c == '_' {
            c
        } else {
            '_'
        }
    };
    table.chars().map(plain).collect()
}

fn write(files: &Files, folder: &Path, name: &str, out: &mut Output) -> Result<Ended, Error> {
    fs::create_dir_all(folder).map_err(|source| Error::file(folder, source))?;
    let time = chrono::Utc::now().format("%Y-%m-%d-%H%M%S").to_string();
    let version = free_version(&time, &versions(folder)?);
    create(files, &folder.join(format!("{version}_{name}")), out)?;
    Ok(Ended::Done)
}

/// The time, or with a number behind it, as the `diesel` CLI writes it, where a migration of the same second has that version: Diesel runs
/// one migration of each version.
fn free_version(time: &str, taken: &[String]) -> String {
    let numbered = (0..=u16::MAX).map(|number| format!("{time}-{number:04x}"));
    let mut versions = std::iter::once(time.to_owned()).chain(numbered);
    let is_free = |version: &String| !taken.contains(&version.replace('-', ""));
    // 65,000 of one second are all taken only where somebody made them.
    versions.find(is_free).unwrap_or_else(|| time.to_owned())
}

/// The versions of the migrations in a folder, as Diesel reads them.
fn versions(folder: &Path) -> Result<Vec<String>, Error> {
    let entries = fs::read_dir(folder).map_err(|source| Error::file(folder, source))?;
    let versions = entries.map(|entry| {
        let name = entry
            .map_err(|source| Error::file(folder, source))?
            .file_name();
        let name = name.to_string_lossy();
        let version = name.split('_').next().unwrap_or_default();
        Ok(version.replace('-', ""))
    });
    versions.collect()
}

fn create(files: &Files, folder: &Path, out: &mut Output) -> Result<(), Error> {
    // Files that are there already stay.
    fs::create_dir(folder).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => Error::MigrationExists(folder.to_owned()),
        _ => Error::file(folder, source),
    })?;
    for (file, text) in files.named() {
        let file = folder.join(file);
        fs::write(&file, text).map_err(|source| Error::file(&file, source))?;
        out.line(&format!("Creating {}", shown(&file)))?;
    }
    Ok(())
}

/// When a migration of a fixed name was written.
pub enum Written {
    Now,
    Before,
    /// Before, and with another text.
    Otherwise,
}

/// Writes the migration in this folder, or compares it with the one that is there.
pub fn write_once(files: &Files, folder: &Path, out: &mut Output) -> Result<Written, Error> {
    match folder.is_dir() {
        false => {
            let parent = folder.parent().unwrap_or(Path::new("."));
            fs::create_dir_all(parent).map_err(|source| Error::file(parent, source))?;
            create(files, folder, out).map(|()| Written::Now)
        }
        true => Ok(match differs(files, folder, out)? {
            true => Written::Otherwise,
            false => Written::Before,
        }),
    }
}

/// Whether the newest migration of this name is what would be written.
fn compare(files: &Files, folder: &Path, name: &str, out: &mut Output) -> Result<Ended, Error> {
    let Some(newest) = newest(folder, name)? else {
        out.note(&format!(
            "there is no migration `…_{name}` in {}: write it by `diesel-sharded generate` without --locked",
            shown(folder)
        ));
        return Ok(Ended::LeftOver);
    };
    if differs(files, &newest, out)? {
        return Ok(Ended::LeftOver);
    }
    out.line(&format!("{} is up to date", shown(&newest)))?;
    Ok(Ended::Done)
}

/// Whether the files in this folder have other texts, and which texts they should have.
fn differs(files: &Files, folder: &Path, out: &Output) -> Result<bool, Error> {
    let mut differs = false;
    for (file, text) in files.named() {
        let file = folder.join(file);
        let there = fs::read_to_string(&file).map_err(|source| Error::file(&file, source))?;
        if there.trim() != text.trim() {
            out.note(&format!(
                "{} is not what would be written now:\n{}",
                shown(&file),
                text.trim_end()
            ));
            differs = true;
        }
    }
    Ok(differs)
}

fn newest(folder: &Path, name: &str) -> Result<Option<PathBuf>, Error> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries.map_err(|source| Error::file(folder, source))?,
    };
    let mut found = vec![];
    for entry in entries {
        let path = entry.map_err(|source| Error::file(folder, source))?.path();
        let file_name = path.file_name().and_then(|file_name| file_name.to_str());
        let version = file_name.and_then(|f| f.strip_suffix(name)?.strip_suffix('_'));
        let is_version = |version: &str| {
            !version.is_empty() && version.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
        };
        if let Some(version) = version.filter(|version| is_version(version)) {
            found.push((version.replace('-', ""), path));
        }
    }
    Ok(found.into_iter().max().map(|(_, path)| path))
}

/// As a path from here, where it is one.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(here)
        .unwrap_or(path)
        .display()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_that_is_taken_gets_a_number() {
        let time = "2026-01-01-120000";
        let taken = |versions: &[&str]| {
            let versions: Vec<_> = versions.iter().map(|v| (*v).to_owned()).collect();
            free_version(time, &versions)
        };
        assert_eq!(taken(&["20260101115959"]), time);
        assert_eq!(taken(&["20260101120000"]), "2026-01-01-120000-0000");
        let numbered = taken(&["20260101120000", "202601011200000000"]);
        assert_eq!(numbered, "2026-01-01-120000-0001");
        // Diesel runs them in this order.
        let versions = [time, &numbered, "2026-01-01-120001"];
        assert!(versions.map(|v| v.replace('-', "")).is_sorted());
    }
}
