//! The state that callers and the worker share.

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use diesel::connection::LoadConnection;

use crate::error::Error;
use crate::observe;
use crate::policy::RetryPolicy;

use super::added::{Added, Landed};
use super::handoff::{Bell, Queue, QueueFlight, Refused, Ticket, Urgency};
use super::loss::{Loss, OnLoss};
use super::stats::Stats;

/// Threads are spread over this number of queues, so that they seldom meet.
pub(super) const QUEUES: usize = 8;

pub(super) struct CoalescerState<Conn> {
    pub(super) queues: [Queue<Added<Conn>, Landed>; QUEUES],
    pub(super) bell: Bell,
    pub(super) limits: Limits,
    pub(super) retry: RetryPolicy,
    pub(super) on_loss: Option<OnLoss>,
    /// The time at which the worker stops trying. It is set when the coalescer is closed.
    pub(super) gives_up_at: OnceLock<Instant>,
    pub(super) stats: Mutex<Stats>,
    /// Losses that are being reported.
    reporting: Mutex<Option<QueueFlight<()>>>,
}

#[derive(Debug, Clone)]
pub(super) struct Limits {
    pub(super) max_delay: Duration,
    pub(super) max_batch: usize,
    pub(super) max_queued: usize,
    pub(super) deadline: Duration,
}

impl<Conn: LoadConnection + 'static> CoalescerState<Conn> {
    pub(super) fn new(limits: Limits, retry: RetryPolicy, on_loss: Option<OnLoss>) -> Self {
        CoalescerState {
            queues: std::array::from_fn(|_| Queue::new()),
            bell: Bell::new(),
            limits,
            retry,
            on_loss,
            gives_up_at: OnceLock::new(),
            stats: Mutex::default(),
            reporting: Mutex::default(),
        }
    }

    /// Adds to the queue of this thread as soon as there is room.
    pub(super) fn add<T>(
        &self,
        deadline: Instant,
        add: impl FnOnce(&mut Added<Conn>, &Arc<Ticket<Landed>>) -> T,
    ) -> Result<T, Error> {
        let began = Instant::now();
        let room = (self.limits.max_queued / QUEUES).max(1);
        let has_room = |added: &Added<Conn>| {
            let has_room = added.size() < room;
            if !has_room {
                self.bell.ring(Urgency::Now);
            }
            has_room
        };
        let queued = self.queues[queue_of_this_thread()].add(deadline, has_room, add);
        queued.map_err(|refused| match refused {
            Refused::Closed => Error::CoalescerClosed,
            Refused::Full => self.deadline_passed(began),
        })
    }

    /// Adds to the queue of this thread, whether there is room or not.
    pub(super) fn add_anyway(&self, add: impl FnOnce(&mut Added<Conn>)) -> Result<(), Refused> {
        self.queues[queue_of_this_thread()].add(Instant::now(), |_| true, |added, _| add(added))
    }

    /// Refuses all further additions.
    pub(super) fn close(&self) {
        for queue in &self.queues {
            queue.close();
        }
    }

    pub(super) fn deadline_passed(&self, began: Instant) -> Error {
        Error::DeadlinePassed {
            waited: began.elapsed(),
            reason: self.obstacle(),
        }
    }

    pub(super) fn flush_pending(&self, began: Instant) -> Error {
        Error::FlushPending {
            waited: began.elapsed(),
            reason: self.obstacle(),
        }
    }

    /// The last error, or else a guess.
    fn obstacle(&self) -> String {
        let reason = self.stats().last_error.clone();
        reason.unwrap_or_else(|| "the database is slower than what is added".into())
    }

    pub(super) fn waiting_callers(&self) -> usize {
        let queues = self.queues.iter();
        queues
            .map(|queue| queue.look(|added| added.callers.len()))
            .sum()
    }

    pub(super) fn gives_up_at(&self) -> Option<Instant> {
        self.gives_up_at.get().copied()
    }

    pub(super) fn stats(&self) -> MutexGuard<'_, Stats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, note: impl FnOnce(&mut Stats)) {
        note(&mut self.stats());
    }

    pub(super) fn blocked_by(&self, reason: &str) {
        self.note(|stats| stats.last_error = Some(reason.to_owned()));
    }

    /// Notes losses that are to be reported when the callers of their batch have their results.
    pub(super) fn note_losses(&self, losses: &[Loss]) {
        let Some(last) = losses.last() else {
            return;
        };
        losses.iter().for_each(|_| observe::lost());
        self.note(|stats| {
            stats.losses += losses.len() as u64;
            stats.last_error = Some(last.error.to_string());
        });
        self.reporting().get_or_insert_default();
    }

    /// Calls `on_loss` with each of these.
    pub(super) fn report(&self, losses: &[Loss]) {
        if let Some(on_loss) = &self.on_loss {
            for loss in losses {
                let reported = panic::catch_unwind(AssertUnwindSafe(|| on_loss(loss)));
                self.note(|stats| stats.panics += u64::from(reported.is_err()));
            }
        }
        let reported = self.reporting().take();
        drop(reported); // which tells those who flush
    }

    fn reporting(&self) -> MutexGuard<'_, Option<QueueFlight<()>>> {
        self.reporting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The ticket of the reports that are under way.
    pub(super) fn report_ticket(&self) -> Option<Arc<Ticket<()>>> {
        self.reporting().as_ref().map(QueueFlight::ticket)
    }
}

fn queue_of_this_thread() -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static QUEUE: usize = NEXT.fetch_add(1, Ordering::Relaxed) % QUEUES;
    }
    QUEUE.try_with(|queue| *queue).unwrap_or(0)
}
