//! Where migrations are kept, as the `diesel` CLI looks for it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::error::Error;

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

/// The folder that `diesel.toml` names, here or above, or the nearest folder `migrations`.
pub fn find() -> Result<PathBuf, Error> {
    let here = Path::new(".");
    let here = fs::canonicalize(here).map_err(|source| Error::file(here, source))?;
    for folder in here.ancestors() {
        let file = folder.join("diesel.toml");
        match fs::read_to_string(&file) {
            Ok(text) => {
                let config: Config = toml::from_str(&text).map_err(|error| Error::Config {
                    file: file.clone(),
                    message: error.message().to_owned(),
                })?;
                return Ok(match config.migrations_directory.dir {
                    Some(dir) => folder.join(dir),
                    None => folder.join("migrations"),
                });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(Error::file(&file, source)),
        }
        let migrations = folder.join("migrations");
        if migrations.is_dir() {
            return Ok(migrations);
        }
    }
    Ok(here.join("migrations"))
}
