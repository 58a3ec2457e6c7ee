//! The library's asynchronous operations under the names and signatures of its blocking ones, so that the same cases run on both.
//!
//! Items of [`diesel_sharded::asynchronous`] replace the blocking ones of the same kind. Each call waits for its future, on a
//! connection of `diesel_async` that can also be used as a blocking one: [`Awaited`].

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use diesel_async::async_connection_wrapper::{AsyncConnectionWrapper, BlockOn};
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

/// The asynchronous methods of these names, waited for, with these bounds on the connection `Conn` and its backend `DB`. A method's `self`
/// says whether it takes the value.
macro_rules! waits {
    (
        @method {$($bounds:tt)*}
        $name:ident$(<$of:ident>)?($this:ident: $taken:ty $(, $argument:ident: $type:ty)*) -> $result:ty
    ) => {
        pub fn $name<Conn, DB $(, $of)?>($this: $taken, $($argument: $type,)* conn: &mut Conn) -> QueryResult<$result>
        where
            Conn: AsyncConnection<Backend = DB>,
            DB: BackendOf<Conn>,
            $($bounds)*
        {
            wait($this.0.$name($($argument,)* conn))
        }
    };
    ($bounds:tt $($name:ident$(<$of:ident>)?($this:ident: $taken:ty $(, $argument:ident: $type:ty)*) -> $result:ty;)+) => {$(
        waits! {
            @method $bounds $name$(<$of>)?($this: $taken $(, $argument: $type)*) -> $result
        }
    )+};
}

/// The builder's methods of these names.
macro_rules! builds {
    ($wrapper:ident: $($name:ident($argument:ident: $type:ty);)+) => {$(
        pub fn $name(self, $argument: $type) -> Self {
            $wrapper(self.0.$name($argument))
        }
    )+};
}

mod operations;
mod tables;
mod updates;
mod values;

pub use self::operations::{count_many, fold, reset, set_total, verify};
pub use self::tables::{CounterCache, ShardsTable};
pub use self::updates::update;
pub use self::values::{Bounded, Counter, CounterList, RowCounter};

/// Counters with bounds.
pub mod bounded {
    pub use super::Bounded;
}

/// Keys that count once.
pub mod idempotency {
    use std::time::Duration;

    use diesel::QueryResult;
    use diesel_async::AsyncConnection;
    use diesel_sharded::backend::BackendOf;

    use super::{asynchronous, wait};

    pub fn remove_older_than<Conn>(age: Duration, conn: &mut Conn) -> QueryResult<usize>
    where
        Conn: AsyncConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        wait(asynchronous::idempotency::remove_older_than(age, conn))
    }
}

/// Numbers of shards.
pub mod shard_counts {
    use diesel::QueryResult;
    use diesel_async::AsyncConnection;
    use diesel_sharded::backend::BackendOf;
    use diesel_sharded::model::ShardedColumn;

    use super::{asynchronous, wait};

    pub use diesel_sharded::shard_counts::{Following, follow};

    pub struct ShardCount(asynchronous::shard_counts::ShardCount);

    impl ShardCount {
        pub const MAX: u16 = diesel_sharded::shard_counts::ShardCount::MAX;

        pub fn of<C: ShardedColumn>(column: C) -> Self {
            ShardCount(asynchronous::shard_counts::ShardCount::of(column))
        }

        waits! {{}
            get(self: &Self) -> u16;
            increase(self: &Self, n: u16) -> u16;
            resize(self: &Self, n: u16) -> ();
        }
    }

    pub fn refresh<Conn>(conn: &mut Conn) -> QueryResult<()>
    where
        Conn: AsyncConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        wait(asynchronous::shard_counts::refresh(conn))
    }
}

/// Whole transactions.
pub mod retry {
    use std::error::Error as StdError;
    use std::future::ready;

    use diesel::result::Error as DieselError;
    use diesel_async::AsyncConnection;
    use diesel_sharded::backend::BackendOf;

    use super::wait;

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

    #[derive(Default)]
    pub struct Transaction(diesel_sharded::asynchronous::retry::Transaction);

    impl Transaction {
        pub fn new() -> Self {
            Self::default()
        }

        builds! { Transaction:
            retry(policy: RetryPolicy);
            isolation(isolation: Isolation);
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
