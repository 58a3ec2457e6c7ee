//! Counts that return the new total.

use diesel::prelude::*;
use diesel::query_builder::{QueryFragment, QueryId};

use crate::backend::ShardedBackend;
use crate::connection::{Link, LoadIo};
use crate::engine;
use crate::engine::{Plan, SendStep, Sender, Statement, explain};
use crate::model::ShardedColumn;
use crate::operation::update::Ready;

use super::add::AddTo;
use super::field::IntegerField;

/// Counts on one row, and returns the new total; `None` if there is no such row.
pub(crate) async fn add_and_get<C, W, I, DB, M, Conn>(
    column: C,
    count: &mut Ready<C::Table, AddTo<C>, W, I>,
    link: &mut Link<'_, M, Conn>,
) -> QueryResult<Option<i64>>
where
    C: IntegerField<DB>,
    W: QueryFragment<DB> + QueryId,
    I: QueryFragment<DB> + QueryId,
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    let plan = Plan {
        returning: true,
        ..count.plan(link)?
    };
    let retry = count.retry();
    let mut sender = CountAndRead {
        column,
        count,
        total: None,
    };
    let counted = engine::count(link, plan, retry, &mut sender).await;
    let total = sender.total;
    counted.map_err(|error| explain::<C::Table, DB>(&link.backend(), error))?;
    Ok(total)
}

/// Sends a count's statements, and keeps the total that one of them reads.
struct CountAndRead<'a, C: ShardedColumn, W, I> {
    column: C,
    count: &'a mut Ready<C::Table, AddTo<C>, W, I>,
    total: Option<i64>,
}

impl<M, Conn, DB, C, W, I> Sender<M, Conn> for CountAndRead<'_, C, W, I>
where
    C: IntegerField<DB>,
    W: QueryFragment<DB> + QueryId,
    I: QueryFragment<DB> + QueryId,
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    async fn send(
        &mut self,
        link: &mut Link<'_, M, Conn>,
        statement: Statement,
        shard: i32,
    ) -> QueryResult<usize> {
        self.total = None; // what an earlier attempt read was taken back with it
        let (column, filter) = (self.column, &self.count.filter);
        let totals = match statement {
            Statement::CountAndLoad => {
                let add = &self.count.changes;
                column.count_and_load_totals(link, add, filter, shard).await
            }
            Statement::Load => column.load_totals(link, filter).await,
            Statement::CountByKey => {
                return self.count.count_before_load(link, shard).await;
            }
            statement => return self.count.send_step(link, statement, shard).await,
        }?;
        let met = totals.len();
        self.total = totals.into_iter().next().map(|(_, total)| total.into());
        Ok(met)
    }
}
