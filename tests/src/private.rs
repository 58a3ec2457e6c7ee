//! Private servers, and what else the tests start, as `diesel_sharded_servers` does. A fault fails the test; a server that is not installed
//! is reported, since a container may take its place.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Mutex;

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
    keep_on(done(installed.keeper()));
    wait_until_it_answers(&installed);
    Ok(installed.address)
}

pub fn wait_until_it_answers(
    Installed {
        address, folder, ..
    }: &Installed,
) {
    match address.starts_with("postgres:") {
        true => wait_for(folder, || {
            PgConnection::establish(&format!("{address}/postgres"))
        }),
        false => wait_for(folder, || {
            MysqlConnection::establish(&format!("{address}/mysql"))
        }),
    }
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
    done(diesel_sharded_servers::postgres_with(
        bin,
        &SETTINGS,
        |data, owner| {
            create(data, owner);
            Ok(())
        },
    ))
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

/// Starts `command` under a keeper, for as long as this process runs.
pub fn spawn(
    command: Vec<OsString>,
    owner: Option<Owner>,
    folder: &Path,
    environment: &[(&str, &OsStr)],
) {
    let keeper = diesel_sharded_servers::keeper_of(&command, owner, folder, environment);
    keep_on(done(keeper));
}

/// Starts a keeper, whose standard input closes when this process ends.
pub fn keep(keeper: &mut Command) {
    keep_on(done(diesel_sharded_servers::start_keeper(keeper)));
}

/// Runs a script of the shell with these arguments as soon as this process is gone.
pub fn keep_until_the_end<S: AsRef<OsStr>>(script: &str, arguments: impl IntoIterator<Item = S>) {
    let mut keeper = Command::new("/bin/sh");
    let script = format!("trap '' HUP INT TERM; cat >/dev/null; {script}");
    keep(keeper.args(["-c", &script, "keeper"]).args(arguments));
}

fn keep_on(keeper: Child) {
    static KEEPERS: Mutex<Vec<Child>> = Mutex::new(vec![]);
    KEEPERS
        .lock()
        .expect("no panic while it is held")
        .push(keeper);
}

pub fn wait_for<T, E: Display>(folder: &Path, connect: impl FnMut() -> Result<T, E>) {
    done(diesel_sharded_servers::ask_until_it_answers(
        folder, connect,
    ));
}

pub fn done<T>(result: Result<T, String>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}
