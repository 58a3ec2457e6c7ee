//! `top(videos, views, 10)`: the rows with the greatest totals, exactly.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::dsl::Filter;
use diesel::expression::{AsExpression, Expression};
use diesel::prelude::*;
use diesel::query_builder::{AsQuery, IntoUpdateTarget, QueryFragment, QueryId};
use diesel::query_dsl::methods::{FilterDsl, LimitDsl};
use diesel::sql_types::SqlType;
use diesel::sql_types::is_nullable::NotNull;

use crate::counting::update::BoxedRows;
use crate::counting::update::returning::{NoReturning, Returning, ReturningTotals, SelectTotals};
use crate::model::{ShardedColumn, ShardedTable, Value};
use crate::query_builder::{After, NoColumn, SelectTop, SortedBy};

/// Reads the `n` rows with the greatest totals of a field, the greatest first. The result is as exact as a sort of all totals, but
/// cheaper: the cost grows with the number of rows that have shards, not with the size of the table.
///
/// ```
/// # mod schema { diesel::table! { videos (id) { id -> BigInt, title -> Text, views -> BigInt, } } }
/// # use schema::videos::{self, dsl::{id, title, videos as all, views}};
/// # use diesel::prelude::*;
/// # use diesel_sharded::prelude::*;
/// # #[derive(ShardedSelectable, ShardedField)]
/// # #[diesel(table_name = videos)]
/// # struct Video {
/// #     id: i64,
/// #     title: String,
/// #     #[sharded]
/// #     views: i64,
/// # }
/// # fn main() -> QueryResult<()> {
/// # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
/// # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, title TEXT NOT NULL, views BIGINT NOT NULL)").execute(conn)?;
/// # for (key, name, n) in [(7, "zoo", 100), (8, "farm", 90), (9, "sea", 50)] {
/// #     diesel::insert_into(all).values((id.eq(key), title.eq(name), views.eq(n))).execute(conn)?;
/// # }
/// # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
/// use diesel_sharded::{top, update};
///
/// update(all.find(8)).set(views.eq(views + 20)).execute(conn)?;
///
/// let first = top(all, views, 10).select(Video::as_select()).load(conn)?;
/// assert_eq!((first[0].id, first[0].views), (8, 110));
///
/// // Some rows, a further page, a selection.
/// let second = top(all.filter(title.ne("sea")), views, 1)
///     .offset(1)
///     .select((title, views))
///     .load::<(String, i64)>(conn)?;
/// assert_eq!(second, [("zoo".to_owned(), 100)]);
/// # Ok(())
/// # }
/// ```
///
/// Run it by `load`, `get_results` or `first` of Diesel's [`RunQueryDsl`](diesel::RunQueryDsl), or of `diesel_async`'s.
/// Without a selection, all columns of the table are read (at most 32, or 64 with the feature `64-column-tables`), into a tuple or a
/// struct with Diesel's `Queryable`. Every sharded column is read as its total.
///
/// Among rows with the same total, the greater key comes first, so the order is the same at each call. The next page begins
/// [`after`](Top::after) the last row of this one.
///
/// # SQL
///
/// The total of a row without shards is its base. The first `n` + offset of these rows are read in the order of an index. Any row
/// with shards can be among the first, so the shards of all these rows are added up. A shard that holds 0, as after a
/// [`fold`](crate::fold()), does not count as one. The totals in the selection are then read for the `n` rows only.
///
/// ```sql
/// SELECT … FROM (
///     SELECT total, key FROM (
///         SELECT total, key FROM (
///             SELECT "videos"."views" AS total, "videos"."id" AS key FROM "videos"
///             WHERE NOT EXISTS (SELECT 1 FROM "videos_shards"
///                 WHERE "videos_shards"."id" = "videos"."id" AND "videos_shards"."views" <> 0)
///                 -- MySQL, MariaDB: (SELECT 1 FROM … LIMIT 1) IS NULL
///             ORDER BY "videos"."views" DESC, "videos"."id" DESC LIMIT $1
///         ) AS sharded_bases
///         UNION ALL
///         -- PostgreSQL, SQLite
///         SELECT "videos"."views" + sum AS total, "videos"."id" AS key
///         FROM (SELECT "videos_shards"."id", SUM("videos_shards"."views") AS sum FROM "videos_shards"
///             WHERE "videos_shards"."views" <> 0 GROUP BY "videos_shards"."id") AS sharded_sums
///         JOIN "videos" ON sharded_sums."id" = "videos"."id"
///         -- PostgreSQL, SQLite, with a filter
///         SELECT "videos"."views" + (SELECT SUM("videos_shards"."views") FROM … ) AS total, "videos"."id" AS key
///         FROM (SELECT "videos"."id", "videos"."views" FROM "videos" WHERE …) AS "videos" WHERE EXISTS (…)
///         -- MySQL, MariaDB; with a filter, JOIN in place of STRAIGHT_JOIN
///         SELECT MAX(`videos`.`views`) + SUM(`videos_shards`.`views`) AS total, `videos`.`id` AS key
///         FROM `videos_shards` STRAIGHT_JOIN `videos` ON `videos_shards`.`id` = `videos`.`id`
///         WHERE `videos_shards`.`views` <> 0 GROUP BY `videos`.`id`
///     ) AS sharded_candidates
///     ORDER BY total DESC, key DESC LIMIT $2 OFFSET $3
/// ) AS sharded_top
/// JOIN "videos" ON sharded_top.key = "videos"."id" ORDER BY sharded_top.total DESC, "videos"."id" DESC
/// ```
///
/// (In the real statement the keys, totals and sums have names that begin with `sharded_`. On MySQL it ends in
/// `LIMIT 18446744073709551615`, which overrides `sql_select_limit`.) A filter applies to both halves.
///
/// # The index
///
/// The query needs an index that begins with the column. The tool's `diesel-sharded status` lists fields without one:
///
/// ```sql
/// CREATE INDEX videos_views ON videos (views);
/// ```
///
/// Without an index the result is the same, but every base is read and sorted. Increments do not write that index, since they do not
/// write the base; folds do. An index on `(views, id)` also helps if many rows have the same base as the last row of the list.
/// Do not create more indexes on the shards table: PostgreSQL can update a shard in place (HOT) only while no index contains its
/// value.
///
/// # Cost
///
/// The cost grows with the shards of rows that are not folded. If every row has shards, this query costs about as much as a sort of all
/// totals, so [`fold`](crate::fold()) quiet rows. With a filter, PostgreSQL and SQLite read only the shards of the rows that match.
/// [Top lists](crate::reference::lists#top-lists) has numbers.
///
/// A total of doubles depends on the order of addition. Two rows whose totals differ in the last digit may swap places.
///
/// # Errors
/// The database's, as from any query. A total that does not fit its column is an error if its row is among the `n`.
///
/// The idea comes from the threshold algorithm of [Fagin, Lotem and Naor](https://doi.org/10.1016/S0022-0000(03)00026-6): read an
/// ordered list only as long as its next entries can still belong to the result.
pub fn top<Q, C>(query: Q, _field: C, n: u32) -> Top<Q, C, NoReturning>
where
    Q: IntoUpdateTarget<Table = C::Table>,
    C: ShardedColumn,
{
    Top {
        query,
        selection: NoReturning,
        after: (),
        limit: n.into(),
        offset: 0,
        ascending: false,
        field: PhantomData,
    }
}

