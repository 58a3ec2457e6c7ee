//! Retries: how many, how far apart, and of whole transactions.
//!
//! A counting update outside a transaction is retried by itself when it meets a [`Conflict`](crate::Conflict), each time on another
//! shard. Inside a transaction no statement is retried by itself: the unit is the whole transaction, which [`transaction`] retries.

use std::error::Error as StdError;
use std::marker::PhantomData;

use diesel::Connection;
use diesel::result::{Error as DieselError, QueryResult};

use crate::backend::BackendOf;
pub use crate::backend::isolation::Isolation;
use crate::connection::{Blocking, Io, Link, TransactionOptions, in_transaction, now};
use crate::engine::{AttemptError, RetryLoop, retry_loop};
#[cfg(doc)]
use crate::placement::Stripe;
pub use crate::policy::{Attempted, RetryPolicy};

/// Runs `f` in a transaction, and again from the start when it meets a conflict.
///
/// Inside `conn.transaction(..)` a counting update leaves retries to its caller: a conflict ends the whole transaction, so only
/// the whole transaction can be retried. `f` must therefore have no effects besides those on `conn`.
///
/// ```sql
/// BEGIN; …; SELECT 1; COMMIT;                                                            -- PostgreSQL
/// BEGIN; SAVEPOINT diesel_sharded; …; RELEASE SAVEPOINT diesel_sharded; COMMIT;          -- MySQL, MariaDB
/// BEGIN IMMEDIATE; …; COMMIT;                                                            -- SQLite
/// ```
///
/// The statements before `COMMIT` ask whether the transaction is still open. An error that the closure swallows may have ended it.
/// PostgreSQL would then answer `COMMIT` with a rollback and no error; MySQL would already have committed the statements after the
/// error.
///
/// In a process that has a [`Stripe`], MySQL runs the transaction without autocommit, and commits none of those statements.
///
/// Inside a transaction that is open already, `f` runs once, in a savepoint, as Diesel's own `transaction` does. For
/// an isolation level see [`Transaction`]. A level that `SET TRANSACTION ISOLATION LEVEL` has set before is kept. On MySQL the access mode
/// of a `SET TRANSACTION READ ONLY` is lost: the statement that asks whether a transaction is open sets it, since no statement asks that
/// without an effect.
///
/// # Errors
/// The errors of `f`, including a conflict after which the policy allows no further attempt. The error type is any `std::error::Error` that
/// Diesel's converts into. A conflict is found among its sources, or by the database's text where the error shows that itself, as
/// `#[error(transparent)]` does.
///
/// Its own errors are [`diesel_sharded::Error`](crate::Error)s inside Diesel's: `TransactionAborted`, and the errors of `BEGIN` or
/// `COMMIT`, as `OutcomeUnknown`, `ConnectionLost`, `NodeNotReady` or `ConflictPersisted`. The error of a statement in the closure stays as
/// the closure returns it.
///
/// ```
/// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
/// # use schema::videos::{self, dsl::{id, videos as all, views}};
/// # use diesel::prelude::*;
/// # #[derive(diesel_sharded::ShardedField)]
/// # #[diesel(table_name = videos)]
/// # struct Video { id: i64, #[sharded] views: i64 }
/// # fn main() -> QueryResult<()> {
/// # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
/// # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, views BIGINT NOT NULL)").execute(conn)?;
/// # diesel::insert_into(all).values((id.eq(7), views.eq(0))).execute(conn)?;
/// # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
/// use diesel_sharded::prelude::*;
/// use diesel_sharded::retry::{self, RetryPolicy};
/// use diesel_sharded::update;
///
/// let total = retry::transaction(conn, RetryPolicy::default(), |conn| {
///     update(all.find(7)).set(views.eq(views + 1)).execute(conn)?;
///     all.find(7).select(views.total()).first::<i64>(conn)
/// })?;
/// assert_eq!(total, 1);
/// # Ok(())
/// # }
/// ```
pub fn transaction<Conn, T, E, F>(conn: &mut Conn, policy: RetryPolicy, f: F) -> Result<T, E>
where
    Conn: Connection,
    Conn::Backend: BackendOf<Conn>,
    F: FnMut(&mut Conn) -> Result<T, E>,
    E: From<DieselError> + StdError + 'static,
{
    Transaction::new().retry(policy).run(conn, f)
}

/// [`transaction`] with an isolation level.
///
/// ```
/// # use diesel::prelude::*;
/// # fn main() -> QueryResult<()> {
/// # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
/// use diesel_sharded::retry::{Isolation, Transaction};
///
/// let answer = Transaction::new()
///     .isolation(Isolation::Serializable)
///     .run(conn, |conn| {
///         diesel::select(42.into_sql::<diesel::sql_types::Integer>()).get_result::<i32>(conn)
///     })?;
/// # assert_eq!(answer, 42);
/// # Ok(())
/// # }
/// ```
pub type Transaction = Retried<Blocking>;

/// A transaction that is retried; see [`Transaction`].
#[derive(Debug, Clone)]
#[must_use = "a transaction does nothing until it is `run`"]
pub struct Retried<Run> {
    retry: RetryPolicy,
    options: TransactionOptions,
    run: PhantomData<fn() -> Run>,
}

impl<Run> Default for Retried<Run> {
    fn default() -> Self {
        Self::new()
    }
}

