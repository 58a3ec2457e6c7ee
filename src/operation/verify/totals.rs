//! The statements that read totals, and that add to bases what they lack.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment};
use diesel::sql_types::BigInt;

use crate::backend::{Dialect, ShardedBackend};
use crate::engine::KeyAndText;
use crate::model::{Amount, ColumnType, ShardedTable, ShardsColumn};
use crate::query_builder::{Names, Sql, bind, id, no_query_id, on, sql, walk};

/// Reads keys and totals, the totals of a parent as one text.
///
/// ```sql
/// SELECT "videos"."id", CAST(total AS TEXT) || ' ' || CAST(total AS TEXT) FROM "videos" WHERE …
/// -- MySQL, MariaDB: CONCAT(CAST(total AS CHAR), ' ', …), and LIMIT 18446744073709551615
/// ```
pub(super) struct ReadTotals<'a, T, W> {
    pub(super) fields: &'a [&'static ShardsColumn],
    pub(super) filter: &'a W,
    pub(super) table: PhantomData<T>,
}

impl<T, W, DB> QueryFragment<DB> for ReadTotals<'_, T, W>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let table = Names::of::<T>();
        let dialect = out.backend().dialect();
        let [joined, between, end] = dialect.joined_texts();
        let cast = |field: &ShardsColumn| dialect.number_as_text(field.column_type);
        sql!(out;
            "SELECT ", table.key(), ", ", joined,
            for field in (self.fields, between) { cast(field).0, table.total(field, None), cast(field).1 }, end,
            " FROM ", walk(T::TABLE), walk(self.filter), on(Dialect::all_rows))
    }
}

impl<T: Table, W> Query for ReadTotals<'_, T, W> {
    type SqlType = KeyAndText<T>;
}

no_query_id!([T, W] ReadTotals<'_, T, W>);

/// Reads the parents' own keys for these, each with the number of the key that found it.
///
/// ```sql
/// SELECT "tags"."name", '0' FROM "tags" WHERE ("tags"."name" = $1) UNION ALL SELECT "tags"."name", '1' FROM "tags" WHERE …
/// ```
pub(super) struct FindEach<T, K> {
    pub(super) keys: Vec<K>,
    pub(super) table: PhantomData<T>,
}

impl<T, K, DB> QueryFragment<DB> for FindEach<T, K>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
    K: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared(); // one text for each number of keys
        let table = Names::of::<T>();
        sql!(out; for (number, key_is) in (self.keys.iter().enumerate(), " UNION ALL ") {
            "SELECT ", table.key(), ", '", &*number.to_string(), "' FROM ", walk(T::TABLE), " WHERE ", walk(key_is)
        })
    }
}

impl<T: Table, K> Query for FindEach<T, K> {
    type SqlType = KeyAndText<T>;
}

no_query_id!([T, K] FindEach<T, K>);

/// `"views" = ("videos"."views" + $1), "score" = ("videos"."score" + 0.5)`
///
/// Integers are bound, if an `i64` holds them: another number is a literal of its digits, which every database takes for the type of its
/// column.
pub(super) struct AddAmounts<'a, T> {
    fields: &'a [&'static ShardsColumn],
    terms: Vec<Term>,
    table: PhantomData<T>,
}

enum Term {
    Bound(i64),
    Literal(String),
}

impl Term {
    fn sql<'b, DB: ShardedBackend>(&'b self) -> impl Sql<'b, DB> {
        move |out: AstPass<'_, 'b, DB>| match self {
            Term::Bound(n) => bind(BigInt, n).push(out),
            Term::Literal(digits) => digits.as_str().push(out),
        }
    }
}

impl<'a, T> AddAmounts<'a, T> {
    /// `None` if an integer is too large.
    pub(super) fn new(fields: &'a [&'static ShardsColumn], amounts: &[Amount]) -> Option<Self> {
        let term = |(amount, field): (&Amount, &&ShardsColumn)| match amount {
            Amount::Integer(n) => match i64::try_from(*n) {
                Ok(n) => Some(Term::Bound(n)),
                Err(_) if field.column_type == ColumnType::UnsignedBigInt => {
                    amount.literal().map(Term::Literal)
                }
                Err(_) => None,
            },
            other => other.literal().map(Term::Literal),
        };
        let terms = amounts.iter().zip(fields).map(term);
        Some(AddAmounts {
            fields,
            terms: terms.collect::<Option<_>>()?,
            table: PhantomData,
        })
    }
}

