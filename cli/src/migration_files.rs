//! The two files of a migration: printed, written, or compared with existing ones.

use std::path::{Path, PathBuf};
use std::{fs, io};

use serde::Deserialize;

use crate::args::GenerateArgs;
use crate::error::{Ended, Error};
use crate::output;

/// The two files of a migration.
pub struct Files {
    pub up: String,
    pub down: String,
}

impl Files {
    /// Of statements without their last semicolons.
    pub fn of(up: String, down: String) -> Self {
        let [up, down] = [up, down].map(|sql| sql + ";\n");
        Files { up, down }
    }

    fn named(&self) -> [(&'static str, &str); 2] {
        [("up.sql", &self.up), ("down.sql", &self.down)]
    }

    /// Writes the files into this folder.
    pub fn write(&self, folder: &Path) -> Result<(), Error> {
        fs::create_dir_all(folder).map_err(|source| Error::file(folder, source))?;
        for (file, text) in self.named() {
            let file = folder.join(file);
            fs::write(&file, text).map_err(|source| Error::file(&file, source))?;
            output::line(&format!("Creating {}", shown(&file)))?;
        }
        Ok(())
    }

    /// Whether the files in this folder have other texts. Notes the texts that they should have.
    pub fn differ_from(&self, folder: &Path) -> Result<bool, Error> {
        let mut differ = false;
        for (file, text) in self.named() {
            let file = folder.join(file);
            // One may be missing since a run was interrupted.
            let there = found(&file, fs::read_to_string(&file))?.unwrap_or_default();
            if there.trim() != text.trim() {
                output::note(&format!(
                    "{} is not what would be written now:\n{}",
                    shown(&file),
                    text.trim_end()
                ));
                differ = true;
            }
        }
        Ok(differ)
    }
}

/// Prints both files, compares them with the newest ones, or writes them.
pub fn deliver(files: &Files, name: &str, args: &GenerateArgs) -> Result<Ended, Error> {
    if args.print {
        output::line(&format!("-- {name}/up.sql\n{}", files.up))?;
        output::line(&format!("-- {name}/down.sql\n{}", files.down.trim_end()))?;
        return Ok(Ended::Done);
    }
    let folder = find_folder(args.migration.migration_dir.as_deref())?;
    match args.locked {
        true => compare(files, &folder, name),
        false => write(files, &folder, name),
    }
}

/// A table's name as a part of a folder's name.
pub fn file_name(table: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || c == '_';
    table.replace(|c| !is_plain(c), "_")
}

fn write(files: &Files, folder: &Path, name: &str) -> Result<Ended, Error> {
    let time = chrono::Utc::now().format("%Y-%m-%d-%H%M%S").to_string();
    let there = migrations(folder)?;
    let taken: Vec<_> = there.iter().map(|(version, ..)| version.clone()).collect();
    let version = free_version(&time, &taken);
    if let Some(there) = newest(there, name) {
        output::note(&format!(
            "{} has the same name: where it has not run yet, delete one of the two",
            shown(&there)
        ));
    }
    files.write(&folder.join(format!("{version}_{name}")))?;
    Ok(Ended::Done)
}

/// An unused version: the time and a number, as the `diesel` CLI writes them. Diesel runs only one migration of each version.
fn free_version(time: &str, taken: &[String]) -> String {
    let mut versions = (0_u32..).map(|number| format!("{time}-{number:04x}"));
    let free = versions.find(|version| !taken.contains(&version.replace('-', "")));
    free.unwrap_or_default()
}

/// A migration's version, as Diesel reads it, its name and its folder.
type Migration = (String, String, PathBuf);

/// The migrations in a folder; none if there is no such folder.
fn migrations(folder: &Path) -> Result<Vec<Migration>, Error> {
    let Some(entries) = found(folder, fs::read_dir(folder))? else {
        return Ok(vec![]);
    };
    let migrations = entries.map(|entry| {
        let entry = entry.map_err(|source| Error::file(folder, source))?;
        let file_name = entry.file_name();
        let file_name = file_name.to_string_lossy();
        let (version, name) = file_name.split_once('_').unwrap_or((&file_name, ""));
        Ok((version.replace('-', ""), name.to_owned(), entry.path()))
    });
    migrations.collect()
}

/// The folder of the newest migration with this name.
fn newest(mut there: Vec<Migration>, name: &str) -> Option<PathBuf> {
    there.retain(|(version, other, _)| {
        other == name && version.starts_with(|c: char| c.is_ascii_digit())
    });
    there.into_iter().max().map(|(.., folder)| folder)
}

/// Compares the newest migration of this name with what would be written.
fn compare(files: &Files, folder: &Path, name: &str) -> Result<Ended, Error> {
    let Some(newest) = newest(migrations(folder)?, name) else {
        output::note(&format!(
            "there is no migration `…_{name}` in {}: write it by `diesel-sharded generate` without --locked",
            shown(folder)
        ));
        return Ok(Ended::LeftOver);
    };
    if files.differ_from(&newest)? {
        return Ok(Ended::LeftOver);
    }
    output::line(&format!("{} is up to date", shown(&newest)))?;
    Ok(Ended::Done)
}

/// What was read at this path; `None` if nothing is there.
fn found<T>(path: &Path, read: io::Result<T>) -> Result<Option<T>, Error> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some).map_err(|source| Error::file(path, source)),
    }
}

/// The path relative to this folder, if it is below.
fn shown(path: &Path) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let path = path.strip_prefix(here).unwrap_or(path);
    path.display().to_string()
}

/// The part of `diesel.toml` that matters here.
#[derive(Debug, Default, Deserialize)]
struct Config {
    #[serde(default)]
    migrations_directory: MigrationsDirectory,
}

#[derive(Debug, Default, Deserialize)]
struct MigrationsDirectory {
    dir: Option<PathBuf>,
}

/// The given folder, or the one in the `diesel.toml` of this folder or one above, or the nearest folder `migrations`.
pub fn find_folder(given: Option<&Path>) -> Result<PathBuf, Error> {
    if let Some(folder) = given {
        return Ok(folder.to_owned());
    }
    let here = Path::new(".");
    let here = fs::canonicalize(here).map_err(|source| Error::file(here, source))?;
    for folder in here.ancestors() {
        let file = folder.join("diesel.toml");
        let migrations = folder.join("migrations");
        if let Some(text) = found(&file, fs::read_to_string(&file))? {
            let config: Config = toml::from_str(&text).map_err(|error| {
                Error::Refused(format!("{}: {}", file.display(), error.message()))
            })?;
            let dir = config.migrations_directory.dir;
            return Ok(dir.map_or(migrations, |dir| folder.join(dir)));
        }
        if migrations.is_dir() {
            return Ok(migrations);
        }
    }
    Ok(here.join("migrations"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_one_second_are_numbered() {
        let time = "2026-01-01-120000";
        let taken = |versions: &[&str]| {
            let versions: Vec<_> = versions.iter().map(|v| (*v).to_owned()).collect();
            free_version(time, &versions)
        };
        assert_eq!(taken(&["20260101120000"]), "2026-01-01-120000-0000");
        let numbered = taken(&["20260101120000", "202601011200000000"]);
        assert_eq!(numbered, "2026-01-01-120000-0001");
        // Diesel runs them in this order, the order of the files.
        let versions = [time, &numbered, "2026-01-01-120001"];
        assert!(versions.map(|v| v.replace('-', "")).is_sorted());
    }
}