impl<Run> Retried<Run> {
    /// The database's own isolation level, the process-wide policy, and `BEGIN IMMEDIATE` on SQLite.
    pub fn new() -> Self {
        Retried {
            retry: RetryPolicy::default(),
            options: TransactionOptions::default(),
            run: PhantomData,
        }
    }

    /// Sets the policy by which the transaction is retried.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// Sets the isolation level, instead of one that `SET TRANSACTION` has set. SQLite's transactions are serializable at any setting.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.options.isolation = Some(isolation);
        self.options.outermost = true;
        self
    }

    /// Refuses to run inside a transaction that is open already.
    #[cfg(feature = "r2d2")]
    pub(crate) fn outermost(mut self) -> Self {
        self.options.outermost = true;
        self
    }

    /// On SQLite, begins without the write lock. A transaction that reads first and then writes may then end in
    /// BUSY_SNAPSHOT, which no `busy_timeout` waits for; it is retried. No effect elsewhere.
    pub fn deferred(mut self) -> Self {
        self.options.deferred = true;
        self
    }

    /// The attempts at the transaction.
    pub(crate) fn retry_loop<M: Io>(self, link: &mut Link<'_, M>) -> QueryResult<RetryLoop> {
        if self.options.outermost && in_transaction(link)? {
            return Err(DieselError::AlreadyInTransaction);
        }
        RetryLoop::closure(link, self.retry, self.options)
    }
}

impl Retried<Blocking> {
    /// Runs `f`; see [`transaction`].
    ///
    /// # Errors
    /// As [`transaction`]; also [`AlreadyInTransaction`](DieselError::AlreadyInTransaction) when an isolation level is
    /// asked for inside a transaction that is open already.
    pub fn run<Conn, T, E, F>(self, conn: &mut Conn, mut f: F) -> Result<T, E>
    where
        Conn: Connection,
        Conn::Backend: BackendOf<Conn>,
        F: FnMut(&mut Conn) -> Result<T, E>,
        E: From<DieselError> + StdError + 'static,
    {
        now(async {
            let link = &mut Link::blocking(conn);
            let mut retry = self.retry_loop(link)?;
            link.enter(); // a panic of `f` leaves the transaction open
            let done = retry_loop!(link, retry => {
                let outcome = retry.scope().block(|| f(link.conn));
                outcome.map_err(AttemptError::Application)
            });
            link.leave();
            done
        })
    }
}

/// Retries of whole transactions, awaited; see [`retry`](crate::retry).
#[cfg(feature = "async")]
#[doc(hidden)]
pub mod asynchronous {
    use std::future::Future;

    use diesel_async::AsyncConnection;

    use super::*;
    use crate::connection::{Async, BoxFuture};

    /// Runs `f` in a transaction, and again from the start when it meets a conflict; see
    /// [`retry::transaction`](crate::retry::transaction()), which sends the same SQL.
    ///
    /// `f` is an async closure that may be called again: it borrows what it reads, and changes nothing that it has borrowed. (To
    /// count its calls, use a `Cell` or an atomic; compilers cannot yet see that the future of any other closure is `Send`.)
    ///
    /// # Errors
    /// As [`retry::transaction`](crate::retry::transaction())'s.
    pub async fn transaction<Conn, T, E, F>(
        conn: &mut Conn,
        policy: RetryPolicy,
        f: F,
    ) -> Result<T, E>
    where
        Conn: AsyncConnection,
        Conn::Backend: BackendOf<Conn>,
        for<'r> F: AsyncAttempt<&'r mut Conn, Result<T, E>> + Send,
        T: Send,
        E: From<DieselError> + StdError + Send + 'static,
    {
        Transaction::new().retry(policy).run(conn, f).await
    }

    /// [`transaction`] with an isolation level; see [`retry::Transaction`](crate::retry::Transaction).
    pub type Transaction = Retried<Async>;

    impl Retried<Async> {
        /// Runs the async closure `f`; see [`transaction`].
        ///
        /// # Errors
        /// As [`retry::Transaction::run`](crate::retry::Transaction::run)'s.
        pub fn run<'c, Conn, T, E, F>(
            self,
            conn: &'c mut Conn,
            mut f: F,
        ) -> BoxFuture<'c, Result<T, E>>
        where
            Conn: AsyncConnection,
            Conn::Backend: BackendOf<Conn>,
            for<'r> F: AsyncAttempt<&'r mut Conn, Result<T, E>> + Send + 'c,
            T: Send + 'c,
            E: From<DieselError> + StdError + Send + 'static,
        {
            Box::pin(async move {
                let link = &mut Link::awaited(conn);
                let mut retry = self.retry_loop(link)?;
                link.enter();
                let done = retry_loop!(link, retry => {
                    let attempted = retry.scope().within(f.attempt(link.conn));
                    attempted.await.map_err(AttemptError::Application)
                });
                link.leave();
                done
            })
        }
    }

    /// An async closure that can be called more than once, and whose future is `Send`.
    pub trait AsyncAttempt<T, R>: AsyncFnMut(T) -> R {
        /// Calls the closure.
        fn attempt(&mut self, argument: T) -> impl Future<Output = R> + Send;
    }

    impl<F, T, Fut, R> AsyncAttempt<T, R> for F
    where
        F: AsyncFnMut(T) -> R + FnMut(T) -> Fut,
        Fut: Future<Output = R> + Send,
    {
        fn attempt(&mut self, argument: T) -> impl Future<Output = R> + Send {
            self(argument)
        }
    }
}
