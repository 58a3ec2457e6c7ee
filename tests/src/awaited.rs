//! The library's asynchronous operations, so that the cases run on them as on the blocking ones.
//!
//! Items of [`diesel_sharded::asynchronous`] replace the blocking ones of the same name. A case ends each operation with
//! [`done`](Done::done), which waits for a future, on a connection of `diesel_async` that can also be used as a blocking one:
//! [`Awaited`].

use std::fmt::Debug;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use diesel_async::async_connection_wrapper::{AsyncConnectionWrapper, BlockOn};
use diesel_sharded::asynchronous::{BoxFuture, retry as awaited};
pub use diesel_sharded::asynchronous::{
    Counter, CounterCache, RowCounter, ShardsTable, bounded, count_many, fold, idempotency, reset,
    set_total, update, verify,
};
pub use diesel_sharded::*;
use tokio::runtime::Runtime;

/// A connection of `diesel_async`, for both kinds of operations.
pub type Awaited<C> = AsyncConnectionWrapper<C, Nested>;

/// Waits for futures on the calling thread, also nested: a case's closure is called by a future that is waited for, and waits
/// itself.
pub struct Nested;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
});

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl BlockOn for Nested {
    fn block_on<F: Future>(&self, future: F) -> F::Output {
        let _context = RUNTIME.enter();
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        loop {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(done) => return done,
                Poll::Pending => thread::park(),
            }
        }
    }

    fn get_runtime() -> Self {
        Nested
    }
}

/// Waits for a future.
pub fn wait<F: Future>(future: F) -> F::Output {
    Nested.block_on(future)
}

/// What an operation gives: its result, or a future of it.
pub trait Done<T, E>: Sized {
    /// The result.
    fn done(self) -> Result<T, E>;

    /// What it gives if it succeeds.
    #[track_caller]
    fn unwrap(self) -> T
    where
        E: Debug,
    {
        self.done().unwrap()
    }

    /// The error, if it fails.
    #[track_caller]
    fn unwrap_err(self) -> E
    where
        T: Debug,
    {
        self.done().unwrap_err()
    }
}

impl<T, E> Done<T, E> for Result<T, E> {
    fn done(self) -> Result<T, E> {
        self
    }
}

impl<T, E> Done<T, E> for BoxFuture<'_, Result<T, E>> {
    fn done(self) -> Result<T, E> {
        wait(self)
    }
}

/// Unique counts.
pub mod unique {
    pub use diesel_sharded::asynchronous::unique::*;
    pub use diesel_sharded::unique::Unique;
}

/// Numbers of shards.
pub mod shard_counts {
    pub use diesel_sharded::asynchronous::shard_counts::*;
    pub use diesel_sharded::shard_counts::{Following, follow};
}

/// Whole transactions, by closures that do not await.
pub mod retry {
    use std::error::Error as StdError;
    use std::future::ready;

    use diesel::result::Error as DieselError;
    use diesel_async::AsyncConnection;
    use diesel_sharded::backend::BackendOf;

    use super::{awaited, wait};

    pub use diesel_sharded::retry::*;

    pub fn transaction<Conn, T, E, F>(conn: &mut Conn, policy: RetryPolicy, f: F) -> Result<T, E>
    where
        Conn: AsyncConnection,
        Conn::Backend: BackendOf<Conn>,
        F: FnMut(&mut Conn) -> Result<T, E> + Send,
        T: Send,
        E: From<DieselError> + StdError + Send + 'static,
    {
        Transaction::new().retry(policy).run(conn, f)
    }

    #[derive(Debug, Clone, Default)]
    pub struct Transaction(awaited::Transaction);

    impl Transaction {
        pub fn new() -> Self {
            Self::default()
        }

        pub fn retry(self, policy: RetryPolicy) -> Self {
            Transaction(self.0.retry(policy))
        }

        pub fn isolation(self, isolation: Isolation) -> Self {
            Transaction(self.0.isolation(isolation))
        }

        pub fn deferred(self) -> Self {
            Transaction(self.0.deferred())
        }

        pub fn run<Conn, T, E, F>(self, conn: &mut Conn, mut f: F) -> Result<T, E>
        where
            Conn: AsyncConnection,
            Conn::Backend: BackendOf<Conn>,
            F: FnMut(&mut Conn) -> Result<T, E> + Send,
            T: Send,
            E: From<DieselError> + StdError + Send + 'static,
        {
            wait(self.0.run(conn, move |conn: &mut Conn| ready(f(conn))))
        }
    }
}
