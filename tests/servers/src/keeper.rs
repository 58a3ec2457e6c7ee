//! Keepers: shells that stop a server as soon as this process is gone.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::machine::{Owner, as_user};

/// Starts `command` under a keeper that stops it and deletes its folder as soon as the keeper's standard input is closed, as it is when
/// this process is gone, however that ended. (Where the server is paused then, the kernel sends a hangup to both.)
///
/// For each further line on its standard input, the keeper starts the command once more. It reaps no server before it ends itself, so that
/// the id which it kills cannot belong to another process by then.
pub fn keeper_of(
    command: &[OsString],
    owner: Option<Owner>,
    folder: &Path,
    environment: &[(&str, &OsStr)],
) -> Result<Child, String> {
    const KEEPER: &str = r#"folder=$1; shift
        trap '' HUP INT TERM
        while read -r start; do
            (trap - HUP INT TERM; exec "$@") >>"$folder/log" 2>&1 </dev/null & server=$!
            echo $server >"$folder/process"
        done
        kill -CONT $(cat /proc/$server/task/*/children) 2>/dev/null
        kill -QUIT $server 2>/dev/null; kill -KILL $server 2>/dev/null; wait $server 2>/dev/null
        rm -rf "$folder""#;
    let mut keeper = as_user("/bin/sh".into(), owner);
    keeper
        .arg("-c")
        .arg(KEEPER)
        .arg("keeper")
        .arg(folder)
        .args(command);
    keeper.envs(environment.iter().copied());
    let mut keeper = start_keeper(&mut keeper)?;
    start_again(&mut keeper)?;
    Ok(keeper)
}

/// Lets a keeper start its server.
pub fn start_again(keeper: &mut Child) -> Result<(), String> {
    let told = match keeper.stdin.as_mut() {
        Some(input) => writeln!(input, "start"),
        None => Err(io::ErrorKind::BrokenPipe.into()),
    };
    told.map_err(|error| format!("the keeper of a server has ended: {error}"))
}

/// Starts a keeper, whose standard input closes when this process ends. Ctrl-C reaches this process alone.
pub fn start_keeper(keeper: &mut Command) -> Result<Child, String> {
    keeper
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    keeper
        .spawn()
        .map_err(|error| format!("{keeper:?}: {error}"))
}
