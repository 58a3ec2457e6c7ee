//! Totals that are set, awaited.

use diesel::expression::Expression;
use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};
use diesel::result::QueryResult;
use diesel_async::AsyncConnection;

use super::{Async, BoxFuture};
use crate::dialect::BackendOf;
use crate::dsl::Value;
use crate::field::{ShardedColumn, ShardedTable};
use crate::keyed::KeyedTable;
use crate::set_total::{Assignment, SetTotal, ToValue, ToZero};
use crate::update::UpdateSource;

/// Sets the total of a field on a connection of `diesel_async`; see [`set_total`](crate::set_total()).
pub fn set_total<Source, Kind, C>(
    source: Source,
    _column: C,
    total: Value<C>,
) -> SetTotal<Source::Query, ToValue<C>, Async>
where
    Source: UpdateSource<Kind>,
    Source::Query: IntoUpdateTarget<Table = C::Table>,
    C: ShardedColumn,
{
    SetTotal::of(source, ToValue(total))
}

/// Sets the totals of all sharded fields to zero on a connection of `diesel_async`; see [`reset`](crate::reset).
pub fn reset<Source, Kind, T>(source: Source) -> SetTotal<Source::Query, ToZero<T>, Async>
where
    Source: UpdateSource<Kind>,
    Source::Query: IntoUpdateTarget<Table = T>,
    T: ShardedTable,
{
    SetTotal::of(source, ToZero::new())
}

impl<Q, A, T, W> SetTotal<Q, A, Async>
where
    Q: IntoUpdateTarget<Table = T, WhereClause = W>,
{
    /// Sets the totals; gives the number of rows.
    ///
    /// # Errors
    /// As [`SetTotal::execute`](crate::SetTotal::execute)'s.
    pub fn execute<'c, Conn, DB>(self, conn: &'c mut Conn) -> BoxFuture<'c, QueryResult<usize>>
    where
        Q: Send + 'c,
        A: Assignment + QueryFragment<DB> + Send + Sync + 'c,
        T: KeyedTable<DB>,
        T::PrimaryKey: Expression + QueryId,
        W: QueryFragment<DB> + QueryId + Send + Sync + 'c,
        Conn: AsyncConnection<Backend = DB>,
        DB: BackendOf<Conn>,
    {
        Box::pin(self.set::<Async, _, _, _, _>(conn))
    }
}
