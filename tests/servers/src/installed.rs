//! A server with its data, and the same while it runs.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::PathBuf;
use std::process::Child;

use crate::keeper::{keeper_of, start_again};
use crate::machine::Owner;

/// A server with a data folder, ready to run.
#[derive(Debug)]
pub struct Installed {
    pub(crate) command: Vec<OsString>,
    pub owner: Option<Owner>,
    pub(crate) environment: Vec<(&'static str, OsString)>,
    pub folder: PathBuf,
    /// The URL with a user that may do everything, up to the database's name.
    pub address: String,
}

impl Installed {
    /// Starts it under a keeper, which starts it again, after a crash, for each line on its standard input.
    pub fn keeper(&self) -> Result<Child, String> {
        let environment: Vec<(&str, &OsStr)> = self
            .environment
            .iter()
            .map(|(name, value)| (*name, value.as_os_str()))
            .collect();
        keeper_of(&self.command, self.owner, &self.folder, &environment)
    }

    /// The id of the process that was started last.
    pub fn process(&self) -> Result<u32, String> {
        let file = self.folder.join("process");
        let text = fs::read_to_string(&file).map_err(|error| error.to_string());
        let id = text.and_then(|text| {
            text.trim()
                .parse()
                .map_err(|_| format!("{text:?} is no id"))
        });
        id.map_err(|error| format!("{}: {error}", file.display()))
    }
}

/// A server that is stopped when this is dropped, and its folder deleted.
#[derive(Debug)]
pub struct Running {
    pub installed: Installed,
    keeper: Child,
}

impl Running {
    pub fn start(installed: Installed) -> Result<Self, String> {
        let keeper = installed.keeper()?;
        Ok(Running { installed, keeper })
    }

    /// Starts it again on the same port and data, after a crash.
    pub fn start_again(&mut self) -> Result<(), String> {
        start_again(&mut self.keeper)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take()); // it is told to end the server by that
        if let Err(error) = self.keeper.wait() {
            eprintln!("the keeper of a server: {error}");
        }
    }
}
