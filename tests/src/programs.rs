//! Programs that tests start, as `diesel_sharded_servers` does. A fault fails the test; a server that is not installed is reported, since a
//! container may take its place.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::fs;
use std::mem::forget;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use diesel::prelude::*;
pub use diesel_sharded_servers::{
    Installed, Messages, Owner, Running, as_user, find, mysql, option, postgres_programs,
    unprivileged,
};

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

/// The settings that tests of statements and of two-phase commits need.
const SETTINGS: [&str; 2] = [
    "shared_preload_libraries=pg_stat_statements",
    "max_prepared_transactions=10",
];

/// PostgreSQL, with one more setting.
pub fn postgres(setting: &str, messages: Messages) -> Result<Installed, String> {
    let [statements, prepared] = SETTINGS;
    diesel_sharded_servers::postgres(&[statements, prepared, setting], messages)
}

/// PostgreSQL on data that `create` has put there.
pub fn postgres_with(bin: &Path, create: impl FnOnce(&Path, Option<Owner>)) -> Installed {
    let create = |data: &Path, owner| {
        create(data, owner);
        Ok(())
    };
    done(diesel_sharded_servers::postgres_with(
        bin, &SETTINGS, create,
    ))
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
    let running = done(Running::start(installed));
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

pub fn wait_for<T, E: Display>(folder: &Path, connect: impl FnMut() -> Result<T, E>) {
    done(diesel_sharded_servers::ask_until_it_answers(
        folder, connect,
    ));
}

pub fn folder() -> PathBuf {
    done(diesel_sharded_servers::folder())
}

pub fn free_port() -> u16 {
    done(diesel_sharded_servers::free_port())
}

pub fn hand_over(folder: &Path, owner: Option<Owner>) {
    done(diesel_sharded_servers::hand_over(folder, owner));
}

pub fn run(command: &mut Command) {
    done(diesel_sharded_servers::run(command));
}

/// Starts a keeper, whose standard input closes when this process ends.
pub fn keep(keeper: &mut Command) {
    forget(done(diesel_sharded_servers::start_keeper(keeper)));
}

/// Runs a script of the shell with these arguments as soon as this process is gone.
pub fn keep_until_the_end<S: AsRef<OsStr>>(script: &str, arguments: impl IntoIterator<Item = S>) {
    let mut keeper = Command::new("/bin/sh");
    let script = format!("trap '' HUP INT TERM; cat >/dev/null; {script}");
    keep(keeper.args(["-c", &script, "keeper"]).args(arguments));
}

pub fn done<T>(result: Result<T, String>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}
