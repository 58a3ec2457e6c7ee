//! The SQL of named counters.

use std::marker::PhantomData;

use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::Error as DieselError;
use diesel::sql_types::{BigInt, Binary};

use super::prefixed::{Prefixed, push_name};
use super::table::counters;
use crate::backend::ShardedBackend;
use crate::engine::explain_missing;
use crate::model::ShardedTable;
use crate::query_builder::{SelectTop, no_query_id, push_bind, push_column, push_total};

/// Inserts a counter at 0.
///
/// ```sql
/// INSERT INTO "diesel_sharded_counters" ("name", "value") VALUES ($1, 0)
/// ```
#[derive(QueryId)]
pub(crate) struct InsertCounter {
    pub(crate) name: Vec<u8>,
}

impl<DB> QueryFragment<DB> for InsertCounter
where
    DB: ShardedBackend,
    counters::table: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("INSERT INTO ");
        counters::table.walk_ast(out.reborrow())?;
        out.push_sql(" (");
        out.push_identifier(counters::name::NAME)?;
        out.push_sql(", ");
        out.push_identifier(counters::value::NAME)?;
        out.push_sql(") VALUES (");
        push_bind::<Binary, [u8], DB>(&self.name, out.reborrow())?;
        out.push_sql(", 0)");
        Ok(())
    }
}

/// The tables come from one migration: whichever is missing, it has not run.
pub(crate) fn explain_counters<DB: ShardedBackend>(
    backend: &DB,
    error: DieselError,
) -> DieselError {
    let error = explain_missing(backend, "diesel_sharded_counters", error);
    explain_missing(backend, counters::table::SHARDS_TABLE.as_str(), error)
}

/// Reads names with totals, or with bases.
#[doc(hidden)]
#[derive(Debug)]
pub struct SelectCounters {
    pub(super) rows: SelectedRows,
    pub(super) exact: bool,
}

#[derive(Debug)]
pub(super) enum SelectedRows {
    Named(Vec<Vec<u8>>),
    Page {
        names: Prefixed,
        after: Option<Vec<u8>>,
        limit: i64,
    },
    Top(SelectTop<counters::value, Prefixed, NameAndTotal>),
}

impl SelectedRows {
    /// The `limit` counters with the greatest totals behind the first `offset`.
    pub(super) fn top(prefix: &str, limit: u32, offset: u32) -> Self {
        let (limit, offset) = (limit.into(), offset.into());
        SelectedRows::Top(SelectTop {
            filter: Prefixed::by(prefix),
            selection: NameAndTotal,
            limit,
            offset,
            candidates: limit + offset,
            ascending: false,
            field: PhantomData,
        })
    }
}

/// `counters.name, total`
#[derive(Debug)]
pub(super) struct NameAndTotal;

impl<DB> QueryFragment<DB> for NameAndTotal
where
    DB: ShardedBackend,
    counters::table: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_name_and(true, out)
    }
}

impl<DB> QueryFragment<DB> for SelectCounters
where
    DB: ShardedBackend,
    counters::table: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared(); // one text for each number of names
        if let SelectedRows::Top(top) = &self.rows {
            return top.walk_ast(out);
        }
        out.push_sql("SELECT ");
        push_name_and(self.exact, out.reborrow())?;
        out.push_sql(" FROM ");
        counters::table.walk_ast(out.reborrow())?;
        match &self.rows {
            SelectedRows::Top(_) => {} // a statement by itself
            SelectedRows::Named(names) => {
                out.push_sql(" WHERE ");
                push_name(out.reborrow())?;
                for (i, name) in names.iter().enumerate() {
                    out.push_sql(if i == 0 { " IN (" } else { ", " });
                    push_bind::<Binary, [u8], DB>(name, out.reborrow())?;
                }
                let all_rows = out.backend().dialect().all_rows();
                out.push_sql(")");
                out.push_sql(all_rows);
            }
            SelectedRows::Page {
                names,
                after,
                limit,
            } => {
                names.walk_ast(out.reborrow())?;
                if let Some(after) = after {
                    out.push_sql(" AND ");
                    push_name(out.reborrow())?;
                    out.push_sql(" > ");
                    push_bind::<Binary, [u8], DB>(after, out.reborrow())?;
                }
                out.push_sql(" ORDER BY ");
                push_name(out.reborrow())?;
                out.push_sql(" LIMIT ");
                push_bind::<BigInt, i64, DB>(limit, out.reborrow())?;
            }
        }
        Ok(())
    }
}

