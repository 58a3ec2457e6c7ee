//! The SQL of named counters.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::QueryId;
use diesel::result::Error as DieselError;
use diesel::sql_types::{BigInt, Binary};

use super::counters;
use crate::backend::{Dialect, ShardedBackend};
use crate::connection::{Link, LoadIo, read};
use crate::engine::explain_missing;
use crate::model::ShardedTable;
use crate::query_builder::{Names, SelectTop, Sql, bind, fragments, id, on, sql, walk};

/// Inserts a counter at 0.
///
/// ```sql
/// INSERT INTO "diesel_sharded_counters" ("name", "value") VALUES ($1, 0)
/// ```
#[derive(Debug, QueryId)]
pub struct InsertCounter {
    name: Vec<u8>,
}

impl InsertCounter {
    pub(crate) fn named(name: &[u8]) -> Self {
        InsertCounter {
            name: name.to_vec(),
        }
    }
}

fragments! {
    [] InsertCounter;
    |self, out| sql!(out;
        "INSERT INTO ", walk(counters::table::TABLE),
        " (", id(counters::name::NAME), ", ", id(counters::value::NAME), ") VALUES (", bind(Binary, &self.name[..]), ", 0)");
}

/// One migration creates both tables: if either is missing, it has not run.
pub(crate) fn explain_counters<DB: ShardedBackend>(
    backend: &DB,
    error: DieselError,
) -> DieselError {
    let dialect = backend.dialect();
    let error = explain_missing(dialect, "diesel_sharded_counters", error);
    explain_missing(dialect, counters::table::SHARDS_TABLE.as_str(), error)
}

/// Reads names with totals, or with bases.
pub(super) async fn select<M: LoadIo>(
    rows: SelectedRows,
    exact: bool,
    link: &mut Link<'_, M>,
) -> QueryResult<Vec<(Vec<u8>, i64)>> {
    let found = read!(link, link.load(SelectCounters { rows, exact }));
    found.map_err(|error| explain_counters(&link.backend(), error))
}

struct SelectCounters {
    rows: SelectedRows,
    exact: bool,
}

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
    /// The `limit` counters with the greatest totals, after the first `offset`.
    pub(super) fn top(prefix: &str, limit: u32, offset: u32) -> Self {
        let (limit, offset) = (limit.into(), offset.into());
        SelectedRows::Top(SelectTop {
            filter: Prefixed::by(prefix),
            selection: NameAndTotal,
            after: (),
            limit,
            offset,
            candidates: limit + offset,
            ascending: false,
            field: PhantomData,
        })
    }
}

/// `counters.name, total`
pub(super) struct NameAndTotal;

fragments! {
    [] NameAndTotal;
    |self, out| name_and(true).push(out);

    [] SelectCounters: Query<(Binary, BigInt)>, no query id [];
    |self, mut out| {
        out.unsafe_to_cache_prepared(); // one text for each number of names
        if let SelectedRows::Top(top) = &self.rows {
            return top.walk_ast(out);
        }
        sql!(out.reborrow(); "SELECT ", name_and(self.exact), " FROM ", walk(counters::table::TABLE))?;
        match &self.rows {
            SelectedRows::Top(_) => Ok(()), // a statement by itself
            SelectedRows::Named(names) => sql!(out;
                " WHERE ", name(), " IN (", for name in (names, ", ") { bind(Binary, &name[..]) }, ")",
                on(Dialect::all_rows)),
            SelectedRows::Page {
                names,
                after,
                limit,
            } => sql!(out;
                walk(names), if let Some(after) = after { " AND ", name(), " > ", bind(Binary, &after[..]) },
                " ORDER BY ", name(), " LIMIT ", bind(BigInt, limit)),
        }
    };
}

/// Removes a counter.
#[derive(QueryId)]
pub(super) struct DeleteCounter {
    pub(super) name: Vec<u8>,
}

