//! The limits of a coalescer, and its start.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use diesel::connection::LoadConnection;
use diesel::r2d2::{ManageConnection, Pool};

use crate::backend::BackendOf;
use crate::background::Background;
use crate::error::Error;
use crate::policy::RetryPolicy;

use super::handle::Coalescer;
use super::loss::{Loss, OnLoss};
use super::shared::{CoalescerState, Limits};
use super::token::Token;
use super::worker::{Borrow, Borrowed, Worker};

/// As long as for ever, and still a time that the clock can hold.
const CENTURY: Duration = Duration::from_secs(3_153_600_000);

/// Sets the limits of a [`Coalescer`].
///
/// | setting | default | meaning |
/// |---|---|---|
/// | [`max_delay`](Self::max_delay) | 100 ms | how long an addition that nobody waits for stays in memory before its flush begins |
/// | [`max_batch`](Self::max_batch) | 1,000 | counters in one transaction |
/// | [`max_queued`](Self::max_queued) | 100,000 | counters and waiting callers in the queue, besides those in flight |
/// | [`deadline`](Self::deadline) | 10 s | how long a caller waits, for its commit or for room; and a close for the last flush |
/// | [`retry`](Self::retry) | the process-wide policy | how a batch that met a conflict is retried |
/// | [`on_loss`](Self::on_loss) | none | called with additions that nobody waits for and that cannot be counted |
#[must_use = "nothing runs until it is built"]
pub struct CoalescerBuilder<Conn: LoadConnection + 'static> {
    borrow: Borrow<Conn>,
    limits: Limits,
    retry: RetryPolicy,
    on_loss: Option<OnLoss>,
}

impl<Conn: LoadConnection + 'static> CoalescerBuilder<Conn> {
    /// Sets how long an addition that nobody waits for stays in memory before its flush begins. Callers who wait are not delayed.
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.limits.max_delay = delay;
        self
    }

    /// Sets how many counters one transaction may add to, at least 1. A higher number means fewer commits, which hold more locks
    /// for longer.
    pub fn max_batch(mut self, counters: usize) -> Self {
        self.limits.max_batch = counters.max(1);
        self
    }

    /// Sets how many counters and waiting callers may be queued, besides those in flight. Further additions wait for room. Each
    /// of 8 groups of threads has an equal part of that, at least 1.
    pub fn max_queued(mut self, counters_and_callers: usize) -> Self {
        self.limits.max_queued = counters_and_callers;
        self
    }

    /// Sets how long a caller waits for its commit, or for room in the queue; and how long closing waits for the last flush. At
    /// most a century.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.limits.deadline = deadline.min(CENTURY);
        self
    }

    /// Retries a batch by `policy` when it meets a conflict.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// Calls `on_loss` with each addition that nobody waits for and that will not be counted, because of an error of its row, or
    /// because the coalescer was closed while the database was away. It runs on the worker's thread after the callers of the
    /// batch have their results. The next batch waits for it.
    pub fn on_loss(mut self, on_loss: impl Fn(&Loss) + Send + Sync + 'static) -> Self {
        self.on_loss = Some(Box::new(on_loss));
        self
    }
}

impl<Conn> CoalescerBuilder<Conn>
where
    Conn: LoadConnection + 'static,
    Conn::Backend: BackendOf<Conn>,
{
    /// Starts the coalescer.
    ///
    /// # Errors
    /// If no connection can be acquired or no thread started, or the library's own tables are missing
    /// ([`MissingShardsTable`](Error::MissingShardsTable)).
    pub fn build(self) -> Result<Coalescer<Conn>, Box<dyn std::error::Error + Send + Sync>> {
        let mut conn = (self.borrow)(self.limits.deadline)?;
        let token = Token::new().map_err(Error::from)?;
        token.register(&mut **conn).map_err(Error::from)?;
        let shared = Arc::new(CoalescerState::new(self.limits, self.retry, self.on_loss));
        let worker = Worker::new(Arc::clone(&shared), self.borrow, conn, token);
        let worker = Background::spawn("diesel_sharded coalescer", move |_| worker.run())?;
        Ok(Coalescer::of(shared, worker))
    }
}

impl<Conn> Coalescer<Conn>
where
    Conn: LoadConnection + 'static,
    Conn::Backend: BackendOf<Conn>,
{
    /// Starts a coalescer with the defaults.
    ///
    /// # Errors
    /// As [`CoalescerBuilder::build`].
    pub fn new<M>(pool: Pool<M>) -> Result<Self, Box<dyn std::error::Error + Send + Sync>>
    where
        M: ManageConnection<Connection = Conn>,
    {
        Self::builder(pool).build()
    }

    /// A coalescer over the connections of `pool`, with limits of its own.
    pub fn builder<M>(pool: Pool<M>) -> CoalescerBuilder<Conn>
    where
        M: ManageConnection<Connection = Conn>,
    {
        CoalescerBuilder {
            borrow: Box::new(move |patience| match pool.get_timeout(patience) {
                Ok(conn) => Ok(Box::new(conn) as Borrowed<Conn>),
                Err(error) => Err(error.to_string()),
            }),
            limits: Limits {
                max_delay: Duration::from_millis(100),
                max_batch: 1_000,
                max_queued: 100_000,
                deadline: Duration::from_secs(10),
            },
            retry: RetryPolicy::default(),
            on_loss: None,
        }
    }
}

impl<Conn: LoadConnection + 'static> fmt::Debug for CoalescerBuilder<Conn> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoalescerBuilder")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
