//! The disk of a database fills up and has space again, while clients count.
//!
//! The disk is a small tmpfs. Mounting it needs root. It holds a tablespace of PostgreSQL, the folder of MariaDB's database, or SQLite's
//! file; or MariaDB's binary log. The write-ahead logs are elsewhere: PostgreSQL exits and restarts if its log has no space, and the fault
//! `server-killed` covers that.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use diesel_sharded::Error;
use diesel_sharded_tests::own_server::OwnServer;
use tempfile::TempDir;

use super::Fault;
use crate::backend::{Backend, ChaosConnection};
use crate::history::Outcome;
use crate::operation::{By, On, Operation};
use crate::place::Place;
use crate::report::Line;
use crate::round::{Crew, play};
use crate::{until, with_connection};

pub const FAULT: Fault = Fault {
    name: "disk-full",
    about: "the disk of the database is full for a while (a small tmpfs; needs root); clear errors, no drift, then counts continue",
    backends: &Backend::ALL,
    rounds: (10, 1),
    run: |line| with_connection!(line.backend, Conn => run_on::<Conn>(line)),
};

pub const BINARY_LOG: Fault = Fault {
    name: "binary-log-full",
    about: "the disk of MariaDB's binary log is full for a while (a small tmpfs; needs root); commits wait for space, no drift, then counts continue",
    backends: &[Backend::Mariadb],
    rounds: (3, 1),
    run: fill_the_binary_log,
};

/// A mounted tmpfs. Dropping it unmounts it, even if files on it are open.
#[derive(Debug)]
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path, megabytes: u32) -> Result<Self, String> {
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"])
            .arg(at)
            .output();
        match mounted {
            Ok(output) if output.status.success() => Ok(SmallDisk(at.to_owned())),
            Ok(output) => Err(format!(
                "this fault needs root to mount a tmpfs: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            )),
            Err(error) => Err(format!("this fault needs the command `mount`: {error}")),
        }
    }

    /// Writes a file until no space is left.
    fn fill(&self) -> io::Result<()> {
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(self.ballast())?;
        for size in [1 << 16, 1 << 12, 1] {
            while file.write_all(&vec![0; size]).is_ok() {}
        }
        Ok(())
    }

    fn free(&self) -> io::Result<()> {
        fs::remove_file(self.ballast())
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A tmpfs that stays mounted does no harm.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Puts the clients' database on a small disk.
fn put_on_a_small_disk(place: &mut Place) -> Result<SmallDisk, String> {
    let told = |error: io::Error| error.to_string();
    let disk = match place.backend {
        Backend::Sqlite => {
            let folder = place.folder().join("small");
            fs::create_dir(&folder).map_err(told)?;
            let disk = SmallDisk::mount(&folder, 2)?;
            place.url = folder.join("chaos.db").display().to_string();
            disk
        }
        Backend::Postgres => {
            let data =
                PathBuf::from(place.ask("SELECT current_setting('data_directory') AS answer"));
            let folder = data.with_file_name("small");
            fs::create_dir(&folder).map_err(told)?;
            let disk = SmallDisk::mount(&folder, 40)?;
            give_to_the_owner_of(&data, &folder).map_err(told)?;
            place.execute(&format!(
                "CREATE TABLESPACE small LOCATION '{}'",
                folder.display()
            ));
            place.execute("CREATE DATABASE small TABLESPACE small");
            disk
        }
        Backend::Mariadb => {
            let data = PathBuf::from(place.ask("SELECT @@datadir AS answer"));
            place.execute("CREATE DATABASE small");
            let folder = data.join("small");
            let disk = SmallDisk::mount(&folder, 8)?;
            give_to_the_owner_of(&data, &folder).map_err(told)?;
            disk
        }
    };
    if place.backend != Backend::Sqlite {
        place.url = place.url.replace("/chaos", "/small");
    }
    place.create_tables();
    Ok(disk)
}

fn give_to_the_owner_of(other: &Path, folder: &Path) -> io::Result<()> {
    let owner = fs::metadata(other)?;
    chown(folder, Some(owner.uid()), Some(owner.gid()))
}

fn run_on<Conn: ChaosConnection>(line: &mut Line) {
    let mut place = Place::new(line.backend);
    let disk = put_on_a_small_disk(&mut place).unwrap_or_else(|missing| panic!("{missing}"));
    let crew = Crew::of_all_trades(1).with_deadline(Duration::from_secs(5));
    let pause = Duration::from_millis(line.choose(2_000, 500));
    let mut kinds = BTreeMap::new();
    while line.goes_on() {
        let number = i64::from(line.rounds) + 1;
        let mut findings = vec![];
        let conn = place.connect::<Conn>(); // before the clients hold locks
        let played = play(&mut place, &crew, line, |_, playing| {
            let mut conn = conn; // dropped before the round is judged, which waits for all connections to close
            playing.wait_for(50);
            disk.fill().expect("a file on the disk");
            // Inserting new rows soon needs space, even if some pages have room left.
            let patience = Instant::now() + Duration::from_secs(60);
            let mut row = 1000 * number + 500_000_000;
            let insert = |row| Operation::count(On::Row(row), By::OrInsert, 1);
            let told = loop {
                match conn.run(&insert(row)) {
                    Ok(_) => row += 1,
                    // On SQLite others are writing.
                    Err(Error::ConflictPersisted { .. }) => {}
                    Err(error) => break error,
                }
                assert!(Instant::now() < patience, "the disk is never full");
            };
            thread::sleep(pause);
            disk.free().expect("a file on the disk");
            playing.wait_for(50);
            // The call that failed succeeds on the same connection.
            let again = conn.run(&insert(row));
            if !matches!(told, Error::DiskFull { .. }) || again.is_err() {
                findings.push(format!("without space {told:?}, and with space {again:?}"));
            }
            *kinds
                .entry(without_numbers(&format!("DiskFull of a row: {told}")))
                .or_insert(0) += 1;
        });
        findings.into_iter().for_each(|finding| line.find(finding));
        for done in &played.history.operations {
            if let Outcome::Failed(refused) | Outcome::Unknown(Some(refused)) = &done.outcome {
                let (error, text) = (&refused.kind, &refused.text);
                let text = format!("{error} of {}: {text}", done.operation.kind());
                *kinds.entry(without_numbers(&text)).or_insert(0) += 1;
            }
        }
    }
    line.remark(format!(
        "texts of the errors: {}",
        crate::report::tally(&kinds)
    ));
    drop(disk); // before the server, which deletes its folder
}

fn fill_the_binary_log(line: &mut Line) {
    let folder = TempDir::new().expect("a temporary folder");
    let disk = SmallDisk::mount(folder.path(), 16).unwrap_or_else(|missing| panic!("{missing}"));
    let server = OwnServer::mysql_with_binary_log(folder.path());
    let server = server.unwrap_or_else(|missing| panic!("{missing}"));
    let mut place = Place::of(line.backend, server); // dropped before the disk, on which it has the log open
    let crew = Crew::of_all_trades(2);
    while line.goes_on() {
        play(&mut place, &crew, line, |_, playing| {
            playing.wait_for(50);
            disk.fill().expect("a file on the disk");
            let mut before = None;
            until("all clients wait", || {
                let by_now = Some(playing.acknowledged());
                thread::sleep(Duration::from_secs(1));
                std::mem::replace(&mut before, by_now) == by_now
            });
            disk.free().expect("a file on the disk");
            // MariaDB looks for space once a minute.
            playing.wait_for_each(0..playing.round.clients, 20);
        });
    }
}

/// Removes the digits, which differ between errors of the same kind.
fn without_numbers(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}
