//! Counts that are handed to the leader of another counter.

use diesel::backend::Backend;
use diesel::query_builder::QueryFragment;
use diesel::result::QueryResult;

use crate::backend::{Detached, ShardedBackend};
use crate::connection::{Io, Link};
use crate::engine::{self, Plan, Sender, Step, send};
use crate::policy::RetryPolicy;
use crate::query_builder::{AddSums, Names, Parts};

/// A counter as any connection of its backend counts on it.
pub(crate) struct Handed<DB: Backend + 'static> {
    plan: Plan,
    names: Names<'static, DB>,
    fields: &'static [&'static str],
    filter: Detached<DB>,
    insert: Option<Detached<DB>>,
}

impl<DB: ShardedBackend> Handed<DB> {
    /// `None` where nobody else's connection can send the filter.
    pub(crate) fn of(
        plan: Plan,
        (names, fields): (Names<'static, DB>, &'static [&'static str]),
        filter: &dyn QueryFragment<DB>,
        insert: Option<&dyn QueryFragment<DB>>,
    ) -> Option<Self> {
        Some(Handed {
            plan,
            names,
            fields,
            filter: DB::detach(filter)?,
            insert: match insert {
                Some(insert) => Some(DB::detach(insert)?),
                None => None,
            },
        })
    }

    /// Counts these sums, by themselves or in an open transaction of this crate's own.
    pub(super) async fn count<M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        retry: RetryPolicy,
        sums: Vec<i64>,
        in_transaction: bool,
    ) -> QueryResult<usize>
    where
        M: Io<Conn, Backend = DB>,
    {
        let plan = self.plan.in_own_transaction(in_transaction);
        let mut sums = SumsOf {
            counter: self,
            sums: AddSums::new(self.fields, sums),
        };
        engine::count(link, plan, retry, &mut sums).await
    }
}

struct SumsOf<'a, DB: Backend + 'static> {
    counter: &'a Handed<DB>,
    sums: AddSums,
}

impl<M, Conn, DB> Sender<M, Conn> for SumsOf<'_, DB>
where
    M: Io<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    async fn send(&mut self, link: &mut Link<'_, M, Conn>, step: Step) -> QueryResult<usize> {
        let counter = self.counter;
        let parts = Parts {
            names: counter.names,
            changes: &self.sums,
            filter: &*counter.filter,
            shard: step.shard,
        };
        let insert = counter.insert.as_ref().map(|insert| &**insert as _);
        let sent = send(link, step.statement, parts, insert);
        sent.await
    }
}
