//! Coalesced counts that tasks wait for.

use std::future::poll_fn;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use diesel::connection::LoadConnection;

use super::coalesced::Coalesced;
use super::handle::{Coalescer, WaitingCaller};
use crate::backend::BackendOf;
use crate::connection::BoxFuture;
use crate::connection::pause::{pause, within};
use crate::error::Error;
use crate::observe;

/// The number of the next task that flushes, in the upper half of all numbers. Callers are numbered from 0 on.
static FLUSHES: AtomicU32 = AtomicU32::new(0);

/// The pause between two looks for room in the queue.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

impl<Conn> Coalescer<Conn>
where
    Conn: LoadConnection + 'static,
    Conn::Backend: BackendOf<Conn>,
{
    /// [`add`](Self::add) for a task: adds `n`, waits for the commit and returns the number of rows counted. No thread waits.
    ///
    /// An addition in the queue is counted once, also if the task is cancelled and its future dropped: it goes on as if it was
    /// made by [`add_later`](Self::add_later). A future that was never polled, or still waits for room in the queue, has added
    /// nothing.
    ///
    /// The coalescer's own connection is an ordinary one, on its own thread. For an application without the C libraries it
    /// is `diesel_async::async_connection_wrapper::AsyncConnectionWrapper<AsyncPgConnection>`; build and close the coalescer inside
    /// `tokio::task::spawn_blocking` then, since that connection blocks its thread.
    ///
    /// # Errors
    /// As [`add`](Self::add)'s.
    pub fn add_async<'a, K>(&'a self, counter: &'a K, n: i64) -> BoxFuture<'a, Result<usize, Error>>
    where
        K: Coalesced<Conn> + Sync,
    {
        Box::pin(async move {
            let began = Instant::now();
            let deadline = began + self.shared().limits.deadline;
            let WaitingCaller { number, ticket } = loop {
                match self.board(counter, n, began) {
                    Err(Error::DeadlinePassed { .. }) if Instant::now() < deadline => {
                        pause(LOOK_AGAIN).await;
                    }
                    boarded => break boarded?,
                }
            };
            let landed =
                poll_fn(|context| ticket.poll(number, context.waker(), |landed| landed.of(number)));
            let waited = within(deadline.saturating_duration_since(Instant::now()), landed).await;
            observe::waited(began);
            match waited {
                Some(result) => result,
                None => match ticket.wait(number, began, |landed| landed.of(number)) {
                    Ok(result) => result, // it has landed at this very moment
                    Err(timed_out) => Err(self.timed_out(timed_out, began)),
                },
            }
        })
    }

    /// [`flush`](Self::flush) for a task.
    ///
    /// # Errors
    /// As [`flush`](Self::flush)'s.
    pub fn flush_async(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let began = Instant::now();
            let deadline = began + self.shared().limits.deadline;
            let number = FLUSHES.fetch_add(1, Ordering::Relaxed) | 1 << 31;
            for ticket in self.in_hand() {
                let landed = poll_fn(|context| ticket.poll(number, context.waker(), |_| ()));
                let landed =
                    within(deadline.saturating_duration_since(Instant::now()), landed).await;
                landed.ok_or_else(|| self.shared().flush_pending(began))?;
            }
            Ok(())
        })
    }
}
