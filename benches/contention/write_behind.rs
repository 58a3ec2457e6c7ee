//! Redis in front of the row: clients call `INCR` there, and a thread adds the sums to the row.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use diesel::prelude::*;
use diesel_sharded_tests::redis::RedisServer;
use redis::{Client, Connection as RedisConnection, Iter, cmd};

use crate::arena::{Arena, Stage};
use crate::contender::{Contender, Counting, Outcome, total_of};

/// The Redis servers that are compared, at their own best.
pub struct Redis {
    /// Keeps everything in memory: the fastest.
    in_memory: RedisServer,
    /// Logs every command, and waits for the disk once a second: a crash of the machine loses about a second.
    logged: RedisServer,
}

impl Redis {
    pub fn start() -> Self {
        Redis {
            in_memory: RedisServer::start(),
            logged: RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "everysec"]),
        }
    }

    pub fn in_memory(&self) -> String {
        self.in_memory.url()
    }

    pub fn logged(&self) -> String {
        self.logged.url()
    }
}

const INTERVAL: Duration = Duration::from_millis(100);
const PREFIX: &str = "views:";

pub struct WriteBehind<Conn> {
    name: &'static str,
    /// The table that the sums go to.
    table: &'static str,
    client: Client,
    writer: Arc<Writer<Conn>>,
    writing: Mutex<Option<Writing>>,
}

struct Writer<Conn> {
    stage: Stage<Conn>,
    add: fn(&mut Conn, i64, i64) -> QueryResult<usize>,
}

struct Writing {
    stop: Sender<()>,
    thread: JoinHandle<Outcome>,
}

impl<Conn> WriteBehind<Conn> {
    pub fn new(
        name: &'static str,
        table: &'static str,
        redis: &str,
        stage: Stage<Conn>,
        add: fn(&mut Conn, i64, i64) -> QueryResult<usize>,
    ) -> Self {
        WriteBehind {
            name,
            table,
            client: Client::open(redis).expect("an address of a Redis server"),
            writer: Arc::new(Writer { stage, add }),
            writing: Mutex::default(),
        }
    }
}

impl<Conn: Arena> Contender<Conn> for WriteBehind<Conn> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn total(&self) -> String {
        total_of(self.table)
    }

    fn counting(&self) -> Outcome<Counting<'_, Conn>> {
        let mut redis = self.client.get_connection()?;
        Ok(Box::new(move |_, key| {
            Ok(cmd("INCR").arg(format!("{PREFIX}{key}")).exec(&mut redis)?)
        }))
    }

    fn is_buffered(&self) -> bool {
        true
    }

    fn begin(&self) {
        let (stop, stopped) = mpsc::channel();
        let mut redis = self.client.get_connection().expect("a Redis server");
        let mut conn = self.writer.stage.connect();
        let writer = Arc::clone(&self.writer);
        let thread = thread::spawn(move || {
            loop {
                let waited = stopped.recv_timeout(INTERVAL);
                writer.write(&mut redis, &mut conn)?;
                if waited != Err(RecvTimeoutError::Timeout) {
                    return Ok(());
                }
            }
        });
        *self.writing.lock().expect("no panic") = Some(Writing { stop, thread });
    }

    fn settle(&self) {
        if let Some(Writing { stop, thread }) = self.writing.lock().expect("no panic").take() {
            drop(stop);
            let written = thread.join().expect("no panic in the writer");
            written.expect("all that was counted can be written");
        }
    }
}

impl<Conn> Writer<Conn> {
    /// A crash between `GETDEL` and the update loses counts: the price of this way to count.
    fn write(&self, redis: &mut RedisConnection, conn: &mut Conn) -> Outcome {
        let mut scan = cmd("SCAN");
        scan.cursor_arg(0).arg("MATCH").arg(format!("{PREFIX}*"));
        scan.arg("COUNT").arg(1000);
        let found: Iter<'_, String> = scan.iter(redis)?;
        let names: Vec<String> = found.collect::<Result<_, _>>()?;
        for name in names {
            let counted: Option<i64> = cmd("GETDEL").arg(&name).query(redis)?;
            if let (Some(n), Some(key)) = (counted, name.strip_prefix(PREFIX)) {
                (self.add)(conn, key.parse()?, n)?;
            }
        }
        Ok(())
    }
}