/// The rows with the greatest totals of one field; made by [`top`](top()).
#[derive(Debug, Clone)]
#[must_use = "nothing is read until it is `.load(conn)`-ed"]
pub struct Top<Q, C, S, Order = SortedBy, After = ()> {
    query: Q,
    selection: S,
    after: After,
    limit: i64,
    offset: i64,
    ascending: bool,
    field: PhantomData<(C, Order)>,
}

impl<Q, C: ShardedColumn, S, Order, A> Top<Q, C, S, Order, A> {
    /// Reads only rows that also match `predicate`. A filter on a sharded field sees its base; filter on `field.total()` instead.
    pub fn filter<Predicate>(
        self,
        predicate: Predicate,
    ) -> Top<Filter<Q, Predicate>, C, S, Order, A>
    where
        Q: FilterDsl<Predicate>,
    {
        self.with(|query, selection, after| (query.filter(predicate), selection, after))
    }

    /// Boxes the filter, so that more filters do not change the type. The query is then prepared each time.
    pub fn into_boxed<'a, DB>(self) -> Top<BoxedRows<'a, C::Table, DB>, C, S, Order, A>
    where
        Q: IntoUpdateTarget<Table = C::Table, WhereClause: QueryFragment<DB> + QueryId + Send + 'a>,
        C::Table: IntoUpdateTarget<WhereClause: QueryId>,
        DB: Backend,
    {
        self.with(|query, selection, after| (BoxedRows::new(query), selection, after))
    }

