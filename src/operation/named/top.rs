//! The named counters with the greatest totals.

use std::marker::PhantomData;

use diesel::prelude::*;

use super::backend::CounterBackend;
use super::list::named;
use super::sql::{SelectCounters, SelectedRows};
use crate::connection::{Blocking, Io, Link, paired};

/// The named counters with the greatest totals; made by [`Counter::top`](crate::Counter::top).
///
/// ```
/// # use diesel::prelude::*;
/// # use diesel_migrations::MigrationHarness;
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// # let conn = &mut SqliteConnection::establish(":memory:")?;
/// # conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?;
/// # for (name, n) in [("page:/", 9), ("page:/about", 3), ("page:/blog", 5), ("signups", 70)] {
/// #     diesel_sharded::Counter::named(name).add(n, conn)?;
/// # }
/// use diesel_sharded::Counter;
///
/// let pages = Counter::top("page:", 2).load(conn)?;
/// assert_eq!(pages, [("page:/".to_owned(), 9), ("page:/blog".to_owned(), 5)]);
/// let next = Counter::top("page:", 2).offset(2).load(conn)?;
/// assert_eq!(next, [("page:/about".to_owned(), 3)]);
/// # Ok(())
/// # }
/// ```
///
/// It is [`top`](crate::top()) on the library's own tables, filtered by the names, so the result is exact. Of counters with the same
/// total, the one with the greater name comes first. All counters whose names begin with the prefix are read.
#[derive(Debug, Clone)]
#[must_use = "nothing is read until it is `.load(conn)`-ed"]
pub struct TopCounters<Run = Blocking> {
    prefix: String,
    limit: u32,
    offset: u32,
    run: PhantomData<fn() -> Run>,
}

impl<Run> TopCounters<Run> {
    pub(super) fn new(prefix: String, limit: u32) -> Self {
        TopCounters {
            prefix,
            limit,
            offset: 0,
            run: PhantomData,
        }
    }

    /// Leaves out the first `counters`, as for a further page.
    pub fn offset(mut self, counters: u32) -> Self {
        self.offset = counters;
        self
    }

    pub(super) async fn rows<DB, M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<Vec<(String, i64)>>
    where
        M: Io<Conn, Backend = DB>,
        DB: CounterBackend<Conn, M>,
    {
        let rows = SelectedRows::top(&self.prefix, self.limit, self.offset);
        named(DB::select(link.conn, SelectCounters { rows, exact: true }).await?)
    }
}

paired! {
    impl<> TopCounters<Run>
    where
        DB: CounterBackend<Conn, Run>,
    {
        /// The names and exact totals, the greatest first, at one instant.
        ///
        /// # Errors
        /// The database's, and as [`Counter`](crate::Counter)'s.
        pub fn load(&self, link: Link) -> QueryResult<Vec<(String, i64)>> {
            self.rows(link).await
        }
    }
}
