//! Named counters by the beginnings of their names.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::result::Error as DieselError;

use super::CounterBackend;
use super::sql::{Prefixed, SelectedRows, select};
use crate::connection::{Blocking, paired};

/// A page of counters; made by [`Counter::list`](crate::Counter::list).
///
/// A page begins after the last name of the page before. So all pages cost the same, and counters that are created or deleted meanwhile
/// neither shift nor repeat others.
///
/// ```sql
/// SELECT "diesel_sharded_counters"."name", total FROM "diesel_sharded_counters"
/// WHERE "diesel_sharded_counters"."name" >= $1 AND "diesel_sharded_counters"."name" < $2
///   AND "diesel_sharded_counters"."name" > $3
/// ORDER BY "diesel_sharded_counters"."name" LIMIT $4
/// ```
///
/// ```
/// # use diesel::prelude::*;
/// # use diesel_migrations::MigrationHarness;
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// # let conn = &mut SqliteConnection::establish(":memory:")?;
/// # conn.run_pending_migrations(diesel_sharded::MIGRATIONS)?;
/// # for name in ["page:/", "page:/about", "signups"] { diesel_sharded::Counter::named(name).increment(conn)?; }
/// use diesel_sharded::Counter;
///
/// let mut list = Counter::list("page:").limit(1);
/// loop {
///     let page = list.load(conn)?;
///     let Some((last, _)) = page.last() else { break };
///     list = list.after(last);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "nothing is read until it is `.load(conn)`-ed"]
pub struct CounterList<Run = Blocking> {
    prefix: String,
    after: Option<String>,
    limit: u32,
    run: PhantomData<fn() -> Run>,
}

impl<Run> CounterList<Run> {
    pub(super) fn new(prefix: String) -> Self {
        CounterList {
            prefix,
            after: None,
            limit: 100,
            run: PhantomData,
        }
    }

    /// Reads only names that come after this one.
    pub fn after(mut self, name: impl Into<String>) -> Self {
        self.after = Some(name.into());
        self
    }

    /// Reads at most this number of counters, 100 by default.
    pub fn limit(mut self, counters: u32) -> Self {
        self.limit = counters;
        self
    }
}

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
/// total, the one with the greater name comes first. It reads all counters whose names begin with the prefix.
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
}

paired! {
    impl<> CounterList<Run>
    where
        DB: CounterBackend<Conn>,
    {
        /// The names and exact totals of this page, at one instant.
        ///
        /// # Errors
        /// The database's, and as [`Counter`](crate::Counter)'s.
        pub fn load(&self, link: Link) -> QueryResult<Vec<(String, i64)>> {
            let rows = SelectedRows::Page {
                names: Prefixed::by(&self.prefix),
                after: self.after.as_ref().map(|name| name.as_bytes().to_vec()),
                limit: self.limit.into(),
            };
            named(select(rows, true, link).await?)
        }
    }

    impl<> TopCounters<Run>
    where
        DB: CounterBackend<Conn>,
    {
        /// The names and exact totals, the greatest first, at one instant.
        ///
        /// # Errors
        /// The database's, and as [`Counter`](crate::Counter)'s.
        pub fn load(&self, link: Link) -> QueryResult<Vec<(String, i64)>> {
            let rows = SelectedRows::top(&self.prefix, self.limit, self.offset);
            named(select(rows, true, link).await?)
        }
    }
}

/// The rows with their names as texts.
fn named(rows: Vec<(Vec<u8>, i64)>) -> QueryResult<Vec<(String, i64)>> {
    rows.into_iter()
        .map(|(name, total)| match String::from_utf8(name) {
            Ok(name) => Ok((name, total)),
            Err(error) => Err(DieselError::DeserializationError(error.into())),
        })
        .collect()
}
