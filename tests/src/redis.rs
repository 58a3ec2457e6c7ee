//! A Redis server of a test's own, which the test may do anything to.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::private::{find, folder, free_port, spawn, wait_for};

/// A running server that keeps nothing on disk, unless its settings say so. Stopped when it is dropped, and at the latest with this process.
#[derive(Debug)]
pub struct RedisServer {
    program: PathBuf,
    folder: PathBuf,
    port: u16,
    process: u32,
    settings: &'static [&'static str],
}

impl RedisServer {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts it with more settings, which stand last and so override the others.
    pub fn start_with(settings: &'static [&'static str]) -> Self {
        let program = find("redis-server")
            .expect("no Redis server is installed: apt-get install redis-server");
        let mut server = RedisServer {
            program,
            folder: folder(),
            port: free_port(),
            process: 0,
            settings,
        };
        server.restart();
        server
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Starts it again, with nothing but what its settings keep, after [`kill`](Self::kill).
    pub fn restart(&mut self) {
        let mut command = vec![self.program.clone().into_os_string()];
        for setting in ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"] {
            command.push(setting.into());
        }
        command.extend(self.settings.iter().map(Into::into));
        command.extend(["--port".into(), self.port.to_string().into()]);
        command.extend(["--dir".into(), self.folder.clone().into()]);
        spawn(command, None, &self.folder, &[]);
        wait_for(&self.folder, || self.send("PING"));
        let info = self.send("INFO server").expect("the server runs");
        self.process = info
            .lines()
            .find_map(|line| line.strip_prefix("process_id:")?.parse().ok())
            .expect("a process id");
    }

    /// Ends it as a crash would.
    pub fn kill(&self) {
        self.signal("KILL");
        while self.send("PING").is_ok() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Stops it where it is: connections stay open, and nothing answers.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Lets it go on after [`pause`](Self::pause).
    pub fn resume(&self) {
        self.signal("CONT");
    }

    /// Sends a command in Redis' one-line form, and returns the answer's text.
    pub fn send(&self, command: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        write!(stream, "{command}\r\n")?;
        let mut answer = BufReader::new(stream);
        let mut line = String::new();
        answer.read_line(&mut line)?;
        if line.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some(length) = line.strip_prefix('$') else {
            return Ok(line.trim_end().to_owned());
        };
        let Ok(length) = length.trim_end().parse() else {
            return Ok(String::new()); // -1: there is nothing
        };
        let mut text = String::new();
        answer.take(length).read_to_string(&mut text)?;
        Ok(text)
    }

    fn signal(&self, signal: &str) {
        let kill = format!("kill -{signal} {}", self.process);
        let sent = Command::new("/bin/sh").args(["-c", &kill]).status();
        assert!(sent.is_ok_and(|status| status.success()), "{kill}");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // A test may have killed it already.
        let kill = format!("kill -KILL {} 2>/dev/null", self.process);
        let _ = Command::new("/bin/sh").args(["-c", &kill]).status();
    }
}
