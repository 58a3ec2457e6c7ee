//! Sessions on a terminal.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use diesel_sharded::backend::Dialect;
use diesel_sharded_tests::Database;

use super::{Script, dialect, run_noting};

const CTRL_C: &[u8] = b"\x03";
const ANSWER: &str = "finishing the batch; Ctrl-C again stops now";
const DEADLINE: Duration = Duration::from_secs(60);

/// The tool on a terminal of its own.
struct Terminal {
    script: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// Of so many columns.
    fn start(database: &Database, columns: u32, line: &str) -> Self {
        let tool = env!("CARGO_BIN_EXE_diesel-sharded");
        let session = format!("stty cols {columns} rows 24 && exec '{tool}' {line}");
        let mut script = Command::new("script");
        let options = "--quiet --return --flush --command".split(' ');
        script.args(options).args([&*session, "/dev/null"]);
        script.current_dir(std::env::temp_dir());
        script.env("DATABASE_URL", database.url());
        script.env("TERM", "xterm").env("SHELL", "/bin/sh");
        script.env_remove("NO_COLOR");
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let script = script.spawn();
        let mut script = script.expect("`script` is needed: apt-get install bsdutils");
        let screen = Arc::new(Mutex::new(vec![]));
        let (mut output, painted) = (script.stdout.take().unwrap(), Arc::clone(&screen));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                painted.lock().unwrap().extend_from_slice(&bytes[..read]);
            }
        });
        Terminal {
            keys: script.stdin.take().unwrap(),
            script,
            screen,
        }
    }

    /// Everything that was painted, with the control sequences.
    fn painted(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    fn wait_for(&self, text: &str) {
        let started = Instant::now();
        while !self.painted().contains(text) {
            assert!(
                started.elapsed() < DEADLINE,
                "no {text}: {}",
                self.painted()
            );
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn press(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits for the end; the exit code, and everything that was painted.
    fn end(mut self) -> (Option<i32>, String) {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.script.try_wait().unwrap() {
                break status;
            }
            assert!(started.elapsed() < DEADLINE, "no end: {}", self.painted());
            thread::sleep(Duration::from_millis(5));
        };
        let read_all = || Arc::strong_count(&self.screen) == 1;
        while !read_all() && started.elapsed() < DEADLINE {
            thread::sleep(Duration::from_millis(1));
        }
        (status.code(), self.painted())
    }
}

impl Drop for Terminal {
    /// After a failure nothing goes on. A terminal that is closed is a signal too, and the first one lets a batch go on.
    fn drop(&mut self) {
        for _ in 0..2 {
            let _ = self.keys.write_all(CTRL_C); // it may have ended
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// So many videos, of each a shard with one view.
fn videos(number: usize) -> Database {
    let (database, mut conn) = super::videos(number, 1);
    conn.script("UPDATE videos_shards SET likes = 0");
    database
}

#[test]
fn progress_is_told() {
    let database = videos(300);
    let line = "fold videos --batch=10 --at-most-per-second=1000";
    let (code, painted) = Terminal::start(&database, 120, line).end();
    assert_eq!(code, Some(0), "{painted}");
    assert!(painted.contains("videos: 0 rows so far"), "{painted}");
    let (_, piped) = run_noting(&database, "fold videos", 0);
    assert_eq!(piped, "");
}

#[test]
fn a_warning_is_coloured() {
    let (database, mut conn) = super::videos(1, 1);
    conn.script("CREATE INDEX by_views ON videos_shards (views)");
    let (code, painted) = Terminal::start(&database, 120, "doctor").end();
    assert_eq!(code, Some(0), "{painted}");
    assert!(painted.contains("\u{1b}[33mwarning\u{1b}[0m "), "{painted}");
    let (_, piped) = run_noting(&database, "doctor", 0);
    assert!(!piped.contains('\u{1b}'), "{piped}");
}

/// A look ends where no batch is open.
#[test]
fn ctrl_c_ends_a_look() {
    if dialect() == Dialect::Sqlite {
        return; // it has nothing to look at
    }
    let database = videos(4);
    let mut terminal = Terminal::start(&database, 100, "advise --seconds=600");
    terminal.wait_for("Looking for 600 s");
    terminal.press(CTRL_C);
    let (code, painted) = terminal.end();
    assert_eq!(code, Some(0), "{painted}");
    let answer = "showing what was seen so far; Ctrl-C again stops now";
    assert!(painted.contains(answer), "{painted}");
    assert!(!painted.contains("batch"), "{painted}");
}

#[test]
fn a_second_ctrl_c_stops_at_once() {
    let database = videos(10);
    // A recount that would take minutes.
    let recount = match dialect() {
        Dialect::Postgres => "SELECT 1 AS id, 1 FROM pg_sleep(300)",
        Dialect::Mysql => "SELECT 1 AS id, SLEEP(300)",
        _ => {
            "SELECT 1 AS id, (WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000000000) SELECT COUNT(*) FROM n)"
        }
    };
    let verify = format!("verify videos views --recount '{recount}'");
    let mut terminal = Terminal::start(&database, 100, &verify);
    terminal.wait_for("videos: 0 rows so far");
    terminal.press(CTRL_C);
    terminal.wait_for(ANSWER);
    terminal.press(CTRL_C);
    let (code, painted) = terminal.end();
    assert_eq!(code, Some(130), "{painted}");
    assert!(!painted.contains("continue with"), "{painted}");
}

#[test]
fn colours_are_for_terminals_alone() {
    let database = videos(4);
    let (code, painted) = Terminal::start(&database, 100, "fold --nonsense").end();
    assert_eq!(code, Some(2), "{painted}");
    assert!(painted.contains("\x1b["), "{painted:?}");
    let (_, piped) = run_noting(&database, "fold --nonsense", 2);
    assert!(!piped.contains('\x1b'), "{piped:?}");
    // Results have none anywhere.
    let (code, painted) = Terminal::start(&database, 100, "status").end();
    assert_eq!(code, Some(0), "{painted}");
    assert!(!painted.contains('\x1b'), "{painted:?}");
}
