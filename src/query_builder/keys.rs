//! Filters that name parents by their keys, and queries of the parents that a filter matches.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::expression::Expression;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};

use super::names::Names;
use super::sql::{Sql, fragments, on, part, sql, statements, walk};
use crate::backend::{AsksPrimary, Dialect, ShardedBackend};
use crate::model::ShardedTable;

/// A `WHERE` clause that names parents by their keys.
///
/// ```sql
/// WHERE (("videos"."id" = $1) OR ("videos"."id" = $2))
/// ```
pub(crate) struct KeysAre<P>(pub(crate) Vec<P>);

fragments! {
    [P: QueryFragment<DB>,] KeysAre<P>, no query id [P];
    |self, out| sql!(out; " WHERE ", self.any());
}

impl<P> KeysAre<P> {
    /// `(("videos"."id" = $1) OR ("videos"."id" = $2))`
    pub(crate) fn any<'b, DB>(&'b self) -> impl Sql<'b, DB>
    where
        DB: ShardedBackend,
        P: QueryFragment<DB>,
    {
        part(|mut out: AstPass<'_, 'b, DB>| {
            out.unsafe_to_cache_prepared(); // one text for each number of keys
            sql!(out; "(", for key_is in (&self.0, " OR ") { walk(key_is) }, ")")
        })
    }
}

/// A `WHERE` clause that names one parent by its key.
///
/// ```sql
/// WHERE ("videos"."id" = $1)
/// ```
#[derive(QueryId)]
pub(crate) struct KeyIs<P>(pub(crate) P);

fragments! {
    [P: QueryFragment<DB>,] KeyIs<P>;
    |self, out| sql!(out; " WHERE ", walk(&self.0));
}

statements! {
    /// Reads the keys of the parents that `filter` matches, in the order in which their shards are then locked. `clause` may lock the
    /// parents.
    ///
    /// ```sql
    /// SELECT "videos"."id" FROM "videos" WHERE … ORDER BY "videos"."id" FOR NO KEY UPDATE  -- MySQL, MariaDB: LIMIT 18446744073709551615 FOR UPDATE
    /// ```
    pub(crate) struct SelectKeys<'a, ST> {
        names: Names<'a, DB>,
        filter: &'a dyn QueryFragment<DB>,
        clause: &'static str,
        key_sql: PhantomData<ST>,
    }: Query<ST>;
    |self, out| {
        let table = self.names;
        sql!(out;
            "SELECT ", table.key_to_read(), " FROM ", walk(table.parent), walk(self.filter), " ORDER BY ", table.key(),
            on(Dialect::all_rows), self.clause)
    }
}

impl<'a, ST, DB: Backend + 'static> SelectKeys<'a, ST, DB> {
    pub(crate) fn new(names: Names<'a, DB>, filter: &'a dyn QueryFragment<DB>) -> Self {
        Self::locking(names, filter, "")
    }

    pub(crate) fn locking(
        names: Names<'a, DB>,
        filter: &'a dyn QueryFragment<DB>,
        clause: &'static str,
    ) -> Self {
        SelectKeys {
            names,
            filter,
            clause,
            key_sql: PhantomData,
        }
    }
}

/// Reads `selection` of the parents that `filter` matches.
///
/// ```sql
/// SELECT … FROM "videos" WHERE …
/// ```
#[derive(QueryId)]
pub(crate) struct SelectParents<T, W, S> {
    pub(crate) selection: S,
    pub(crate) filter: W,
    pub(crate) table: PhantomData<T>,
}

fragments! {
    [T: ShardedTable + QueryFragment<DB>, W: QueryFragment<DB>, S: QueryFragment<DB>,] SelectParents<T, W, S>;
    |self, out| sql!(out; "SELECT ", walk(&self.selection), " FROM ", walk(T::TABLE), walk(&self.filter));
}

impl<T, W, S: Expression> Query for SelectParents<T, W, S> {
    type SqlType = S::SqlType;
}

/// A query that no proxy may send to a replica, because its answer decides what is written; see [`Dialect::asks_primary`].
///
/// ```sql
/// WITH "sharded_primary" AS (UPDATE "videos_shards" SET "shard" = 0 WHERE FALSE) SELECT …   -- PostgreSQL
/// ```
pub(crate) struct OnPrimary<'a, DB: Backend, Q> {
    pub(crate) names: Names<'a, DB>,
    pub(crate) query: Q,
}

fragments! {
    [Q: QueryFragment<DB>,] OnPrimary<'_, DB, Q>, no query id [DB: Backend, Q];
    |self, out| sql!(out; self.names.on_primary(), walk(&self.query));
}

impl<DB: Backend, Q: Query> Query for OnPrimary<'_, DB, Q> {
    type SqlType = Q::SqlType;
}

impl<'b, DB: ShardedBackend> Names<'b, DB> {
    /// The start of a query that no proxy may send to a replica.
    pub(crate) fn on_primary(self) -> impl Sql<'b, DB> {
        let begins = move |dialect: Dialect| match dialect.asks_primary() {
            AsksPrimary::BehindWrite(before, behind) => {
                Some(sql! { before, self.shards_table, behind })
            }
            AsksPrimary::Plainly | AsksPrimary::InTransaction => None,
        };
        on(begins)
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
    use crate::test_schema::videos::dsl::id;
    use crate::test_schema::{assert_sql, downloads, videos as table};
    use diesel::pg::Pg;
    use diesel::prelude::*;
    use diesel::query_builder::IntoUpdateTarget;

    #[test]
    fn select_keys() {
        let filter = downloads::table
            .filter(downloads::day.eq("x"))
            .into_update_target()
            .where_clause;
        let pick = SelectKeys::<(), _>::new(Names::of::<downloads::table>(), &filter);
        assert_sql!(pick;
            Pg => r#"SELECT "downloads"."version", CAST("downloads"."day" AS TEXT) FROM "downloads" WHERE ("downloads"."day" = $1) ORDER BY "downloads"."version", "downloads"."day""#,
        );
    }

    #[test]
    fn select_parents_by_several_keys() {
        let keys = KeysAre(vec![id.eq(1), id.eq(2)]);
        let select = SelectParents::<table::table, _, _> {
            selection: &id,
            filter: &keys,
            table: PhantomData,
        };
        assert_sql!(select;
            Pg => r#"SELECT "videos"."id" FROM "videos" WHERE (("videos"."id" = $1) OR ("videos"."id" = $2))"#,
        );
    }
}
