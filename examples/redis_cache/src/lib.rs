//! A [`TotalCache`] in a Redis server: shared by all processes, and kept when they restart. Copy this file into an application, and
//! adapt it: to a pool of connections that it has already, to another server with an atomic "add, if there is a value".

use std::fmt;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use diesel_sharded::cached::{CacheError, TotalCache};
use redis::{Client, Cmd, Connection, IntoConnectionInfo, RedisError, Value};

/// Keeps totals in a Redis server, or one that speaks its protocol and runs Lua (Valkey, KeyDB).
///
/// Connections are opened when they are needed and kept for the next operations. Each operation is one round trip. The timeout does
/// not cover the system's look-up of a host's name: if that can be slow, use an IP address. A Redis cluster, whose servers redirect
/// clients to each other, is not supported.
pub struct RedisCache {
    client: Client,
    timeout: Duration,
    idle: Mutex<Idle>,
}

/// Connections of one process, in the order in which they were used.
#[derive(Default)]
struct Idle {
    process: u32,
    connections: Vec<(Connection, Instant)>,
}

const MAX_IDLE: usize = 16;

/// Servers and firewalls close connections that are idle for minutes.
const MAX_IDLE_TIME: Duration = Duration::from_secs(30);

/// The milliseconds that Redis accepts: at least one, and no more than it can add to the time of day. A century is enough.
const TTLS: (u128, u128) = (1, 100 * 365 * 24 * 60 * 60 * 1000);

/// An overflow leaves the value as it was, and so too small: it is removed. Any other error is returned unchanged.
const INCREMENT_IF_PRESENT: &str = "\
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
local added = redis.pcall('INCRBY', KEYS[1], ARGV[1])
if type(added) == 'table' and added.err then
  if not string.find(added.err, 'overflow', 1, true) then return added end
  redis.call('DEL', KEYS[1])
end
return 1";

impl RedisCache {
    /// A cache in the server at an address such as `redis://127.0.0.1:6379`, which waits at most for `timeout` (at least a
    /// millisecond) for a connection, and then for an answer. Does not connect yet.
    ///
    /// # Errors
    /// [`CacheError::Unavailable`] if this is not an address.
    pub fn open(address: impl IntoConnectionInfo, timeout: Duration) -> Result<Self, CacheError> {
        let info = address.into_connection_info().map_err(unavailable)?;
        // Telling the server the library's name would cost a round trip for each connection.
        let settings = info.redis_settings().clone().set_skip_set_lib_name();
        Ok(RedisCache {
            client: Client::open(info.set_redis_settings(settings)).map_err(unavailable)?,
            timeout: timeout.max(Duration::from_millis(1)),
            idle: Mutex::default(),
        })
    }

    /// Sends a command for `key`.
    fn query(&self, key: &str, command: &Cmd) -> Result<Value, CacheError> {
        let mut conn = self.connection().map_err(unavailable)?;
        let answer = command.query(&mut conn);
        if let Err(error) = &answer
            && !is_about_the_value(error)
        {
            // The other connections lead to the same server, and were opened before this one failed.
            self.idle().connections.clear();
            return answer.map_err(unavailable);
        }
        let mut idle = self.idle();
        if idle.connections.len() < MAX_IDLE {
            idle.connections.push((conn, Instant::now()));
        }
        answer.map_err(|error| not_a_total(key, error))
    }

    fn connection(&self) -> Result<Connection, RedisError> {
        let last_used = self.idle().connections.pop();
        match last_used {
            Some((conn, since)) if since.elapsed() < MAX_IDLE_TIME => return Ok(conn),
            Some(_) => self.idle().connections.clear(), // all others are idle for longer
            None => {}
        }
        let conn = self.client.get_connection_with_timeout(self.timeout)?;
        conn.set_read_timeout(Some(self.timeout))?;
        conn.set_write_timeout(Some(self.timeout))?;
        Ok(conn)
    }

    /// The connections of this process: a child and its parent on one connection would read each other's answers.
    fn idle(&self) -> MutexGuard<'_, Idle> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.process != process::id() {
            idle.process = process::id();
            idle.connections.clear();
        }
        idle
    }
}

impl TotalCache for RedisCache {
    fn get(&self, key: &str) -> Result<Option<i64>, CacheError> {
        let value = self.query(key, redis::cmd("GET").arg(key))?;
        redis::from_redis_value(value).map_err(|error| not_a_total(key, error.into()))
    }

    fn add_if_absent(&self, key: &str, total: i64, ttl: Duration) -> Result<(), CacheError> {
        let millis = ttl.as_millis().clamp(TTLS.0, TTLS.1) as u64;
        let mut command = redis::cmd("SET");
        command.arg(key).arg(total).arg("NX").arg("PX").arg(millis);
        self.query(key, &command).map(drop)
    }

    fn increment_if_present(&self, key: &str, by: i64) -> Result<(), CacheError> {
        let mut command = redis::cmd("EVAL");
        command.arg(INCREMENT_IF_PRESENT).arg(1).arg(key).arg(by);
        self.query(key, &command).map(drop)
    }

    fn remove(&self, key: &str) -> Result<(), CacheError> {
        self.query(key, redis::cmd("DEL").arg(key)).map(drop)
    }
}

impl fmt::Debug for RedisCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the client: its address may hold a password.
        f.debug_struct("RedisCache")
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// Whether the server says that a value is of another kind, or no integer.
fn is_about_the_value(error: &RedisError) -> bool {
    let text = error.detail().unwrap_or_default();
    error.code() == Some("WRONGTYPE") || text.contains("not an integer")
}

fn not_a_total(key: &str, error: RedisError) -> CacheError {
    CacheError::NotATotal {
        key: key.to_owned(),
        source: error.into(),
    }
}

fn unavailable(error: RedisError) -> CacheError {
    CacheError::Unavailable {
        source: error.into(),
    }
}
