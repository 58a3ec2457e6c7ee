//! Redis in front of the row: clients call `INCR` there, and a thread adds the sums to the row.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use diesel::prelude::*;
use diesel_sharded_tests::redis::RedisServer;
use redis::{Client, Connection as RedisConnection, Iter, cmd};

use crate::arena::{Arena, Stage};
use crate::contenders::{Contender, Outcome};

/// The Redis servers that are compared, at their own best.
pub struct Redis {
    /// Keeps everything in memory: the fastest.
    pub in_memory: RedisServer,
    /// Logs every command, and waits for the disk once a second: a crash of the machine loses about a second.
    pub logged: RedisServer,
}

impl Redis {
    pub fn start() -> Self {
        Redis {
            in_memory: RedisServer::start(),
            logged: RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "everysec"]),
        }
    }
}

const INTERVAL: Duration = Duration::from_millis(100);
const PREFIX: &str = "views:";

/// Counts in a Redis server, whose sums `add` adds to the row of a key.
pub fn write_behind<Conn: Arena>(
    name: &'static str,
    total: String,
    redis: &RedisServer,
    stage: Stage<Conn>,
    add: fn(&mut Conn, i64, i64) -> QueryResult<usize>,
) -> Contender<Conn> {
    let client = Client::open(redis.url()).expect("an address of a Redis server");
    let counting = client.clone();
    Contender {
        is_buffered: true,
        counting: Box::new(move || {
            let mut redis = counting.get_connection()?;
            Ok(Box::new(move |_, key| {
                Ok(cmd("INCR").arg(format!("{PREFIX}{key}")).exec(&mut redis)?)
            }))
        }),
        begin: Box::new(move || {
            let (stop, stopped) = mpsc::channel::<()>();
            let mut redis = client.get_connection().expect("a Redis server");
            let mut conn = stage.connect();
            let writer = thread::spawn(move || {
                loop {
                    let waited = stopped.recv_timeout(INTERVAL);
                    write(&mut redis, &mut conn, add)?;
                    if waited != Err(RecvTimeoutError::Timeout) {
                        return Outcome::Ok(());
                    }
                }
            });
            Box::new(move || {
                drop(stop);
                let written = writer.join().expect("no panic in the writer");
                written.expect("all that was counted can be written");
            })
        }),
        ..Contender::new(name, total, |_, _| Ok(1))
    }
}

/// A crash between `GETDEL` and the update loses increments: the price of this way to count.
fn write<Conn>(
    redis: &mut RedisConnection,
    conn: &mut Conn,
    add: fn(&mut Conn, i64, i64) -> QueryResult<usize>,
) -> Outcome {
    let mut scan = cmd("SCAN");
    scan.cursor_arg(0).arg("MATCH").arg(format!("{PREFIX}*"));
    scan.arg("COUNT").arg(1000);
    let found: Iter<'_, String> = scan.iter(redis)?;
    let names: Vec<String> = found.collect::<Result<_, _>>()?;
    for name in names {
        let counted: Option<i64> = cmd("GETDEL").arg(&name).query(redis)?;
        if let (Some(n), Some(key)) = (counted, name.strip_prefix(PREFIX)) {
            add(conn, key.parse()?, n)?;
        }
    }
    Ok(())
}
