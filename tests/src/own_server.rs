//! A database server of a test's own, which the test may do anything to.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::programs::{
    Installed, Messages, Running, mysql, postgres, start_running, wait_until_it_answers,
};
use crate::{Server, until};

/// A private server. Stopped when it is dropped, and at the latest with this process.
#[derive(Debug)]
pub struct OwnServer(Running);

impl OwnServer {
    /// Starts one whose commits wait for the disk, or says what is not installed.
    pub fn start(server: Server) -> Result<Self, String> {
        let setting = match server {
            Server::Postgres | Server::SyncedPostgres => "fsync=on",
            Server::Mysql => "--innodb-flush-log-at-trx-commit=1",
        };
        Self::start_with(server, setting)
    }

    /// Starts MariaDB or MySQL as production runs it, with a binary log in this folder (of its data, if it is relative) that waits for
    /// the disk too, or says what is not installed.
    pub fn mysql_with_binary_log(folder: &Path) -> Result<Self, String> {
        let log = format!("--log-bin={}", folder.join("binlog").display());
        let settings = [
            "--innodb-flush-log-at-trx-commit=1",
            &log,
            "--sync-binlog=1",
        ];
        Ok(OwnServer::of(mysql(&settings)?))
    }

    /// Starts one with one more setting, as its command takes it, or says what is not installed.
    pub fn start_with(server: Server, setting: &str) -> Result<Self, String> {
        let installed = match server {
            Server::Postgres | Server::SyncedPostgres => postgres(setting, Messages::English)?,
            Server::Mysql => mysql(&[setting])?,
        };
        Ok(OwnServer::of(installed))
    }

    /// Starts a server whose data is there.
    pub(crate) fn of(installed: Installed) -> Self {
        OwnServer(start_running(installed))
    }

    /// Starts a server whose data is there, and does not wait.
    pub(crate) fn starting(installed: Installed) -> Self {
        OwnServer(Running::start(installed))
    }

    /// Its folder; the database is in `data`.
    pub(crate) fn folder(&self) -> &Path {
        &self.0.installed.folder
    }

    /// Its address with a user that may do everything, up to the database's name.
    pub fn address(&self) -> &str {
        &self.0.installed.address
    }

    /// Ends all its processes at once, as a crash of the machine would; but the disk keeps everything that was written to it.
    pub fn kill(&self) {
        self.pause(); // nobody is started meanwhile
        let processes = self.processes();
        signal("KILL", &processes);
        until("they have ended", || {
            !processes.iter().any(|process| is_alive(*process))
        });
    }

    /// Starts it again on the same port and data, after [`kill`](Self::kill), and waits until it answers.
    pub fn restart(&mut self) {
        self.start_again();
        wait_until_it_answers(&self.0.installed);
    }

    /// Starts it again.
    pub(crate) fn start_again(&self) {
        self.0.start_again();
    }

    /// Stops it where it is: connections stay open, and nothing answers.
    pub fn pause(&self) {
        stop(&[self.0.installed.process()]); // it starts no more processes
        stop(&self.processes());
    }

    /// Lets it go on after [`pause`](Self::pause).
    pub fn resume(&self) {
        signal("CONT", &self.processes());
    }

    /// The server's process and, on PostgreSQL, one for each connection.
    fn processes(&self) -> Vec<u32> {
        let server = self.0.installed.process();
        let mut processes = vec![server];
        let all = fs::read_dir("/proc").expect("Linux");
        processes.extend(
            all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
                .filter(|process| {
                    state_and_parent(&of(*process)).is_some_and(|(_, p)| p == server)
                }),
        );
        processes
    }
}

fn signal(signal: &str, processes: &[u32]) {
    let mut kill = format!("kill -{signal}");
    for process in processes {
        kill.push_str(&format!(" {process}"));
    }
    // A process for a connection may have ended by itself since it was listed.
    let kill = format!("{kill} 2>/dev/null; true");
    let sent = Command::new("/bin/sh").args(["-c", &kill]).status();
    assert!(sent.is_ok_and(|status| status.success()), "{kill}");
}

/// Stops processes where they are (SIGSTOP). A signal is on its way when `kill` ends, and on a busy machine threads run for a while before it
/// arrives.
pub fn stop(processes: &[u32]) {
    signal("STOP", processes);
    until("they are stopped", || processes.iter().all(is_stopped));
}

/// Whether no thread of the process runs any more.
fn is_stopped(process: &u32) -> bool {
    let Ok(threads) = fs::read_dir(of(*process).join("task")) else {
        return true; // it has ended
    };
    threads
        .filter_map(|thread| state_and_parent(&thread.ok()?.path()))
        .all(|(state, _)| matches!(state, 'T' | 'Z' | 'X'))
}

/// A process that has ended may still be listed, until its parent reaps it.
fn is_alive(process: u32) -> bool {
    state_and_parent(&of(process)).is_some_and(|(state, _)| state != 'Z')
}

/// Where the kernel describes a process.
fn of(process: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{process}"))
}

fn state_and_parent(described: &Path) -> Option<(char, u32)> {
    let stat = fs::read_to_string(described.join("stat")).ok()?;
    let (_, behind_the_name) = stat.rsplit_once(')')?;
    let mut fields = behind_the_name.split_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::Duration;

    use super::*;
    use diesel::prelude::*;
    use diesel::sql_types::BigInt;

    /// Committed increments survive a crash, uncommitted ones do not, and a paused server keeps its clients waiting.
    fn survives<Conn: Connection>(server: Server, database: &str, count: fn(&mut Conn) -> i64) {
        let mut server = OwnServer::start(server).unwrap();
        let url = format!("{}/{database}", server.address());
        let mut conn = Conn::establish(&url).unwrap();
        conn.batch_execute("CREATE TABLE kept (n BIGINT NOT NULL)")
            .unwrap();
        conn.batch_execute("INSERT INTO kept VALUES (1)").unwrap();
        conn.batch_execute("BEGIN").unwrap();
        conn.batch_execute("INSERT INTO kept VALUES (2)").unwrap();
        server.kill();
        assert!(conn.batch_execute("COMMIT").is_err());
        assert!(Conn::establish(&url).is_err());
        server.restart();
        let mut conn = Conn::establish(&url).unwrap();
        assert_eq!(count(&mut conn), 1);
        server.pause();
        thread::scope(|scope| {
            let counting = scope.spawn(|| count(&mut conn));
            thread::sleep(Duration::from_millis(300)); // an answer would be here by now
            assert!(!counting.is_finished());
            server.resume();
            assert_eq!(counting.join().unwrap(), 1);
        });
        let folder = server.folder().to_owned();
        server.pause();
        drop(server);
        assert!(!folder.exists());
    }

    fn number_of_rows() -> diesel::expression::SqlLiteral<BigInt> {
        diesel::dsl::sql("(SELECT COUNT(*) FROM kept)")
    }

    #[test]
    fn postgresql_survives() {
        survives(
            Server::SyncedPostgres,
            "postgres",
            |conn: &mut PgConnection| diesel::select(number_of_rows()).get_result(conn).unwrap(),
        );
    }

    #[test]
    fn mariadb_survives() {
        survives(Server::Mysql, "mysql", |conn: &mut MysqlConnection| {
            diesel::select(number_of_rows()).get_result(conn).unwrap()
        });
    }
}