    /// Replaces the rows, the selection, the order or the beginning.
    fn with<Rows, Selected, OtherOrder, OtherAfter>(
        self,
        change: impl FnOnce(Q, S, A) -> (Rows, Selected, OtherAfter),
    ) -> Top<Rows, C, Selected, OtherOrder, OtherAfter> {
        let (query, selection, after) = change(self.query, self.selection, self.after);
        Top {
            query,
            selection,
            after,
            limit: self.limit,
            offset: self.offset,
            ascending: self.ascending,
            field: PhantomData,
        }
    }

    /// Reads `selection` of each row: columns, a tuple of them, `Model::as_select()`. Every sharded column in it is read as its
    /// total.
    pub fn select<Selection, Kind>(
        self,
        selection: Selection,
    ) -> Top<Q, C, ReturningTotals<Selection::Output>, Order, A>
    where
        Selection: SelectTotals<C::Table, Kind>,
    {
        self.with(|query, _, after| (query, ReturningTotals(selection.with_totals()), after))
    }

    /// Begins the list after a row with these values, the values that the list is sorted by, in their order. So a page continues after the
    /// last row of the page before, even if that row has moved since. The cursor is `(total, key)`, or with [`first_by`](Self::first_by)
    /// and [`then_by`](Self::then_by) `(first, total, then, key)`. A composite key is a tuple.
    ///
    /// ```
    /// # mod schema { diesel::table! { videos (id) { id -> BigInt, title -> Text, views -> BigInt, } } }
    /// # use schema::videos::{self, dsl::{id, title, videos as all, views}};
    /// # use diesel::prelude::*;
    /// # #[derive(diesel_sharded::ShardedField)]
    /// # #[diesel(table_name = videos)]
    /// # struct Video { id: i64, #[sharded] views: i64 }
    /// # fn main() -> QueryResult<()> {
    /// # let conn = &mut SqliteConnection::establish(":memory:").unwrap();
    /// # diesel::sql_query("CREATE TABLE videos (id INTEGER PRIMARY KEY, title TEXT NOT NULL, views BIGINT NOT NULL)").execute(conn)?;
    /// # for (key, name, n) in [(7, "zoo", 100), (8, "farm", 90), (9, "sea", 90)] {
    /// #     diesel::insert_into(all).values((id.eq(key), title.eq(name), views.eq(n))).execute(conn)?;
    /// # }
    /// # diesel_sharded::ShardsTable::of(videos::table).create(conn)?;
    /// use diesel_sharded::top;
    ///
    /// let page = top(all, views, 2).select((views, id)).load::<(i64, i64)>(conn)?;
    /// assert_eq!(page, [(100, 7), (90, 9)]);
    /// let next = top(all, views, 2).after(page[1]).select((views, id)).load::<(i64, i64)>(conn)?;
    /// assert_eq!(next, [(90, 8)]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The condition applies to each half of the query, which then reads no earlier rows:
    ///
    /// ```sql
    /// "videos"."views" <= $1 AND ("videos"."views", "videos"."id") < ($2, $3)
    /// ```
    ///
    /// A row whose total changes between two pages may cross the boundary, and then appears on both pages or on neither. A total of doubles
    /// is no reliable cursor, because it depends on the order of addition.
    pub fn after<Cursor>(self, cursor: Cursor) -> Top<Q, C, S, Order, Cursor::After>
    where
        Cursor: TopCursor<C, Order>,
    {
        self.with(|query, selection, _| (query, selection, cursor.into_after()))
    }

    /// Skips the first `rows`. For pages, prefer [`after`](Self::after) the last row of the page before.
    pub fn offset(mut self, rows: u32) -> Self {
        self.offset = rows.into();
        self
    }

    /// Reads the rows with the least totals instead, the least first. All columns that the list is sorted by are then ascending.
    pub fn ascending(mut self) -> Self {
        self.ascending = true;
        self
    }
}

impl<Q, C: ShardedColumn, S, Then> Top<Q, C, S, SortedBy<NoColumn, Then>> {
    /// Sorts by `column` before the total, the greatest first: pinned posts above all others. The index then has to begin with this column.
    /// A sharded column is sorted by its base.
    pub fn first_by<F>(self, _column: F) -> Top<Q, C, S, SortedBy<F, Then>>
    where
        F: Column<Table = C::Table, SqlType: SqlType<IsNull = NotNull>>,
    {
        self.with(|query, selection, after| (query, selection, after))
    }
}

