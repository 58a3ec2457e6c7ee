//! Totals from a cache, on connections of `diesel_async`.

use std::future::poll_fn;

use diesel::result::QueryResult;
use diesel_async::AsyncConnection;
use tokio::task::spawn_blocking;

use super::flights::{Boarded, Role};
use super::front::{Cached, Question};
use super::steps::Steps;
use super::total_cache::TotalCache;
use crate::backend::BackendOf;
use crate::connection::pause::within;
use crate::connection::{Async, BoxFuture, Io, depth_of};

/// A counter that [`Cached`] can keep the total of; see [`CachedCounter`](crate::cached::CachedCounter).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a counter that can be cached on a `{Conn}` of `diesel_async`",
    note = "`asynchronous::Counter` and `asynchronous::RowCounter` are; implement `asynchronous::cached::CachedCounter<{Conn}>` for others"
)]
pub trait CachedCounter<Conn> {
    /// The name of this counter in the cache.
    fn cache_key(&self) -> String;

    /// Reads the exact total from the database.
    ///
    /// # Errors
    /// The database's, and those of reading.
    fn read<'c>(&'c self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<i64>>;

    /// Counts, and returns the number of rows counted.
    ///
    /// # Errors
    /// The database's, and those of counting.
    fn add<'c>(&'c self, n: i64, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<usize>>;
}

impl<C: TotalCache + 'static> Cached<C> {
    /// [`get`](Self::get) on a connection of `diesel_async`. A cache that [waits](TotalCache::waits) is asked on a thread of the
    /// runtime that may block.
    ///
    /// # Errors
    /// Those of [`CachedCounter::read`].
    pub fn get_async<'c, Conn, K>(
        &'c self,
        counter: &'c K,
        conn: &'c mut Conn,
    ) -> BoxFuture<'c, QueryResult<i64>>
    where
        Conn: AsyncConnection,
        Conn::Backend: BackendOf<Conn>,
        K: CachedCounter<Conn> + Sync + ?Sized,
    {
        Box::pin(self.total::<Async, _, _>(counter, conn))
    }

    /// [`add`](Self::add) on a connection of `diesel_async`. A future that is dropped after the count may leave the cached total
    /// behind until it expires.
    ///
    /// # Errors
    /// Those of [`CachedCounter::add`].
    pub fn add_async<'c, Conn, K>(
        &'c self,
        counter: &'c K,
        n: i64,
        conn: &'c mut Conn,
    ) -> BoxFuture<'c, QueryResult<usize>>
    where
        Conn: AsyncConnection,
        Conn::Backend: BackendOf<Conn>,
        K: CachedCounter<Conn> + Sync + ?Sized,
    {
        Box::pin(self.count::<Async, _, _>(counter, n, conn))
    }

    /// [`forget`](Self::forget) for a counter on connections of `diesel_async`: after a transaction that counted on it, or a
    /// change that bypassed the cache.
    pub fn forget_async<'c, Conn, K>(&'c self, counter: &K, _conn: &Conn) -> BoxFuture<'c, ()>
    where
        Conn: AsyncConnection,
        Conn::Backend: BackendOf<Conn>,
        K: CachedCounter<Conn> + Sync + ?Sized,
    {
        let key = self.key(&counter.cache_key());
        Box::pin(async move {
            ask(self, &key, Question::Remove).await;
        })
    }
}

async fn ask<C: TotalCache + 'static>(
    cached: &Cached<C>,
    key: &str,
    question: Question,
) -> Option<Option<i64>> {
    if !cached.cache().waits() {
        return cached.ask(key, question);
    }
    let (cached, key) = (cached.clone(), key.to_owned());
    match spawn_blocking(move || cached.ask(&key, question)).await {
        Ok(answer) => answer,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => None, // the runtime is shutting down
        },
    }
}

impl<C, Conn, K> Steps<C, Conn, K> for Async
where
    C: TotalCache + 'static,
    Conn: AsyncConnection,
    Conn::Backend: BackendOf<Conn>,
    K: CachedCounter<Conn> + ?Sized,
{
    type Future<'c, T: 'c> = BoxFuture<'c, T>;

    fn cache_key(counter: &K) -> String {
        counter.cache_key()
    }

    fn depth(conn: &mut Conn) -> QueryResult<u32> {
        depth_of(<Async as Io<Conn>>::transaction_status(conn))
    }

    fn ask<'c>(
        cached: &'c Cached<C>,
        key: &'c str,
        question: Question,
    ) -> BoxFuture<'c, Option<Option<i64>>> {
        Box::pin(ask(cached, key, question))
    }

    fn join<'c>(cached: &'c Cached<C>, key: &'c str) -> BoxFuture<'c, Role> {
        Box::pin(async move {
            let (flights, patience) = cached.flights();
            match flights.board(key) {
                Boarded::Lead(lead) => Role::Lead(lead),
                Boarded::Waiting(waiting) => {
                    let landed = poll_fn(|context| waiting.poll(context.waker()));
                    let _ = within(patience, landed).await; // the role tells whether it was in vain
                    waiting.role()
                }
            }
        })
    }

    fn read<'c>(counter: &'c K, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<i64>> {
        counter.read(conn)
    }

    fn add<'c>(counter: &'c K, n: i64, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<usize>> {
        counter.add(n, conn)
    }
}