impl Query for SelectCounters {
    type SqlType = (
        <counters::name as Expression>::SqlType,
        <counters::value as Expression>::SqlType,
    );
}

no_query_id!([] SelectCounters);

/// Removes a counter.
#[derive(Debug, QueryId)]
pub(crate) struct DeleteCounter {
    pub(crate) name: Vec<u8>,
}

impl<DB> QueryFragment<DB> for DeleteCounter
where
    DB: ShardedBackend,
    counters::table: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("DELETE FROM ");
        counters::table.walk_ast(out.reborrow())?;
        out.push_sql(" WHERE ");
        push_name(out.reborrow())?;
        out.push_sql(" = ");
        push_bind::<Binary, [u8], DB>(&self.name, out)
    }
}

/// `counters.name, total`, or `counters.name, counters.value`
fn push_name_and<'b, DB>(exact: bool, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()>
where
    DB: ShardedBackend,
    counters::table: QueryFragment<DB>,
{
    push_name(out.reborrow())?;
    out.push_sql(", ");
    match counters::table::FIELDS.first() {
        Some(field) if exact => push_total::<counters::table, DB>(field, None, out),
        _ => push_column::<counters::table, DB>(counters::value::NAME, out),
    }
}

#[cfg(all(test, feature = "postgres_backend", feature = "mysql_backend"))]
mod tests {
    use super::*;

    #[test]
    fn sql_of_totals_by_name_and_by_page() {
        use crate::test_schema::sql;
        use diesel::mysql::Mysql;
        use diesel::pg::Pg;

        let named = SelectCounters {
            rows: SelectedRows::Named(vec![b"a".into(), b"b".into()]),
            exact: true,
        };
        assert_eq!(
            sql!(Pg, named),
            r#"SELECT "diesel_sharded_counters"."name", CAST(("diesel_sharded_counters"."value" + (SELECT COALESCE(SUM("diesel_sharded_counter_shards"."value"), 0) FROM "diesel_sharded_counter_shards" WHERE "diesel_sharded_counter_shards"."name" = "diesel_sharded_counters"."name")) AS bigint) FROM "diesel_sharded_counters" WHERE "diesel_sharded_counters"."name" IN ($1, $2)"#
        );
        let page = SelectCounters {
            rows: SelectedRows::Page {
                names: Prefixed::by("page:"),
                after: Some(b"page:/".into()),
                limit: 10,
            },
            exact: false,
        };
        assert_eq!(
            sql!(Mysql, page),
            "SELECT `diesel_sharded_counters`.`name`, `diesel_sharded_counters`.`value` FROM `diesel_sharded_counters` WHERE `diesel_sharded_counters`.`name` >= ? AND `diesel_sharded_counters`.`name` < ? AND `diesel_sharded_counters`.`name` > ? ORDER BY `diesel_sharded_counters`.`name` LIMIT ?"
        );
    }

    #[test]
    fn sql_of_the_greatest_by_prefix() {
        use crate::test_schema::sql;
        use diesel::pg::Pg;

        let top = |prefix| SelectCounters {
            rows: SelectedRows::top(prefix, 10, 5),
            exact: true,
        };
        let filtered = sql!(Pg, top("page:"));
        let filter = r#"FROM "diesel_sharded_counters" WHERE "diesel_sharded_counters"."name" >= $1 AND "diesel_sharded_counters"."name" < $2"#;
        assert!(filtered.contains(filter), "{filtered}");
        let all = sql!(Pg, top(""));
        assert!(
            all.contains(r#"."name" >= $1) AS "diesel_sharded_counters" WHERE NOT EXISTS"#),
            "{all}"
        );
    }
}
