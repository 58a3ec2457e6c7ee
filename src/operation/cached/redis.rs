//! Totals kept in a Redis server.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::{Client, Cmd, Connection, IntoConnectionInfo, RedisError, Value};

use super::{CacheError, TotalCache};
use crate::per_process::PerProcess;

/// Keeps totals in a Redis server, or one that speaks its protocol and runs Lua (Valkey, KeyDB): shared by all processes, and
/// kept when they restart.
///
/// | setting | default | meaning |
/// |---|---|---|
/// | [`with_timeout`](Self::with_timeout) | 100 ms | the longest wait for a connection, and then for an answer |
///
/// Connections are opened when they are needed and kept for the next operations: 16 at most, and none that was idle for 30 s.
/// Each operation is one round trip:
///
/// ```text
/// GET key
/// SET key total NX PX ttl
/// EVAL "… if redis.call('EXISTS', KEYS[1]) == 0 … redis.call('INCRBY', KEYS[1], ARGV[1]) …" 1 key by
/// DEL key
/// ```
///
/// The timeout does not cover the system's look-up of a host's name. If that can be slow, use an IP address. For TLS, enable it
/// in the crate `redis`. A Redis cluster, whose servers redirect clients to each other, is not supported.
pub struct RedisCache {
    client: Client,
    timeout: Duration,
    /// In the order in which they were used.
    idle: PerProcess<Mutex<Vec<(Connection, Instant)>>>,
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
    /// A cache in the server that `client` connects to. Does not connect yet.
    pub fn new(client: Client) -> Self {
        RedisCache {
            client,
            timeout: Duration::from_millis(100),
            idle: PerProcess::new(|_| Mutex::default()), // two processes on one connection would read each other's answers
        }
    }

    /// A cache in the server at an address such as `redis://127.0.0.1:6379`. Does not connect yet.
    ///
    /// # Errors
    /// [`CacheError::Unavailable`] if this is not an address.
    pub fn open(address: impl IntoConnectionInfo) -> Result<Self, CacheError> {
        let info = address.into_connection_info().map_err(unavailable)?;
        // Telling the server the library's name would cost a round trip for each connection.
        let settings = info.redis_settings().clone().set_skip_set_lib_name();
        let client = Client::open(info.set_redis_settings(settings)).map_err(unavailable)?;
        Ok(Self::new(client))
    }

    /// Sets the longest wait for a connection, and for an answer; at least a millisecond.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout.max(Duration::from_millis(1));
        self
    }

    /// Sends a command for `key`.
    fn query(&self, key: &str, command: &Cmd) -> Result<Value, CacheError> {
        let mut conn = self.connection().map_err(unavailable)?;
        match command.query::<Value>(&mut conn) {
            Ok(value) => {
                self.keep(conn);
                Ok(value)
            }
            Err(error) if is_about_the_value(&error) => {
                self.keep(conn);
                Err(not_a_total(key, error))
            }
            Err(error) => {
                // The other connections lead to the same server, and were opened before this one failed.
                self.idle().clear();
                Err(unavailable(error))
            }
        }
    }

    fn connection(&self) -> Result<Connection, RedisError> {
        let last_used = self.idle().pop();
        match last_used {
            Some((conn, since)) if since.elapsed() < MAX_IDLE_TIME => return Ok(conn),
            // All others are idle for longer.
            Some(_) => self.idle().clear(),
            None => {}
        }
        let conn = self.client.get_connection_with_timeout(self.timeout)?;
        conn.set_read_timeout(Some(self.timeout))?;
        conn.set_write_timeout(Some(self.timeout))?;
        Ok(conn)
    }

    fn keep(&self, conn: Connection) {
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE {
            idle.push((conn, Instant::now()));
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Connection, Instant)>> {
        let idle = self.idle.own().lock();
        idle.unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn get(cache: &RedisCache) -> Result<Option<i64>, CacheError> {
        let started = Instant::now();
        let result = cache.get("a");
        assert!(started.elapsed() < Duration::from_secs(30));
        result
    }

    #[test]
    fn opening_does_not_connect() {
        let nobody = RedisCache::open("redis://127.0.0.1:1").unwrap();
        let refused = get(&nobody);
        assert!(
            matches!(refused, Err(CacheError::Unavailable { .. })),
            "{refused:?}"
        );
        let wrong = RedisCache::open("http://127.0.0.1");
        assert!(
            matches!(wrong, Err(CacheError::Unavailable { .. })),
            "{wrong:?}"
        );
    }

    #[test]
    fn a_server_that_never_answers_is_left_after_the_timeout() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = silent.local_addr().unwrap();
        for address in [format!("redis://{at}"), format!("redis://:secret@{at}/1")] {
            for timeout in [Duration::ZERO, Duration::from_millis(50)] {
                let cache = RedisCache::open(address.as_str()).unwrap();
                let late = get(&cache.with_timeout(timeout));
                assert!(
                    matches!(late, Err(CacheError::Unavailable { .. })),
                    "{late:?}"
                );
            }
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let cache = RedisCache::open("redis://:secret@127.0.0.1").unwrap();
        assert!(!format!("{cache:?}").contains("secret"));
    }
}
