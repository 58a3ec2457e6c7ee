//! The steps of reading and counting through a cache, and how a blocking caller performs them.

use std::future::{Future, Ready, ready};

use diesel::Connection;
use diesel::connection::TransactionManager;
use diesel::result::QueryResult;

use super::counter::CachedCounter;
use super::flights::Role;
use super::front::{Cached, Question};
use super::total_cache::TotalCache;
use crate::connection::{Blocking, depth_of};

/// How the steps of reading and counting through a cache are carried out.
pub trait Steps<C, Conn, K: ?Sized> {
    /// A step that is under way.
    type Future<'c, T: 'c>: Future<Output = T>;

    /// The name of a counter in a cache.
    fn cache_key(counter: &K) -> String;

    /// How deep the transactions on the connection are nested.
    fn depth(conn: &mut Conn) -> QueryResult<u32>;

    /// Asks the cache something, unless it is left out; `None` if it failed.
    fn ask<'c>(
        cached: &'c Cached<C>,
        key: &'c str,
        question: Question,
    ) -> Self::Future<'c, Option<Option<i64>>>;

    /// Joins the read of a key that is under way, or begins one.
    fn join<'c>(cached: &'c Cached<C>, key: &'c str) -> Self::Future<'c, Role>;

    /// Reads the total from the database.
    fn read<'c>(counter: &'c K, conn: &'c mut Conn) -> Self::Future<'c, QueryResult<i64>>;

    /// Counts.
    fn add<'c>(counter: &'c K, n: i64, conn: &'c mut Conn) -> Self::Future<'c, QueryResult<usize>>;
}

impl<C, Conn, K> Steps<C, Conn, K> for Blocking
where
    C: TotalCache,
    Conn: Connection,
    K: CachedCounter<Conn> + ?Sized,
{
    type Future<'c, T: 'c> = Ready<T>;

    fn cache_key(counter: &K) -> String {
        counter.cache_key()
    }

    fn depth(conn: &mut Conn) -> QueryResult<u32> {
        depth(conn)
    }

    fn ask<'c>(
        cached: &'c Cached<C>,
        key: &'c str,
        question: Question,
    ) -> Ready<Option<Option<i64>>> {
        ready(cached.ask(key, question))
    }

    fn join<'c>(cached: &'c Cached<C>, key: &'c str) -> Ready<Role> {
        let (flights, patience) = cached.flights();
        ready(flights.join(key, patience))
    }

    fn read<'c>(counter: &'c K, conn: &'c mut Conn) -> Ready<QueryResult<i64>> {
        ready(counter.read(conn))
    }

    fn add<'c>(counter: &'c K, n: i64, conn: &'c mut Conn) -> Ready<QueryResult<usize>> {
        ready(counter.add(n, conn))
    }
}

/// How deep the transactions on `conn` are nested, as far as Diesel knows.
pub(super) fn depth<Conn: Connection>(conn: &mut Conn) -> QueryResult<u32> {
    depth_of(Conn::TransactionManager::transaction_manager_status_mut(
        conn,
    ))
}
