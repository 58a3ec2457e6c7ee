//! Pauses and deadlines of tasks, on any runtime.
//!
//! tokio's own timers panic on a runtime that was built without them, and no function says so beforehand. Such runtimes are promised to do
//! ([differences](crate::asynchronous#differences)), so a thread of this crate, which starts at the first pause, wakes the tasks. Only where
//! the runtime's clock stands still, by `tokio::time::pause` in tests, the pauses are tokio's.

use std::collections::BTreeMap;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};

use crate::per_process::PerProcess;

/// Waits this long.
pub(crate) async fn pause(delay: Duration) {
    if clock_stands_still() {
        tokio::time::sleep(delay).await;
    } else {
        Sleep::new(delay).await;
    }
}

/// Awaits `future` at most this long. Returns its output, or `None`.
pub(crate) async fn within<F: Future>(patience: Duration, future: F) -> Option<F::Output> {
    match select(pin!(future), pin!(pause(patience))).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(_) => None,
    }
}

fn clock_stands_still() -> bool {
    let (of_tokio, real) = (tokio::time::Instant::now(), Instant::now());
    while Instant::now() == real {} // nanoseconds, or one step of a coarser clock
    tokio::time::Instant::now() == of_tokio
}

/// Longer than any process runs.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The tasks that wait, by due time and a number that tells apart those due at one instant.
#[derive(Default)]
struct Sleepers {
    wakers: BTreeMap<(Instant, u64), Waker>,
    number: u64,
}

/// The pauses of a process. A child lacks its parent's thread, which would end them.
#[derive(Default)]
struct Pauses {
    sleepers: Mutex<Sleepers>,
    changed: Condvar,
    /// Whether the thread that wakes tasks runs.
    wakes: OnceLock<bool>,
}

static PAUSES: PerProcess<Pauses> = PerProcess::new(|_| Pauses::default());

impl Pauses {
    fn sleepers(&self) -> MutexGuard<'_, Sleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the thread that wakes tasks runs. It is started once; where it cannot be, tasks poll.
    fn somebody_wakes(&'static self) -> bool {
        *self.wakes.get_or_init(|| {
            let thread = thread::Builder::new().name("diesel_sharded pauses".into());
            thread.spawn(|| self.wake_for_ever()).is_ok()
        })
    }

    fn wake_for_ever(&self) {
        let mut waiting = self.sleepers();
        loop {
            let now = Instant::now();
            let due = waiting.wakers.first_key_value().map(|((due, _), _)| *due);
            waiting = match due {
                Some(due) if due <= now => {
                    let woken = waiting.wakers.pop_first();
                    drop(waiting); // a woken task may look at once
                    if let Some((_, waker)) = woken {
                        // Foreign code: its panic would end all other pauses.
                        let _ = catch_unwind(AssertUnwindSafe(|| waker.wake()));
                    }
                    self.sleepers()
                }
                Some(due) => {
                    let waited = self.changed.wait_timeout(waiting, due - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.changed.wait(waiting);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }
}

struct Sleep {
    due: Instant,
    number: Option<u64>,
}

impl Sleep {
    fn new(delay: Duration) -> Self {
        Sleep {
            due: Instant::now() + delay.min(LONGEST),
            number: None,
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.due {
            return Poll::Ready(());
        }
        let pauses = PAUSES.own();
        if !pauses.somebody_wakes() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut waiting = pauses.sleepers();
        let number = *self.number.get_or_insert_with(|| {
            waiting.number += 1;
            waiting.number
        });
        let at = (self.due, number);
        waiting.wakers.insert(at, context.waker().clone());
        if waiting.wakers.first_key_value().map(|(first, _)| *first) == Some(at) {
            pauses.changed.notify_one();
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = PAUSES.own().sleepers().wakers.remove(&(self.due, number));
            drop(waker); // not under the lock: it may be the last of its task
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn without_timers() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
    }

    #[test]
    fn a_pause_lasts_as_long_as_it_was_asked_to_and_blocks_nobody() {
        const SHORT: Duration = Duration::from_millis(20);
        let begun = Instant::now();
        let done = AtomicU32::new(0);
        without_timers().block_on(async {
            let pauses = (1..=3).map(|n| {
                let done = &done;
                async move {
                    pause(n * SHORT).await;
                    // In the order of their ends: the runtime's one thread served the others meanwhile.
                    assert_eq!(done.fetch_add(1, Ordering::SeqCst), n - 1);
                }
            });
            futures_util::future::join_all(pauses).await;
        });
        assert!(begun.elapsed() >= 3 * SHORT);
        assert_eq!(done.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn a_deadline_passes_only_where_the_future_is_late() {
        without_timers().block_on(async {
            const SOON: Duration = Duration::from_millis(10);
            let never = std::future::pending::<()>();
            assert_eq!(within(SOON, never).await, None);
            for patience in [Duration::ZERO, SOON, Duration::MAX] {
                assert_eq!(within(patience, std::future::ready(7)).await, Some(7));
            }
        });
    }

    #[test]
    fn what_is_dropped_is_not_waited_for() {
        let mut pause = Box::pin(Sleep::new(Duration::MAX));
        let mut context = Context::from_waker(Waker::noop());
        assert!(pause.as_mut().poll(&mut context).is_pending());
        let at = (pause.due, pause.number.unwrap());
        assert!(PAUSES.own().sleepers().wakers.contains_key(&at));
        drop(pause);
        assert!(!PAUSES.own().sleepers().wakers.contains_key(&at));
    }
}
