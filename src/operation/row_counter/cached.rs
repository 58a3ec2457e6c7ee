//! A row's counter behind a cache.

use std::fmt;

use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel::result::Error as DieselError;

use super::counter::RowCounter;
use super::field::{IntegerField, Key};
use crate::backend::BackendOf;
use crate::connection::{Blocking, Link, now};
use crate::operation::cached::{AddOnce, CachedCounter};

/// As [`RowCounter`]'s own methods. The keys in the cache are the shards table's name, the field's and the row's.
impl<C, Conn, DB> CachedCounter<Conn> for RowCounter<C>
where
    C: IntegerField<DB>,
    Key<C>: fmt::Debug,
    Conn: LoadConnection<Backend = DB>,
    DB: BackendOf<Conn>,
{
    fn cache_key(&self) -> String {
        self.cached_as()
    }

    /// # Errors
    /// [`NotFound`](DieselError::NotFound) if there is no such row.
    fn read(&self, conn: &mut Conn) -> QueryResult<i64> {
        self.get(conn)?.ok_or(DieselError::NotFound)
    }

    fn add(&self, n: i64, conn: &mut Conn) -> QueryResult<usize> {
        RowCounter::<C, Blocking>::add(self, n, conn)
    }
}

impl<C, Conn, DB> AddOnce<Conn> for RowCounter<C>
where
    C: IntegerField<DB>,
    Key<C>: fmt::Debug,
    Conn: LoadConnection<Backend = DB>,
    DB: BackendOf<Conn>,
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

    impl<C, Conn, DB> CachedCounter<Conn> for RowCounter<C, Async>
    where
        C: IntegerField<DB>,
        Key<C>: fmt::Debug,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        fn cache_key(&self) -> String {
            self.cached_as()
        }

        fn read<'c>(&'c self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<i64>> {
            Box::pin(async move { self.get(conn).await?.ok_or(DieselError::NotFound) })
        }

        fn add<'c>(&'c self, n: i64, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<usize>> {
            RowCounter::<C, Async>::add(self, n, conn)
        }
    }
}
