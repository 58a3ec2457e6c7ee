//! `top(videos, views, 10)`: the rows with the greatest totals, exactly.

use std::marker::PhantomData;

use diesel::associations::HasTable;
use diesel::backend::Backend;
use diesel::dsl::Filter;
use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{AsQuery, IntoUpdateTarget, QueryFragment, QueryId};
use diesel::query_dsl::methods::{FilterDsl, LimitDsl};

use crate::model::ShardedColumn;
use crate::operation::update::BoxedRows;
use crate::operation::update::returning::{AllWithTotals, SelectTotals};
use crate::query_builder::SelectTop;

/// doc
pub fn top<Q, C>(
    query: Q,
    _field: C,
    n: u32,
) -> Top<Q, C, <<C::Table as Table>::AllColumns as AllWithTotals>::Output>
where
    Q: IntoUpdateTarget + HasTable<Table = C::Table>,
    C: ShardedColumn<Table: Table<AllColumns: AllWithTotals>>,
{
    Top {
        query,
        selection: C::Table::all_columns().all_with_totals(),
        limit: n.into(),
        offset: 0,
        ascending: false,
        field: PhantomData,
    }
}

/// The rows with the greatest totals of one field; made by [`top`](top()).
#[derive(Debug, Clone)]
#[must_use = "nothing is read until it is `.load(conn)`-ed"]
pub struct Top<Q, C, S> {
    query: Q,
    selection: S,
    limit: i64,
    offset: i64,
    ascending: bool,
    field: PhantomData<C>,
}

impl<Q, C: ShardedColumn, S> Top<Q, C, S> {
    /// Reads only rows that match `predicate` too. A filter on a sharded field sees its base; filter on `field.total()` instead.
    pub fn filter<Predicate>(self, predicate: Predicate) -> Top<Filter<Q, Predicate>, C, S>
    where
        Q: FilterDsl<Predicate>,
    {
        self.over(|query| query.filter(predicate))
    }

    /// Boxes the filter, so that further ones keep the type. The query is then prepared each time.
    pub fn into_boxed<'a, DB>(self) -> Top<BoxedRows<'a, C::Table, DB>, C, S>
    where
        Q: IntoUpdateTarget<Table = C::Table, WhereClause: QueryFragment<DB> + QueryId + Send + 'a>,
        C::Table: IntoUpdateTarget<WhereClause: QueryId>,
        DB: Backend,
    {
        self.over(BoxedRows::new)
    }

    /// The same over other rows.
    fn over<Other>(self, rows: impl FnOnce(Q) -> Other) -> Top<Other, C, S> {
        Top {
            query: rows(self.query),
            selection: self.selection,
            limit: self.limit,
            offset: self.offset,
            ascending: self.ascending,
            field: PhantomData,
        }
    }

    /// Reads `selection` of each row: columns, a tuple of them, `Model::as_select()`. Every sharded column in it is given as
    /// its total.
    pub fn select<Selection, Kind>(self, selection: Selection) -> Top<Q, C, Selection::Output>
    where
        Selection: SelectTotals<C::Table, Kind>,
    {
        Top {
            query: self.query,
            selection: selection.with_totals(),
            limit: self.limit,
            offset: self.offset,
            ascending: self.ascending,
            field: PhantomData,
        }
    }

    /// Leaves out the first `rows`, as for a further page.
    pub fn offset(mut self, rows: u32) -> Self {
        self.offset = rows.into();
        self
    }

    /// Reads the rows with the least totals instead, the least first.
    pub fn ascending(mut self) -> Self {
        self.ascending = true;
        self
    }
}

impl<Q, C, S> AsQuery for Top<Q, C, S>
where
    Q: IntoUpdateTarget,
    S: Expression,
{
    type SqlType = S::SqlType;
    type Query = SelectTop<C, Q::WhereClause, S>;

    fn as_query(self) -> Self::Query {
        SelectTop {
            filter: self.query.into_update_target().where_clause,
            selection: self.selection,
            limit: self.limit,
            offset: self.offset,
            candidates: self.limit.saturating_add(self.offset),
            ascending: self.ascending,
            field: PhantomData,
        }
    }
}

/// For `.first(conn)`.
impl<Q, C, S> LimitDsl for Top<Q, C, S> {
    type Output = Self;

    fn limit(mut self, limit: i64) -> Self {
        self.limit = limit;
        self
    }
}

impl<Q, C, S, Conn> diesel::RunQueryDsl<Conn> for Top<Q, C, S> {}
