//! Counts that are handed to the leader of another counter.

use std::sync::Arc;

use diesel::backend::Backend;

use super::Combine;
use crate::backend::{Detached, ShardedBackend};
use crate::connection::Io;
use crate::counting::update::{Count, TypedUpdate, Update};
use crate::query_builder::{AddSums, Clauses, Names};

/// The rows of an update, in a form that any connection of its backend can send. The leader adds sums to them.
pub(crate) struct Handed<DB: Backend + 'static> {
    names: Names<'static, DB>,
    filter: Detached<DB>,
    insert: Option<Detached<DB>>,
}

impl<DB: ShardedBackend> Handed<DB> {
    /// `None` if no other connection can send the filter.
    pub(super) fn of<U: ?Sized>(
        count: &Count<U>,
        clauses: Clauses<'_, DB>,
    ) -> Option<Count<Arc<Self>>> {
        let facts = count.facts_for_all();
        Some(Count {
            facts,
            retry: count.retry.clone(),
            combine: Combine::Alone,
            terms: count.terms,
            shows_key: count.shows_key,
            inserts_own: false,
            sums: None,
            update: Arc::new(Handed {
                names: clauses.names,
                filter: DB::detach(clauses.filter)?,
                insert: match clauses.insert.filter(|_| facts.inserts) {
                    Some(insert) => Some(DB::detach(insert)?),
                    None => None,
                },
            }),
        })
    }
}

/// An update whose connection sends what was handed over. Where types are hidden, both become one type: the code that counts is compiled once.
pub(crate) trait SendsHanded<M: Io>: Update<M> {
    type Hidden: Update<M> + ?Sized;

    fn hidden(handed: &mut Count<Arc<Handed<M::Backend>>>) -> &mut Count<Self::Hidden>;
}

macro_rules! hides_handed {
    ($([$($generics:tt)*] $update:ty => $hidden:ty;)+) => {$(
        impl<M: Io, $($generics)*> SendsHanded<M> for $update {
            type Hidden = $hidden;

            fn hidden(handed: &mut Count<Arc<Handed<M::Backend>>>) -> &mut Count<$hidden> {
                handed
            }
        }
    )+};
}
hides_handed! {
    [U: TypedUpdate<M::Backend>] U => Arc<Handed<M::Backend>>;
    [] dyn Update<M> + '_ => Self;
    [] dyn Update<M> + Send + '_ => Self;
}

impl<DB: ShardedBackend> TypedUpdate<DB> for Arc<Handed<DB>> {
    type Id = AddSums;

    fn clauses(&self, shard: i32) -> Clauses<'_, DB> {
        Clauses {
            names: self.names,
            changes: &(),
            filter: &*self.filter,
            insert: self.insert.as_ref().map(|insert| &**insert as _),
            shard,
        }
    }
}
