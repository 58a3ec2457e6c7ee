//! The rows that an update takes.

use diesel::dsl::Find;
use diesel::prelude::*;
use diesel::query_builder::IntoUpdateTarget;
use diesel::query_dsl::methods::FindDsl;

/// The argument of [`update`](crate::update()): a table, a query with only filters, or a model that is `Identifiable`.
///
/// `Kind` keeps the two impls apart and is inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be updated",
    note = "only tables, queries with nothing but filters, and references to `Identifiable` models can be"
)]
pub trait UpdateSource<Kind> {
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
