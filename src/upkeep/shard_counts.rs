//! The number of shards that writers choose from, which can change while they run.
//!
//! Any number is right, because readers add up all shards that exist. The number only decides how often writers collide, so a process
//! may learn it late. One of the library's own tables (see [`MIGRATIONS`](crate::MIGRATIONS)) holds the numbers, and each process
//! follows it at its own pace. A process identifies numbers by the names of tables. If it counts in several databases with tables of the
//! same names, the last number that it read applies to all.
//!
//! ```
//! # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
//! # use schema::videos;
//! # use diesel::prelude::*;
//! # #[derive(diesel_sharded::ShardedField)]
//! # struct Video { id: i64, #[sharded] views: i64 }
//! # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! # let file = std::env::temp_dir().join(format!("sharded_numbers_{}.db", std::process::id()));
//! # let url = file.display().to_string();
//! # let conn = &mut SqliteConnection::establish(&url)?;
//! # use diesel_migrations::MigrationHarness;
//! # conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?;
//! use std::time::{Duration, Instant};
//! use diesel_sharded::shard_counts::{ShardCount, follow};
//!
//! // Once, when the process starts: 10 s is how long a change takes to arrive here, at most.
//! let following = follow(Duration::from_secs(10), move || SqliteConnection::establish(&url))?;
//!
//! // Anywhere, at any time: from now on more writers find a shard of their own.
//! assert_eq!(ShardCount::of(videos::views).increase(512, conn)?, 512);
//! # drop(following);
//! # std::fs::remove_file(file)?;
//! # Ok(())
//! # }
//! ```

pub(crate) mod number;

use std::error::Error as StdError;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use diesel::connection::LoadConnection;
use diesel::result::QueryResult;

use crate::backend::BackendOf;
use crate::background::Background;
use crate::connection::paired;
use crate::model::shows;

pub(crate) use self::number::{Number, keep_fresh, known, wished};
pub(crate) use self::number::{TABLE, largest, read_table};

/// The number of shards of one field, or of one named counter; see [`operation::ShardCount`](crate::operation::ShardCount).
pub type ShardCount = number::ShardCount;

pub use self::blocking::refresh;

paired! {
    /// Reads all numbers from the database. From then on this process uses them.
    ///
    /// ```sql
    /// SELECT "shards_table", "counter", "shards" FROM "diesel_sharded_shard_numbers"
    /// ```
    ///
    /// # Errors
    /// Those of [`ShardCount::get`](ShardCount::get), and inside a transaction
    /// [`AlreadyInTransaction`](diesel::result::Error::AlreadyInTransaction). The numbers known before stay in use.
    pub fn refresh(link: Link) -> QueryResult<()>
    where
        DB: BackendOf<Conn>,
    {
        number::read_all(link).await
    }
}

/// How long dropping a [`Following`] waits for a refresh in progress.
const LAST_REFRESH: Duration = Duration::from_secs(1);

/// Refreshes the numbers now, and then at every interval in a separate thread. Each refresh uses a connection that `connect` opens or
/// takes from a pool.
///
/// A refresh that fails leaves the numbers as they were, and is retried at the next interval; see [`Following::last_error`].
///
/// # Errors
/// Those of the first refresh.
pub fn follow<Conn, E>(
    every: Duration,
    mut connect: impl FnMut() -> Result<Conn, E> + Send + 'static,
) -> Result<Following, Box<dyn StdError + Send + Sync>>
where
    Conn: LoadConnection,
    Conn::Backend: BackendOf<Conn>,
    E: Into<Box<dyn StdError + Send + Sync>>,
{
    let mut once = move || -> Result<(), Box<dyn StdError + Send + Sync>> {
        let mut conn = connect().map_err(Into::into)?;
        Ok(refresh(&mut conn)?)
    };
    let every = every.max(Duration::from_millis(10));
    once()?;
    let last_error = Arc::new(Mutex::new(None));
    let tells = Arc::clone(&last_error);
    let thread = Background::spawn("diesel_sharded numbers", move |stopped| {
        while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
            let error = match panic::catch_unwind(AssertUnwindSafe(&mut once)) {
                Ok(refreshed) => refreshed.err().map(|error| error.to_string()),
                Err(_) => Some("it panicked".to_owned()),
            };
            *tells.lock().unwrap_or_else(PoisonError::into_inner) = error;
        }
    })?;
    Ok(Following { thread, last_error })
}

/// Follows the numbers in the database until it is dropped; made by [`follow`]. The drop waits up to a second for a refresh in progress.
#[must_use = "dropping it stops following"]
pub struct Following {
    thread: Background,
    last_error: Arc<Mutex<Option<String>>>,
}

impl Following {
    /// The reason why the last refresh failed, if it did. In a forked child, the error that no thread follows the numbers there.
    pub fn last_error(&self) -> Option<String> {
        if let Err(error) = self.thread.check("Following") {
            return Some(error.to_string());
        }
        self.last_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        self.thread.stop(LAST_REFRESH);
    }
}

shows!([] Following: |self| Following { last_error: self.last_error() } finish_non_exhaustive);
