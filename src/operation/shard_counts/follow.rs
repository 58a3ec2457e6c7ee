//! A thread that refreshes the numbers at an interval.

use std::error::Error as StdError;
use std::fmt;
use std::panic::{self, AssertUnwindSafe};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use diesel::connection::LoadConnection;

use super::known::refresh;
use crate::backend::BackendOf;
use crate::background::Background;

/// How long to wait for a refresh that is under way when nobody follows any more.
const LAST_REFRESH: Duration = Duration::from_secs(1);

/// Refreshes the numbers now, and from then on at every interval, in a thread of its own, on a connection that `connect`
/// makes or takes from a pool each time.
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

/// Follows the numbers in the database until it is dropped; made by [`follow`]. Dropping it waits up to a second for a refresh
/// that is under way.
#[must_use = "dropping it stops following"]
pub struct Following {
    thread: Background,
    last_error: Arc<Mutex<Option<String>>>,
}

impl Following {
    /// Why the last refresh failed, if it did. In a child of the process that follows, that nobody follows there.
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

impl fmt::Debug for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Following")
            .field("last_error", &self.last_error())
            .finish_non_exhaustive()
    }
}
