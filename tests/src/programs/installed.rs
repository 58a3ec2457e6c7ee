//! A server with its data, and the same while it runs, under a keeper: a shell that stops it as soon as this process is gone.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use super::{Owner, as_user};

/// A server with a data folder, ready to run.
#[derive(Debug)]
pub struct Installed {
    pub command: Vec<OsString>,
    pub owner: Option<Owner>,
    pub environment: Vec<(&'static str, OsString)>,
    pub folder: PathBuf,
    /// The URL with a user that may do everything, up to the database's name.
    pub address: String,
}

impl Installed {
    /// The id of the process that was started last.
    pub fn process(&self) -> u32 {
        let text = fs::read_to_string(self.folder.join("process")).expect("the keeper's file");
        text.trim().parse().expect("an id")
    }
}

/// A server that is stopped when this is dropped, and its folder deleted.
#[derive(Debug)]
pub struct Running {
    pub installed: Installed,
    keeper: Child,
}

impl Running {
    /// Starts it under a keeper that stops it and deletes its folder as soon as the keeper's standard input is closed, as it is when this
    /// process is gone, however that ended. (Where the server is paused then, the kernel sends a hangup to both.)
    ///
    /// For each further line on its standard input, the keeper starts the command once more. It reaps no server before it ends itself, so
    /// that the id which it kills cannot belong to another process by then.
    pub fn start(installed: Installed) -> Self {
        const KEEPER: &str = r#"folder=$1; shift
            trap '' HUP INT TERM
            while read -r start; do
                (trap - HUP INT TERM; exec "$@") >>"$folder/log" 2>&1 </dev/null & server=$!
                echo $server >"$folder/process"
            done
            kill -CONT $(cat /proc/$server/task/*/children) 2>/dev/null
            kill -QUIT $server 2>/dev/null; kill -KILL $server 2>/dev/null; wait $server 2>/dev/null
            rm -rf "$folder""#;
        let mut keeper = as_user("/bin/sh".into(), installed.owner);
        keeper.args(["-c", KEEPER, "keeper"]).arg(&installed.folder);
        keeper.args(&installed.command);
        let keeper = start_keeper(keeper.envs(installed.environment.clone()));
        let running = Running { installed, keeper };
        running.start_again();
        running
    }

    /// Starts it again on the same port and data, after a crash.
    pub fn start_again(&self) {
        let mut input = self.keeper.stdin.as_ref().expect("it is not dropped");
        writeln!(input, "start").expect("its keeper runs");
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

/// Starts a keeper, whose standard input closes when this process ends. Ctrl-C reaches this process alone.
pub fn start_keeper(keeper: &mut Command) -> Child {
    keeper
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    keeper
        .spawn()
        .unwrap_or_else(|error| panic!("{keeper:?}: {error}"))
}