fragments! {
    [] DeleteCounter;
    |self, out| sql!(out; "DELETE FROM ", walk(counters::table::TABLE), " WHERE ", name(), " = ", bind(Binary, &self.name[..]));
}

/// A `WHERE` clause for the names that begin with a prefix.
///
/// ```sql
/// WHERE "diesel_sharded_counters"."name" >= $1 AND "diesel_sharded_counters"."name" < $2
/// ```
pub(super) struct Prefixed {
    prefix: Vec<u8>,
    /// The first name after all of them; none for an empty prefix.
    end: Option<Vec<u8>>,
}

impl Prefixed {
    pub(super) fn by(prefix: &str) -> Self {
        Prefixed {
            prefix: prefix.as_bytes().to_vec(),
            end: end_of_prefix(prefix),
        }
    }
}

fragments! {
    // The text differs if there is no end.
    [] Prefixed, no query id [];
    |self, out| sql!(out;
        " WHERE ", name(), " >= ", bind(Binary, &self.prefix[..]),
        if let Some(end) = &self.end { " AND ", name(), " < ", bind(Binary, &end[..]) });
}

/// `counters.name`
fn name<'b, DB: ShardedBackend>() -> impl Sql<'b, DB> {
    Names::of::<counters::table>().column(counters::name::NAME)
}

/// `counters.name, total`, or `counters.name, counters.value`
fn name_and<'b, DB: ShardedBackend>(exact: bool) -> impl Sql<'b, DB> {
    let table = Names::of::<counters::table>();
    let summed = counters::table::FIELDS.first().filter(|_| exact);
    sql! {
        name(), ", ",
        if let Some(field) = summed { table.total(field, None) } else { table.column(counters::value::NAME) }
    }
}

/// The first name after all those that begin with `prefix`; none for an empty one. No byte of UTF-8 is 255, so adding 1 fits.
fn end_of_prefix(prefix: &str) -> Option<Vec<u8>> {
    let mut end = prefix.as_bytes().to_vec();
    *end.last_mut()? += 1;
    Some(end)
}

#[cfg(all(test, feature = "postgres_backend", feature = "mysql_backend"))]
mod tests {
    use super::*;

    #[test]
    fn sql_of_totals_by_name_and_by_page() {
        use crate::test_schema::assert_sql;
        use diesel::mysql::Mysql;
        use diesel::pg::Pg;

        let named = SelectCounters {
            rows: SelectedRows::Named(vec![b"a".into(), b"b".into()]),
            exact: true,
        };
        assert_sql!(named;
            Pg => r#"SELECT "diesel_sharded_counters"."name", CAST(("diesel_sharded_counters"."value" + (SELECT COALESCE(SUM("diesel_sharded_counter_shards"."value"), 0) FROM "diesel_sharded_counter_shards" WHERE "diesel_sharded_counter_shards"."name" = "diesel_sharded_counters"."name")) AS bigint) FROM "diesel_sharded_counters" WHERE "diesel_sharded_counters"."name" IN ($1, $2)"#,
        );
        let page = SelectCounters {
            rows: SelectedRows::Page {
                names: Prefixed::by("page:"),
                after: Some(b"page:/".into()),
                limit: 10,
            },
            exact: false,
        };
        assert_sql!(page;
            Mysql => "SELECT `diesel_sharded_counters`.`name`, `diesel_sharded_counters`.`value` FROM `diesel_sharded_counters` WHERE `diesel_sharded_counters`.`name` >= ? AND `diesel_sharded_counters`.`name` < ? AND `diesel_sharded_counters`.`name` > ? ORDER BY `diesel_sharded_counters`.`name` LIMIT ?",
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

    #[test]
    fn a_prefix_ends_where_the_next_begins() {
        assert_eq!(end_of_prefix("page:"), Some(b"page;".to_vec()));
        assert_eq!(end_of_prefix(""), None);
        let end = end_of_prefix("é").unwrap();
        assert!("é€".as_bytes() < end.as_slice() && "ê".as_bytes() >= end.as_slice());
    }
}
