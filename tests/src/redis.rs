//! A Redis server of a test's own, which the test may do anything to.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use diesel_sharded::cached::{CacheError, TotalCache};

use crate::in_front::{connect, port_of};
use crate::own_server::OwnServer;
use crate::programs::{Place, find};

/// A running server that keeps nothing on disk, unless its settings say so. Stopped when it is dropped, and at the latest with this process.
#[derive(Debug)]
pub struct RedisServer(OwnServer);

impl RedisServer {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts it with more settings, which stand last and so override the others.
    pub fn start_with(settings: &'static [&'static str]) -> Self {
        let program = find("redis-server")
            .expect("no Redis server is installed: apt-get install redis-server");
        let place = Place::of("root");
        let (port, folder) = (place.port.to_string(), place.folder.clone());
        let usual = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
        let own = ["--port".into(), port.into(), "--dir".into(), folder.into()];
        let settings = usual.iter().chain(settings).map(Into::into).chain(own);
        let installed = place.runs(program, settings, "redis://127.0.0.1");
        RedisServer(OwnServer::of(installed))
    }

    pub fn url(&self) -> String {
        self.0.address().to_owned()
    }

    /// Starts it again, with nothing but what its settings keep, after [`kill`](Self::kill).
    pub fn restart(&mut self) {
        self.0.restart();
    }

    /// Ends it as a crash would.
    pub fn kill(&self) {
        self.0.kill();
    }

    /// Stops it where it is: connections stay open, and nothing answers.
    pub fn pause(&self) {
        self.0.pause();
    }

    /// Lets it go on after [`pause`](Self::pause).
    pub fn resume(&self) {
        self.0.resume();
    }

    /// Sends a command in Redis' one-line form, and returns the answer's text.
    pub fn send(&self, command: &str) -> io::Result<String> {
        let mut stream = connect(port_of(self.0.address()))?;
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
}

/// A cache of totals that counts how often it failed.
pub struct CountsFailures<C> {
    cache: C,
    failures: Arc<AtomicU64>,
}

impl<C: TotalCache> CountsFailures<C> {
    /// The cache, and the number of its failures so far.
    pub fn of(cache: C) -> (Self, Arc<AtomicU64>) {
        let failures = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&failures);
        (CountsFailures { cache, failures }, counted)
    }

    fn counted<T>(&self, answer: Result<T, CacheError>) -> Result<T, CacheError> {
        answer.inspect_err(|_| {
            self.failures.fetch_add(1, Ordering::Relaxed);
        })
    }
}

impl<C: TotalCache> TotalCache for CountsFailures<C> {
    fn get(&self, key: &str) -> Result<Option<i64>, CacheError> {
        self.counted(self.cache.get(key))
    }

    fn add_if_absent(&self, key: &str, total: i64, ttl: Duration) -> Result<(), CacheError> {
        self.counted(self.cache.add_if_absent(key, total, ttl))
    }

    fn increment_if_present(&self, key: &str, by: i64) -> Result<(), CacheError> {
        self.counted(self.cache.increment_if_present(key, by))
    }

    fn remove(&self, key: &str) -> Result<(), CacheError> {
        self.counted(self.cache.remove(key))
    }
}