impl<Q, C: ShardedColumn, S, First> Top<Q, C, S, SortedBy<First, NoColumn>> {
    /// Sorts rows with the same total by `column` before their key, the greatest first: the later of two posts. A sharded column is sorted
    /// by its base.
    pub fn then_by<T>(self, _column: T) -> Top<Q, C, S, SortedBy<First, T>>
    where
        T: Column<Table = C::Table, SqlType: SqlType<IsNull = NotNull>>,
    {
        self.with(|query, selection, after| (query, selection, after))
    }
}

/// The position of a row in a list sorted by totals of `C`; see [`Top::after`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no place in this list",
    label = "not the values that the list is sorted by",
    note = "`.after(..)` takes the values that the list is sorted by, in their order: `(total, key)`, `(first, total, key)` with \
            `.first_by(..)`, `(total, then, key)` with `.then_by(..)`; call it behind these two"
)]
pub trait TopCursor<C, Order> {
    /// The values, as expressions.
    type After;

    /// The values, as expressions.
    fn into_after(self) -> Self::After;
}

type ExprOf<V, C> = <V as AsExpression<<C as Expression>::SqlType>>::Expression;
type KeyValues<C> = <<C as Column>::Table as ShardedTable>::KeyValues;
type Key<C> = <<C as Column>::Table as ShardedTable>::Key;

macro_rules! top_cursor {
    (($($first:ident $F:ident)?) ($($then:ident $T:ident)?) $order:ty) => {
        impl<C, K $(, $first, $F)? $(, $then, $T)?> TopCursor<C, $order> for ($($first,)? Value<C>, $($then,)? K)
        where
            C: ShardedColumn,
            C::SqlType: SqlType,
            Value<C>: AsExpression<C::SqlType> + Clone,
            K: Into<Key<C>>,
            $($first: AsExpression<$F::SqlType> + Clone, $F: Column<SqlType: SqlType>,)?
            $($then: AsExpression<$T::SqlType>, $T: Column<SqlType: SqlType>,)?
        {
            type After = After<
                top_cursor!(@lead C $($first $F)?),
                ($(ExprOf<$first, $F>,)? ExprOf<Value<C>, C>, $(ExprOf<$then, $T>,)? KeyValues<C>),
            >;

            #[allow(non_snake_case, reason = "the values have the names of their types")]
            fn into_after(self) -> Self::After {
                let ($($first,)? total, $($then,)? key) = self;
                After {
                    lead: top_cursor!(@value total $($first)?),
                    values: ($($first.as_expression(),)? total.as_expression(), $($then.as_expression(),)? C::Table::key_values(&key.into())),
                }
            }
        }
    };
    (@lead $C:ident) => { ExprOf<Value<$C>, $C> };
    (@lead $C:ident $first:ident $F:ident) => { ExprOf<$first, $F> };
    (@value $total:ident) => { $total.clone().as_expression() };
    (@value $total:ident $first:ident) => { $first.clone().as_expression() };
}
top_cursor!(() () SortedBy);
top_cursor!((V F) () SortedBy<F>);
top_cursor!(() (W T) SortedBy<NoColumn, T>);
top_cursor!((V F) (W T) SortedBy<F, T>);

impl<Q, C, S, Order, A> AsQuery for Top<Q, C, S, Order, A>
where
    Q: IntoUpdateTarget,
    C: Column,
    S: Returning<C::Table>,
{
    type SqlType = <S::Selection as Expression>::SqlType;
    type Query = SelectTop<C, Q::WhereClause, S::Selection, Order, A>;

    fn as_query(self) -> Self::Query {
        SelectTop {
            filter: self.query.into_update_target().where_clause,
            selection: self.selection.selection(),
            after: self.after,
            limit: self.limit,
            offset: self.offset,
            candidates: self.limit.saturating_add(self.offset),
            ascending: self.ascending,
            field: PhantomData,
        }
    }
}

/// For `.first(conn)`.
impl<Q, C, S, Order, A> LimitDsl for Top<Q, C, S, Order, A> {
    type Output = Self;

    fn limit(mut self, limit: i64) -> Self {
        self.limit = limit;
        self
    }
}

impl<Q, C, S, Order, A, Conn> diesel::RunQueryDsl<Conn> for Top<Q, C, S, Order, A> {}