impl<T, DB> QueryFragment<DB> for AddAmounts<'_, T>
where
    DB: ShardedBackend,
    T: ShardedTable + QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let table = Names::of::<T>();
        sql!(out; for (field, term) in (self.fields.iter().zip(&self.terms), ", ") {
            id(&field.name), " = (", table.column(&field.name), " + ", term.sql(), ")"
        })
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
    use crate::query_builder::KeyIs;
    use crate::test_schema::{downloads, sql, videos};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::sqlite::Sqlite;

    #[test]
    fn totals_of_several_fields_are_one_text() {
        let fields: Vec<_> = videos::table::FIELDS.iter().collect();
        let filter = KeyIs(videos::id.eq(7));
        let read = ReadTotals::<videos::table, _> {
            fields: &fields,
            filter: &filter,
            table: PhantomData,
        };
        let total = |field: &str| {
            format!(
                r#"("videos"."{field}" + (SELECT COALESCE(SUM("videos_shards"."{field}"), 0) FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id"))"#
            )
        };
        let (views, likes) = (total("views"), total("likes"));
        assert_eq!(
            sql!(Pg, read),
            format!(
                r#"SELECT "videos"."id", CAST(CAST({views} AS bigint) AS TEXT) || ' ' || CAST(CAST({likes} AS integer) AS TEXT) FROM "videos" WHERE ("videos"."id" = $1)"#
            )
        );
        let (views, likes) = (views.replace('"', "`"), likes.replace('"', "`"));
        assert_eq!(
            sql!(Mysql, read),
            format!(
                "SELECT `videos`.`id`, CONCAT(CAST({views} AS CHAR), ' ', CAST({likes} AS CHAR)) FROM `videos` WHERE (`videos`.`id` = ?) LIMIT 18446744073709551615"
            )
        );
        let sqlite = sql!(Sqlite, read);
        assert!(
            sqlite.starts_with("SELECT `videos`.`id`, CAST((SELECT CASE WHEN total"),
            "{sqlite}"
        );
        assert!(
            sqlite.ends_with(")) AS TEXT) FROM `videos` WHERE (`videos`.`id` = ?)"),
            "{sqlite}"
        );
    }

    #[test]
    fn the_parents_own_keys_are_found() {
        let find = FindEach::<videos::table, _> {
            keys: vec![videos::id.eq(7), videos::id.eq(8)],
            table: PhantomData,
        };
        assert_eq!(
            sql!(Pg, find),
            r#"SELECT "videos"."id", '0' FROM "videos" WHERE ("videos"."id" = $1) UNION ALL SELECT "videos"."id", '1' FROM "videos" WHERE ("videos"."id" = $2)"#
        );
    }

    #[test]
    fn integers_are_bound_and_other_numbers_are_literals() {
        let fields: Vec<_> = videos::table::FIELDS.iter().collect();
        let amounts = [Amount::Integer(-3), Amount::Integer(4)];
        let add = AddAmounts::<videos::table>::new(&fields, &amounts).unwrap();
        assert_eq!(
            sql!(Pg, add),
            r#""views" = ("videos"."views" + $1), "likes" = ("videos"."likes" + $2)"#
        );
        let doubles: Vec<_> = downloads::table::FIELDS.iter().collect();
        let literal = |n| {
            let add = AddAmounts::<downloads::table>::new(&doubles, &[Amount::Double(n)]);
            add.map(|add| sql!(Mysql, add))
        };
        let expected = "`number` = (`downloads`.`number` + -1.25e-7)";
        assert_eq!(literal(-1.25e-7).as_deref(), Some(expected));
        assert_eq!(literal(f64::NAN), None);
        let beyond = [Amount::Integer(i128::MAX), Amount::Integer(0)];
        assert!(AddAmounts::<videos::table>::new(&fields, &beyond).is_none());
    }
}
