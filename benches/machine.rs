//! The machine, the servers and the programs that are measured.

use std::fs;
use std::process::{Command, ExitCode};
use std::thread;

use diesel_sharded_tests::TestConnection;
use diesel_sharded_tests::own_server::OwnServer;

use crate::report::Machine;

/// The machine, with the server of this connection type.
pub fn with<Conn: TestConnection>() -> Machine {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kilobytes = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Machine {
        cpu: model
            .map_or("unknown", |(_, model)| model.trim())
            .to_owned(),
        cores: thread::available_parallelism().map_or(0, usize::from),
        memory_gb: (kilobytes.unwrap_or_default() / 1024.0 / 1024.0).round(),
        kernel: kernel.trim().to_owned(),
        server: version_of::<Conn>(),
        redis: redis(),
    }
}

/// `Redis server v=7.0.15 sha=…` says it like this.
fn redis() -> String {
    let line = version("redis-server").unwrap_or_default();
    let version = line
        .split_whitespace()
        .find_map(|word| word.strip_prefix("v="));
    version.map_or(line.clone(), |version| format!("Redis {version}"))
}

/// Runs this program again with a MariaDB or MySQL of its own that has a binary log, as in production; `None` if there is a server already.
pub fn with_binary_log() -> Option<ExitCode> {
    const URL: &str = "MYSQL_DATABASE_URL";
    if std::env::var_os(URL).is_some() {
        return None;
    }
    let server = OwnServer::mysql_with_binary_log(".".as_ref())
        .unwrap_or_else(|missing| panic!("{missing}"));
    let again = Command::new(std::env::current_exe().expect("this program"))
        .args(std::env::args_os().skip(1))
        .env(URL, format!("{}/mysql", server.address()))
        .status();
    match again.expect("this program again").success() {
        true => Some(ExitCode::SUCCESS),
        false => Some(ExitCode::FAILURE),
    }
}

/// The name and the number, without how it was compiled. MariaDB says that it has a binary log by `-log`.
fn version_of<Conn: TestConnection>() -> String {
    let text = Conn::connect(&Conn::database()).version();
    let words: Vec<_> = text.split([' ', ',', '-']).take(2).collect();
    match words[..] {
        [number, name] if number.starts_with(|c: char| c.is_ascii_digit()) => {
            let log = if text.ends_with("-log") {
                ", binary log"
            } else {
                ""
            };
            format!("{name} {number}{log}") // MariaDB's order
        }
        _ => words.join(" "),
    }
}

/// The first line that a program prints about its version, if it is installed.
fn version(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    Some(text.lines().next()?.to_owned())
}
