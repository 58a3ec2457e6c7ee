//! The rows that an update counts on.

use std::marker::PhantomData;

use diesel::associations::HasTable;
use diesel::backend::Backend;
use diesel::dsl::Find;
use diesel::expression::{AppearsOnTable, Expression};
use diesel::prelude::*;
use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId, UpdateTarget};
use diesel::query_dsl::methods::{FilterDsl, FindDsl};
use diesel::sql_types::BoolOrNullableBool;

use crate::query_builder::fragments;

/// The argument of [`update`](crate::update()): a table, a query with only filters, or a model that is `Identifiable`.
///
/// `Kind` keeps the two impls apart and is inferred. `Of` is the type itself. Thanks to it the compiler does not suggest leaving out a filter
/// that does not compile, which would count on every row.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be updated",
    note = "only tables, queries with nothing but filters, and references to `Identifiable` models can be",
    note = "a filter compares a column with a value of the column's own type: `BigInt` with an `i64`, `Integer` with an `i32`"
)]
pub trait UpdateSource<Kind, Of = Self> {
    /// A query for the rows to count.
    type Query: IntoUpdateTarget;

    /// The query for the rows to count.
    fn into_query(self) -> Self::Query;
}

/// The kind of [`UpdateSource`] that is a table or a query.
#[derive(Debug)]
pub struct Rows;
/// The kind of [`UpdateSource`] that is a model.
#[derive(Debug)]
pub struct Model;

impl<Query: IntoUpdateTarget + QueryDsl> UpdateSource<Rows> for Query {
    type Query = Self;

    fn into_query(self) -> Self {
        self
    }
}

impl<M> UpdateSource<Model> for M
where
    M: Identifiable,
    M::Table: FindDsl<M::Id>,
    Find<M::Table, M::Id>: IntoUpdateTarget,
{
    type Query = Find<M::Table, M::Id>;

    fn into_query(self) -> Self::Query {
        FindDsl::find(M::table(), self.id())
    }
}

/// Rows of `T` under a boxed filter; see [`into_boxed`](crate::operation::UpdateStatement::into_boxed).
#[allow(missing_debug_implementations)] // the filters cannot be shown
pub struct BoxedRows<'a, T, DB> {
    filter: BoxedFilter<'a, DB>,
    table: PhantomData<T>,
}

/// A boxed `WHERE` clause, and predicates added to it.
#[allow(missing_debug_implementations)]
pub struct BoxedFilter<'a, DB> {
    where_clause: Option<Box<dyn QueryFragment<DB> + Send + 'a>>,
    predicates: Vec<Box<dyn QueryFragment<DB> + Send + 'a>>,
}

impl<'a, T, DB: Backend> BoxedRows<'a, T, DB> {
    pub(crate) fn new<Q>(query: Q) -> Self
    where
        Q: IntoUpdateTarget<Table = T>,
        Q::WhereClause: QueryFragment<DB> + QueryId + Send + 'a,
        T: IntoUpdateTarget<WhereClause: QueryId>,
    {
        let no_where_clause = <T::WhereClause as QueryId>::query_id();
        let where_clause = query.into_update_target().where_clause;
        let is_empty = <Q::WhereClause as QueryId>::query_id() == no_where_clause;
        BoxedRows {
            filter: BoxedFilter {
                where_clause: (!is_empty).then(|| Box::new(where_clause) as _),
                predicates: vec![],
            },
            table: PhantomData,
        }
    }
}

impl<T: Table + HasTable<Table = T>, DB> HasTable for BoxedRows<'_, T, DB> {
    type Table = T;

    fn table() -> T {
        T::table()
    }
}

impl<'a, T: Table + HasTable<Table = T>, DB> IntoUpdateTarget for BoxedRows<'a, T, DB> {
    type WhereClause = BoxedFilter<'a, DB>;

    fn into_update_target(self) -> UpdateTarget<T, BoxedFilter<'a, DB>> {
        UpdateTarget {
            table: T::table(),
            where_clause: self.filter,
        }
    }
}

impl<'a, T, DB, Predicate> FilterDsl<Predicate> for BoxedRows<'a, T, DB>
where
    DB: Backend,
    Predicate: AppearsOnTable<T> + QueryFragment<DB> + Send + 'a,
    <Predicate as Expression>::SqlType: BoolOrNullableBool,
{
    type Output = Self;

    fn filter(mut self, predicate: Predicate) -> Self {
        self.filter.predicates.push(Box::new(predicate));
        self
    }
}

fragments! {
    [] BoxedFilter<'_, DB>, no query id [DB: Backend];
    |self, mut out| {
        out.unsafe_to_cache_prepared(); // any filter may be in the box
        if let Some(where_clause) = &self.where_clause {
            where_clause.walk_ast(out.reborrow())?;
        }
        for (i, predicate) in self.predicates.iter().enumerate() {
            let first = i == 0 && self.where_clause.is_none();
            out.push_sql(if first { " WHERE " } else { " AND " });
            predicate.walk_ast(out.reborrow())?;
        }
        Ok(())
    };
}
