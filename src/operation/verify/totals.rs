//! The statements that read totals, and that add to bases what they lack.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment};
use diesel::sql_types::BigInt;

use crate::backend::ShardedBackend;
use crate::engine::KeyAndText;
use crate::model::{Amount, ColumnType, ShardedTable, ShardsColumn};
use crate::query_builder::{Names, no_query_id, push_bind, push_column, push_total};

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
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let dialect = out.backend().dialect();
        let [joined, between, end] = dialect.joined_texts();
        out.push_sql("SELECT ");
        Names::of::<T>().push_key(out.reborrow())?;
        out.push_sql(", ");
        out.push_sql(joined);
        for (i, field) in self.fields.iter().enumerate() {
            let (before, behind) = dialect.number_as_text(field.column_type);
            out.push_sql(if i == 0 { "" } else { between });
            out.push_sql(before);
            push_total::<T, DB>(field, None, out.reborrow())?;
            out.push_sql(behind);
        }
        out.push_sql(end);
        out.push_sql(" FROM ");
        T::TABLE.walk_ast(out.reborrow())?;
        self.filter.walk_ast(out.reborrow())?;
        out.push_sql(dialect.all_rows());
        Ok(())
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
        for (i, key_is) in self.keys.iter().enumerate() {
            out.push_sql(if i == 0 {
                "SELECT "
            } else {
                " UNION ALL SELECT "
            });
            Names::of::<T>().push_key(out.reborrow())?;
            out.push_sql(&format!(", '{i}' FROM "));
            T::TABLE.walk_ast(out.reborrow())?;
            out.push_sql(" WHERE ");
            key_is.walk_ast(out.reborrow())?;
        }
        Ok(())
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
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        for (i, (field, term)) in self.fields.iter().zip(&self.terms).enumerate() {
            out.push_sql(if i == 0 { "" } else { ", " });
            out.push_identifier(&field.name)?;
            out.push_sql(" = (");
            push_column::<T, DB>(&field.name, out.reborrow())?;
            out.push_sql(" + ");
            match term {
                Term::Bound(n) => push_bind::<BigInt, i64, DB>(n, out.reborrow())?,
                Term::Literal(digits) => out.push_sql(digits),
            }
            out.push_sql(")");
        }
        Ok(())
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
