//! Servers and other programs, started from installed ones, each in a temporary folder, on a free port of 127.0.0.1. They are stopped, and
//! their folders deleted, at the latest when the process that started them is gone. A fault fails the test; a server that is not installed is
//! reported, since a container may take its place.

mod installed;
mod mysql;
mod postgres;

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::fs;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::mem::forget;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use diesel::prelude::*;

use self::installed::start_keeper;
pub use self::installed::{Installed, Running};
pub use self::mysql::mysql;
pub use self::postgres::{Messages, postgres, postgres_programs, postgres_with};
use crate::Server;

/// Starts a server that runs as long as this process, or says what is not installed.
pub fn start(server: Server) -> Result<String, String> {
    let installed = match server {
        Server::Postgres => postgres("fsync=off", Messages::Two)?,
        Server::SyncedPostgres => postgres("fsync=on", Messages::Two)?,
        Server::Mysql => mysql(&["--innodb-flush-log-at-trx-commit=0"])?,
    };
    Ok(keep_running(installed))
}

/// Where a program runs: a folder and a port of its own, and a user, if this process may choose one.
#[derive(Debug)]
pub struct Place {
    pub folder: PathBuf,
    pub port: u16,
    pub owner: Option<Owner>,
}

impl Place {
    /// For a program that runs as this user.
    pub fn of(user: &str) -> Self {
        let place = Place {
            folder: folder(),
            port: free_port(),
            owner: unprivileged(user),
        };
        hand_over(&place.folder, place.owner);
        place
    }

    /// A file with these settings, in the folder.
    pub fn file(&self, name: &str, settings: &str) -> PathBuf {
        let file = self.folder.join(name);
        fs::write(&file, settings).expect("the settings can be written");
        hand_over(&file, self.owner); // to whom the keeper belongs, which deletes it
        file
    }

    /// What is to run there, and the beginning of its address, up to the port.
    pub fn runs(
        self,
        program: PathBuf,
        arguments: impl IntoIterator<Item = OsString>,
        address: &str,
    ) -> Installed {
        let mut command = vec![program.into_os_string()];
        command.extend(arguments);
        Installed {
            command,
            owner: self.owner,
            environment: vec![],
            folder: self.folder,
            address: format!("{address}:{}", self.port),
        }
    }
}

/// Starts it, and waits until it answers.
pub fn start_running(installed: Installed) -> Running {
    let running = Running::start(installed);
    wait_until_it_answers(&running.installed);
    running
}

/// Starts it, for as long as this process runs, and waits until it answers. Returns its address.
pub fn keep_running(installed: Installed) -> String {
    let running = start_running(installed);
    let address = running.installed.address.clone();
    forget(running);
    address
}

pub fn wait_until_it_answers(installed: &Installed) {
    let (address, folder) = (&installed.address, &installed.folder);
    let (scheme, place) = address.split_once("://").expect("an address");
    match scheme {
        "postgres" => wait_for(folder, || {
            PgConnection::establish(&format!("{address}/postgres"))
        }),
        "mysql" => wait_for(folder, || {
            MysqlConnection::establish(&format!("{address}/mysql"))
        }),
        _ => wait_for(folder, || TcpStream::connect(place)),
    }
}

/// Connects until a server answers, for a minute at most. The panic has the server's log, which is in its folder.
pub fn wait_for<T, E: Display>(folder: &Path, mut connect: impl FnMut() -> Result<T, E>) {
    let patience = Instant::now() + Duration::from_secs(60);
    while let Err(error) = connect() {
        if Instant::now() >= patience {
            let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
            panic!("the server did not start: {error}\n{log}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A user and a group, by their ids.
pub type Owner = (u32, u32);

pub fn option(name: &str, path: &Path) -> String {
    format!("{name}{}", path.display())
}

/// A new folder, which the server's keeper deletes.
pub fn folder() -> PathBuf {
    let created = tempfile::Builder::new().prefix("diesel-sharded-").tempdir();
    created.expect("a temporary folder").keep()
}

/// A port of 127.0.0.1 on which nothing listens. This process gets each once. Outgoing connections take none of these, so that a port
/// stays free until its server starts.
pub fn free_port() -> u16 {
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
        .expect("a free port of 127.0.0.1")
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

pub fn hand_over(folder: &Path, owner: Option<Owner>) {
    if let Some((user, group)) = owner {
        chown(folder, Some(user), Some(group))
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    }
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

pub fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
}

pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// The folder with the greatest number for a name.
fn newest(folder: &Path) -> Option<PathBuf> {
    let folders = fs::read_dir(folder).ok()?; // elsewhere than on Debian there is none
    folders
        .filter_map(|entry| Some(entry.ok()?.path()))
        .max_by_key(|path| {
            let name = path.file_name().map(|name| name.to_string_lossy());
            name.and_then(|name| name.parse::<u32>().ok())
        })
}

/// Runs a script of the shell with these arguments as soon as this process is gone.
pub fn keep_until_the_end<S: AsRef<OsStr>>(script: &str, arguments: impl IntoIterator<Item = S>) {
    let mut keeper = Command::new("/bin/sh");
    let script = format!("trap '' HUP INT TERM; cat >/dev/null; {script}");
    let keeper = keeper.args(["-c", &script, "keeper"]).args(arguments);
    forget(start_keeper(keeper));
}
