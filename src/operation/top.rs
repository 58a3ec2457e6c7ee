//! `top(videos, views, 10)`: the rows with the greatest totals, exactly.

use std::marker::PhantomData;

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

/// Reads the `n` rows with the greatest totals of a field, the greatest first. The result is exact, as a sort of all totals is,
/// but cheaper: the cost grows with the rows that have shards to add up, not with the table.
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
/// Diesel's [`RunQueryDsl`](diesel::RunQueryDsl) runs it, by `load`, `get_results` or `first`, and so does that of `diesel_async`.
/// Without a selection, all columns of the table are read (at most 32), into a tuple or a struct with Diesel's `Queryable`. Every sharded column
/// is read as its total.
///
/// Of rows with the same total, the one with the greater key comes first. So the order is the same at each call, and pages by
/// [`offset`](Top::offset) neither repeat nor skip a row while nothing is counted.
///
/// # SQL
///
/// Rows without shards have the base as their total. The first `n` + offset of them are read in the order of an index. Any row
/// with shards can be among the first, so the shards of all of them are added up. Shards that hold 0, as a
/// [`fold`](crate::fold()) leaves them, count as none. The totals of the selection are then read for the `n` rows alone.
///
/// ```sql
/// SELECT … FROM (
///     SELECT key, total FROM (
///         SELECT key, total FROM (
///             SELECT "videos"."id" AS key, "videos"."views" AS total FROM "videos"
///             WHERE NOT EXISTS (SELECT 1 FROM "videos_shards"
///                 WHERE "videos_shards"."id" = "videos"."id" AND "videos_shards"."views" <> 0)
///                 -- MySQL, MariaDB: (SELECT 1 FROM … LIMIT 1) IS NULL
///             ORDER BY "videos"."views" DESC, "videos"."id" DESC LIMIT $1
///         ) AS sharded_bases
///         UNION ALL
///         -- PostgreSQL, SQLite
///         SELECT "videos"."id" AS key, "videos"."views" + sum AS total
///         FROM (SELECT "videos_shards"."id", SUM("videos_shards"."views") AS sum FROM "videos_shards"
///             WHERE "videos_shards"."views" <> 0 GROUP BY "videos_shards"."id") AS sharded_sums
///         JOIN "videos" ON sharded_sums."id" = "videos"."id"
///         -- PostgreSQL, SQLite, with a filter
///         SELECT "videos"."id" AS key, "videos"."views" + (SELECT SUM("videos_shards"."views") FROM … ) AS total
///         FROM (SELECT "videos"."id", "videos"."views" FROM "videos" WHERE …) AS "videos" WHERE EXISTS (…)
///         -- MySQL, MariaDB; with a filter, JOIN in place of STRAIGHT_JOIN
///         SELECT `videos`.`id` AS key, MAX(`videos`.`views`) + SUM(`videos_shards`.`views`) AS total
///         FROM `videos_shards` STRAIGHT_JOIN `videos` ON `videos_shards`.`id` = `videos`.`id`
///         WHERE `videos_shards`.`views` <> 0 GROUP BY `videos`.`id`
///     ) AS sharded_candidates
///     ORDER BY total DESC, key DESC LIMIT $2 OFFSET $3
/// ) AS sharded_top
/// JOIN "videos" ON sharded_top.key = "videos"."id" ORDER BY sharded_top.total DESC, "videos"."id" DESC
/// ```
///
/// (In the real statement the keys, totals and sums have names that begin with `sharded_`. On MySQL it ends in
/// `LIMIT 18446744073709551615`, which no `sql_select_limit` cuts.) A filter applies to both halves.
///
/// # The index
///
/// It needs an index that begins with the column; the tool's `diesel-sharded status` names fields without one:
///
/// ```sql
/// CREATE INDEX videos_views ON videos (views);
/// ```
///
/// Without an index the result is the same, but every base is read and sorted. Counts do not write that index, since they do not
/// write the base; folds do. An index on `(views, id)` also helps if many rows have the same base as the last row of the list.
/// Create no further indexes on the shards table: PostgreSQL updates a shard in place (HOT) only as long as no index holds its
/// value.
///
/// # Cost
///
/// It grows with the shards of rows that are not folded. Where every row has shards, this query costs about as much as a sort of all
/// totals, so [`fold`](crate::fold()) the rows that are quiet. With a filter PostgreSQL and SQLite read the shards of the rows that match and no
/// others. [Top lists](crate::guide::reading#top-lists) has numbers.
///
/// A total of doubles depends on the order of addition. Two rows whose totals differ in the last digit may change places.
///
/// # Errors
/// The database's, as from any query. A total that does not fit its column is an error if its row is among the `n`.
///
/// The idea is that of the threshold algorithm of [Fagin, Lotem and Naor](https://doi.org/10.1016/S0022-0000(03)00026-6): an
/// ordered list need be read only as long as its next entries can still belong to the result.
pub fn top<Q, C>(
    query: Q,
    _field: C,
    n: u32,
) -> Top<Q, C, <<C::Table as Table>::AllColumns as AllWithTotals>::Output>
where
    Q: IntoUpdateTarget<Table = C::Table>,
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
        self.with(|query, selection| (query.filter(predicate), selection))
    }

    /// Boxes the filter, so that further filters do not change the type. The query is then prepared each time.
    pub fn into_boxed<'a, DB>(self) -> Top<BoxedRows<'a, C::Table, DB>, C, S>
    where
        Q: IntoUpdateTarget<Table = C::Table, WhereClause: QueryFragment<DB> + QueryId + Send + 'a>,
        C::Table: IntoUpdateTarget<WhereClause: QueryId>,
        DB: Backend,
    {
        self.with(|query, selection| (BoxedRows::new(query), selection))
    }

    /// The same over other rows, or with another selection.
    fn with<Rows, Selected>(
        self,
        change: impl FnOnce(Q, S) -> (Rows, Selected),
    ) -> Top<Rows, C, Selected> {
        let (query, selection) = change(self.query, self.selection);
        Top {
            query,
            selection,
            limit: self.limit,
            offset: self.offset,
            ascending: self.ascending,
            field: PhantomData,
        }
    }

    /// Reads `selection` of each row: columns, a tuple of them, `Model::as_select()`. Every sharded column in it is read as its
    /// total.
    pub fn select<Selection, Kind>(self, selection: Selection) -> Top<Q, C, Selection::Output>
    where
        Selection: SelectTotals<C::Table, Kind>,
    {
        self.with(|query, _| (query, selection.with_totals()))
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
