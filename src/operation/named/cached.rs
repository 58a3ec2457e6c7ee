//! A named counter behind a cache.

use diesel::connection::LoadConnection;
use diesel::prelude::*;

use super::backend::CounterBackend;
use super::counter::Counter;
use crate::connection::{Blocking, Link, now};
use crate::operation::cached::{AddOnce, CachedCounter};

impl<Conn> CachedCounter<Conn> for Counter
where
    Conn: LoadConnection,
    Conn::Backend: CounterBackend<Conn>,
{
    fn cache_key(&self) -> String {
        self.cached_as()
    }

    fn read(&self, conn: &mut Conn) -> QueryResult<i64> {
        self.get(conn)
    }

    fn add(&self, n: i64, conn: &mut Conn) -> QueryResult<usize> {
        Counter::<Blocking>::add(self, n, conn).map(|()| 1)
    }
}

impl<Conn> AddOnce<Conn> for Counter
where
    Conn: LoadConnection,
    Conn::Backend: CounterBackend<Conn>,
{
    fn add_once(&self, n: i64, key: &[u8], conn: &mut Conn) -> QueryResult<(usize, bool)> {
        now(self.count_once(n, key, &mut Link::blocking(conn)))
    }
}

#[cfg(feature = "async")]
mod awaited {
    use diesel_async::AsyncConnection;

    use super::*;
    use crate::connection::{Async, BoxFuture};
    use crate::operation::cached::asynchronous::CachedCounter;

    impl<Conn> CachedCounter<Conn> for Counter<Async>
    where
        Conn: AsyncConnection,
        Conn::Backend: CounterBackend<Conn, Async>,
    {
        fn cache_key(&self) -> String {
            self.cached_as()
        }

        fn read<'c>(&'c self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<i64>> {
            self.get(conn)
        }

        fn add<'c>(&'c self, n: i64, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<usize>> {
            Box::pin(async move { Counter::<Async>::add(self, n, conn).await.map(|()| 1) })
        }
    }
}
