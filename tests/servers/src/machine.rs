//! Folders, ports, users and programs.

use std::fmt::Display;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// A user and a group, by their ids.
pub type Owner = (u32, u32);

pub fn option(name: &str, path: &Path) -> String {
    format!("{name}{}", path.display())
}

/// A new folder, which the server's keeper deletes.
pub fn folder() -> Result<PathBuf, String> {
    let created = tempfile::Builder::new().prefix("diesel-sharded-").tempdir();
    let created = created.map_err(|error| format!("no temporary folder: {error}"))?;
    Ok(created.keep())
}

/// A port of 127.0.0.1 on which nothing listens. This process gets each once. Outgoing connections take none of these, so that a port
/// stays free until its server starts.
pub fn free_port() -> Result<u16, String> {
    const FIRST: u16 = 10_000;
    const NUMBER: u16 = 20_000;
    static NEXT: OnceLock<AtomicU16> = OnceLock::new();
    let next = NEXT.get_or_init(|| {
        let random = RandomState::new().build_hasher().finish(); // other processes begin elsewhere
        AtomicU16::new((random % u64::from(NUMBER)) as u16)
    });
    (0..NUMBER)
        .map(|_| FIRST + next.fetch_add(1, Ordering::Relaxed) % NUMBER)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .ok_or_else(|| "127.0.0.1 has no free port".to_owned())
}

/// The user and group for a server that will not run as root: those of `name`, or of "nobody". `None` if we are not root.
pub fn unprivileged(name: &str) -> Option<Owner> {
    const NOBODY: Owner = (65_534, 65_534);
    let we_are_root = fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = |name: &str| {
        let line = users
            .lines()
            .find(|line| line.split(':').next() == Some(name))?;
        let mut ids = line.split(':').skip(2).map_while(|id| id.parse().ok());
        Some((ids.next()?, ids.next()?))
    };
    we_are_root.then(|| user(name).or_else(|| user("nobody")).unwrap_or(NOBODY))
}

pub fn hand_over(folder: &Path, owner: Option<Owner>) -> Result<(), String> {
    let Some((user, group)) = owner else {
        return Ok(());
    };
    chown(folder, Some(user), Some(group)).map_err(|error| format!("{}: {error}", folder.display()))
}

/// A command in a process group of its own, so that Ctrl-C reaches this process alone.
pub fn as_user(program: PathBuf, owner: Option<Owner>) -> Command {
    let mut command = Command::new(program);
    command.current_dir("/").process_group(0);
    if let Some((user, group)) = owner {
        command.uid(user).gid(group);
    }
    command
}

pub fn run(command: &mut Command) -> Result<(), String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{command:?}: {}\n{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}

/// Connects until a server answers, for a minute at most. The error has the server's log, which is in its folder.
pub fn ask_until_it_answers<T, E: Display>(
    folder: &Path,
    mut connect: impl FnMut() -> Result<T, E>,
) -> Result<(), String> {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        match connect() {
            Ok(_) => return Ok(()),
            Err(_) if Instant::now() < patience => std::thread::sleep(Duration::from_millis(50)),
            Err(error) => {
                let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
                return Err(format!("the server did not start: {error}\n{log}"));
            }
        }
    }
}

pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// The folder with the greatest number for a name.
pub(crate) fn newest(folder: &Path) -> Option<PathBuf> {
    let folders = fs::read_dir(folder).ok()?; // elsewhere than on Debian there is none
    folders
        .filter_map(|entry| Some(entry.ok()?.path()))
        .max_by_key(|path| {
            let name = path.file_name().map(|name| name.to_string_lossy());
            name.and_then(|name| name.parse::<u32>().ok())
        })
}
