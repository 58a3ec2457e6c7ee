//! The settings of a coalescer, and its start.

use std::sync::Arc;
use std::time::Duration;

use diesel::connection::LoadConnection;
use diesel::r2d2::{ManageConnection, Pool};

use crate::backend::BackendOf;
use crate::background::Background;
use crate::error::Error;
use crate::model::shows;
use crate::policy::RetryPolicy;

use super::buffer::{Buffer, Loss};
use super::writer::{Borrow, Borrowed, Writer};
use super::{Coalescer, Owner};

/// In effect forever, and still a time that the clock can hold.
const CENTURY: Duration = Duration::from_secs(3_153_600_000);

/// Called with each loss.
type OnLoss = Box<dyn Fn(&Loss) + Send + Sync>;

pub(super) struct Settings {
    pub(super) max_delay: Duration,
    pub(super) max_batch: usize,
    pub(super) max_queued: usize,
    pub(super) deadline: Duration,
    pub(super) retry: RetryPolicy,
    pub(super) on_loss: Option<OnLoss>,
}

/// Sets the limits of a [`Coalescer`].
///
/// | setting | default | meaning |
/// |---|---|---|
/// | [`max_delay`](Self::max_delay) | 100 ms | how long an addition stays in memory before its flush begins |
/// | [`max_batch`](Self::max_batch) | 1,000 | counters in one transaction |
/// | [`max_queued`](Self::max_queued) | 100,000 | counters in memory, besides those of the flush in progress |
/// | [`deadline`](Self::deadline) | 10 s | how long an addition waits for room, a flush for its commit, and a close for the last flush |
/// | [`retry`](Self::retry) | the process-wide policy | how a batch that met a conflict is retried |
/// | [`on_loss`](Self::on_loss) | none | called with what cannot be counted |
#[must_use = "nothing runs until it is built"]
pub struct CoalescerBuilder<Conn: LoadConnection + 'static> {
    borrow: Borrow<Conn>,
    settings: Settings,
}

impl<Conn: LoadConnection + 'static> CoalescerBuilder<Conn> {
    /// Sets how long an addition stays in memory before its flush begins. A crash loses it until then.
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.settings.max_delay = delay;
        self
    }

    /// Sets how many counters one transaction may add to, at least 1. A higher number means fewer commits, which hold more locks
    /// for longer.
    pub fn max_batch(mut self, counters: usize) -> Self {
        self.settings.max_batch = counters.max(1);
        self
    }

    /// Sets how many counters may be in memory, at least 1, besides those of the flush in progress. Further additions wait for room.
    pub fn max_queued(mut self, counters: usize) -> Self {
        self.settings.max_queued = counters.max(1);
        self
    }

    /// Sets how long an addition waits for room, a flush for its commit, and a close for the last flush; a hundred years at most.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.settings.deadline = deadline.min(CENTURY);
        self
    }

    /// Retries batches by `policy` instead of the [process-wide](RetryPolicy::global) one.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.settings.retry = policy;
        self
    }

    /// Calls `on_loss` with each sum that cannot be counted, in the writer's thread: because a row cannot accept it, or because the database
    /// did not answer by the deadline of a close.
    pub fn on_loss(mut self, on_loss: impl Fn(&Loss) + Send + Sync + 'static) -> Self {
        self.settings.on_loss = Some(Box::new(on_loss));
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
    /// If the pool has no connection until the deadline, the library's [migrations](crate::MIGRATIONS) have not run, or no
    /// thread can be started.
    pub fn build(self) -> Result<Coalescer<Conn>, Box<dyn std::error::Error + Send + Sync>> {
        let mut conn = (self.borrow)(self.settings.deadline)?;
        let buffer = Arc::new(Buffer::new(self.settings));
        let mut writer = Writer::new(Arc::clone(&buffer), self.borrow);
        writer.forget(&mut **conn).map_err(Error::from)?;
        drop(conn);
        let writer = Background::spawn("diesel_sharded coalescer", move |_| writer.run())?;
        let owner = Arc::new(Owner { buffer, writer });
        Ok(Coalescer { owner })
    }
}

impl<Conn> Coalescer<Conn>
where
    Conn: LoadConnection + 'static,
    Conn::Backend: BackendOf<Conn>,
{
    /// A coalescer with the default settings; see [`CoalescerBuilder`].
    ///
    /// # Errors
    /// As [`CoalescerBuilder::build`]'s.
    pub fn new<M>(pool: Pool<M>) -> Result<Self, Box<dyn std::error::Error + Send + Sync>>
    where
        M: ManageConnection<Connection = Conn>,
    {
        Self::builder(pool).build()
    }

    /// Begins to set up a coalescer, which borrows its connection from this pool.
    ///
    /// The connections are ordinary ones. An application without the C libraries uses
    /// `diesel_async::async_connection_wrapper::AsyncConnectionWrapper<AsyncPgConnection>`. That connection blocks its thread, so
    /// build, flush and close the coalescer inside `tokio::task::spawn_blocking`.
    pub fn builder<M>(pool: Pool<M>) -> CoalescerBuilder<Conn>
    where
        M: ManageConnection<Connection = Conn>,
    {
        CoalescerBuilder {
            borrow: Box::new(move |patience| match pool.get_timeout(patience) {
                Ok(conn) => Ok(Box::new(conn) as Borrowed<Conn>),
                Err(error) => Err(Error::DeadlinePassed {
                    waited: patience,
                    reason: error.to_string(),
                }),
            }),
            settings: Settings {
                max_delay: Duration::from_millis(100),
                max_batch: 1_000,
                max_queued: 100_000,
                deadline: Duration::from_secs(10),
                retry: RetryPolicy::default(),
                on_loss: None,
            },
        }
    }
}

shows!([Conn: LoadConnection + 'static] CoalescerBuilder<Conn>: |self| CoalescerBuilder {} finish_non_exhaustive);
