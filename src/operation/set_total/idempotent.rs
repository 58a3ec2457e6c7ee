//! Totals that are set under an idempotency key.

use std::fmt::Write;
use std::marker::PhantomData;

use diesel::connection::LoadConnection;
use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};

use super::assignment::Assignment;
use super::builder::SetTotal;
use super::set::ReadyToSet;
use crate::backend::{BackendOf, Dialect, ShardedBackend};
use crate::connection::{Link, LoadIo, TransactionOptions, now};
use crate::engine::{KeyedTable, locking_options};
#[cfg(doc)]
use crate::error::Error;
use crate::model::ShardedTable;
use crate::operation::idempotency::{Idempotent, Request, Requested, once};

impl<Q, A> Idempotent<SetTotal<Q, A>> {
    /// Sets the totals, unless that was done with this key before, and returns the number of rows set, now or then. If no row
    /// matched, nothing was done, and the key is free.
    ///
    /// # Errors
    /// As [`SetTotal::execute`](crate::operation::SetTotal::execute)'s;
    /// [`InvalidIdempotencyKey`](Error::InvalidIdempotencyKey) for a key that is empty or too long,
    /// [`IdempotencyKeyReused`](Error::IdempotencyKeyReused) for a key that came with another request before.
    pub fn execute<Conn, DB, T, W>(self, conn: &mut Conn) -> QueryResult<usize>
    where
        Q: IntoUpdateTarget<Table = T, WhereClause = W>,
        A: Assignment + QueryFragment<DB>,
        T: KeyedTable<DB>,
        T::PrimaryKey: Expression + QueryId,
        W: QueryFragment<DB> + QueryId,
        Conn: LoadConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        let ready = self.of.ready();
        now(set_once::<T, _, _, _, _, _>(
            &ready,
            &self.key,
            &mut Link::blocking(conn),
        ))
    }
}

#[cfg(feature = "async")]
impl<Q, A, T, W> Idempotent<SetTotal<Q, A, crate::connection::Async>>
where
    Q: IntoUpdateTarget<Table = T, WhereClause = W>,
{
    /// Sets the totals, unless this was done before, and returns the number of rows.
    ///
    /// # Errors
    /// As [`SetTotal::execute`](crate::operation::SetTotal::execute)'s, and those of [`idempotency`](crate::idempotency).
    pub fn execute<'c, Conn, DB>(
        self,
        conn: &'c mut Conn,
    ) -> crate::connection::BoxFuture<'c, QueryResult<usize>>
    where
        A: Assignment + QueryFragment<DB> + Send + Sync + 'c,
        T: KeyedTable<DB>,
        T::PrimaryKey: Expression + QueryId,
        W: QueryFragment<DB> + QueryId + Send + Sync + 'c,
        Conn: diesel_async::AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        let (ready, key) = (self.of.ready(), self.key);
        Box::pin(async move {
            set_once::<T, _, _, _, _, _>(&ready, &key, &mut Link::awaited(conn)).await
        })
    }
}

/// Sets the totals, unless that was done with this key before. The number of parents, now or then.
async fn set_once<T, A, W, DB, M, Conn>(
    ready: &ReadyToSet<A, W>,
    key: &[u8],
    link: &mut Link<'_, M, Conn>,
) -> QueryResult<usize>
where
    A: Assignment + QueryFragment<DB>,
    T: KeyedTable<DB>,
    T::PrimaryKey: Expression + QueryId,
    W: QueryFragment<DB> + QueryId,
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    let request = request::<T, _, _, DB>(ready, key)?;
    let mut set = SetOnce::<T, _, _> {
        ready,
        table: PhantomData,
    };
    once(link, &request, ready.retry(), &mut set).await
}

/// The request that the key stands for.
fn request<T, A, W, DB>(ready: &ReadyToSet<A, W>, key: &[u8]) -> QueryResult<Request>
where
    T: ShardedTable,
    A: QueryFragment<DB>,
    W: QueryFragment<DB>,
    DB: ShardedBackend,
{
    Ok(Request::new(key, |text| {
        write!(text, "set {} ", T::SHARDS_TABLE)?;
        text.write_fragment::<DB>(&ready.assignment)?;
        text.write_fragment::<DB>(&ready.filter)
    })?)
}

struct SetOnce<'a, T, A, W> {
    ready: &'a ReadyToSet<A, W>,
    table: PhantomData<fn() -> T>,
}

impl<M, Conn, DB, T, A, W> Requested<M, Conn> for SetOnce<'_, T, A, W>
where
    A: Assignment + QueryFragment<DB>,
    T: KeyedTable<DB>,
    T::PrimaryKey: Expression + QueryId,
    W: QueryFragment<DB> + QueryId,
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    type Outcome = usize;

    fn transaction(&self, dialect: Dialect) -> TransactionOptions {
        locking_options(dialect)
    }

    async fn carry_out(
        &mut self,
        link: &mut Link<'_, M, Conn>,
        counted: Option<usize>,
    ) -> QueryResult<(usize, usize)> {
        let set = match counted {
            Some(set) => set,
            None => self.ready.set::<T, DB, _, _>(link).await?,
        };
        Ok((set, set))
    }
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::videos as table;
    use crate::test_schema::videos::dsl::*;
    use crate::{reset, set_total};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::sqlite::Sqlite;

    /// Another release must recognize the requests that this one has carried out.
    #[test]
    fn fingerprints_stay_what_they_are() {
        macro_rules! fingerprint {
            ($backend:ty, $set:expr) => {{
                let ready = $set.ready();
                request::<table::table, _, _, $backend>(&ready, b"key")
                    .unwrap()
                    .fingerprint
            }};
        }
        let set = || set_total(videos.find(7), views, 1);
        let fingerprints = [
            fingerprint!(Pg, set()),
            fingerprint!(Mysql, set()),
            fingerprint!(Sqlite, set()),
            fingerprint!(Pg, set_total(videos.find(7), views, 2)),
            fingerprint!(Pg, set_total(videos.find(7), likes, 1)),
            fingerprint!(Pg, set_total(videos.find(8), views, 1)),
            fingerprint!(Pg, reset(videos.find(7))),
        ];
        assert_eq!(
            fingerprints,
            [
                -7595149391897824734,
                // MySQL and SQLite quote alike.
                -851179412046811844,
                -851179412046811844,
                -8523780140646867261,
                -8397146682083393204,
                -7598175247898093731,
                2505673052544258881
            ]
        );
    }
}
