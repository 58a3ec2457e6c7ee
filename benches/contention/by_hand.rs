//! The pages that are read, and the SQL that a team would write by hand for their totals.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::sql_types::BigInt;

use crate::prepared::push_with_values;

/// The names of the pages that targets compare.
pub use diesel_sharded_benches::names::{ONE_TOTAL as ONE_ROW, PAGE};

/// The first key of a page.
pub const FIRST: i64 = 500;
pub const PAGE_SIZE: i64 = 50;

/// A page of totals.
pub struct Page {
    pub name: String,
    /// The query for the parents.
    parents: &'static str,
    /// The same condition on the shards, if it can be written on them.
    on_shards: Option<&'static str>,
    binds: &'static [i64],
    /// The order and limit by the total, if there is one.
    pub end: &'static str,
    /// How often a round reads the page.
    pub repeats: usize,
}

pub fn pages(parents: i64) -> [Page; 4] {
    [
        Page {
            name: ONE_ROW.into(),
            parents: "SELECT id, views FROM random_16 WHERE id = ?",
            on_shards: Some("WHERE id = ?"),
            binds: &[FIRST],
            end: "",
            repeats: 100,
        },
        Page {
            name: PAGE.into(),
            parents: "SELECT id, views FROM random_16 WHERE id BETWEEN ? AND ?",
            on_shards: Some("WHERE id BETWEEN ? AND ?"),
            binds: &[FIRST, FIRST + PAGE_SIZE - 1],
            end: "",
            repeats: 20,
        },
        Page {
            name: "page of 50, by order and limit".into(),
            parents: "SELECT id, views FROM random_16 WHERE id >= ? ORDER BY id LIMIT 50",
            on_shards: None,
            binds: &[FIRST],
            end: "",
            repeats: 20,
        },
        Page {
            name: format!("top 10 of {parents}"),
            parents: "SELECT id, views FROM random_16",
            on_shards: Some(""),
            binds: &[],
            end: " ORDER BY 2 DESC LIMIT 10",
            repeats: 1,
        },
    ]
}

impl Page {
    /// The statements for its totals, each with its name and binds; `sum` casts a sum to the column's type.
    pub fn forms(
        &self,
        sum: impl Fn(&str) -> String,
        lateral: bool,
    ) -> Vec<(&'static str, String, Vec<i64>)> {
        let Page { parents, end, .. } = self;
        let twice = [self.binds, self.binds].concat();
        let mut forms = vec![
            (
                "subquery",
                format!(
                    "SELECT v.id, {} FROM ({parents}) AS v{end}",
                    sum(
                        "v.views + COALESCE((SELECT SUM(s.views) FROM random_16_shards AS s WHERE s.id = v.id), 0)"
                    )
                ),
                self.binds.to_vec(),
            ),
            (
                "join, grouped",
                format!(
                    "SELECT v.id, {} FROM ({parents}) AS v LEFT JOIN random_16_shards AS s ON s.id = v.id GROUP BY v.id, v.views{end}",
                    sum("v.views + COALESCE(SUM(s.views), 0)")
                ),
                self.binds.to_vec(),
            ),
        ];
        if lateral {
            forms.push((
                "join, lateral",
                format!(
                    "SELECT v.id, {} FROM ({parents}) AS v LEFT JOIN LATERAL (SELECT SUM(views) AS n FROM random_16_shards WHERE id = v.id) AS s ON TRUE{end}",
                    sum("v.views + COALESCE(s.n, 0)")
                ),
                self.binds.to_vec(),
            ));
        }
        if let Some(on_shards) = self.on_shards {
            forms.push((
                "join of sums",
                format!(
                    "SELECT v.id, {} FROM ({parents}) AS v LEFT JOIN (SELECT id, SUM(views) AS n FROM random_16_shards {on_shards} GROUP BY id) AS s ON s.id = v.id{end}",
                    sum("v.views + COALESCE(s.n, 0)")
                ),
                twice.clone(),
            ));
            forms.push((
                "union, grouped",
                format!(
                    "SELECT id, {} FROM (SELECT id, views FROM random_16_shards {on_shards} UNION ALL {parents}) AS both_tables GROUP BY id{end}",
                    sum("SUM(views)")
                ),
                twice,
            ));
        }
        forms
    }
}

/// SQL that stays prepared, with `?` for the placeholder of any database.
///
/// All statements have the same query id, so each needs a connection of its own.
pub struct ByHand {
    pub sql: String,
    pub binds: Vec<i64>,
}

impl QueryId for ByHand {
    type QueryId = ByHand;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl Query for ByHand {
    type SqlType = (BigInt, BigInt);
}

impl<Conn> RunQueryDsl<Conn> for ByHand {}

impl<DB> QueryFragment<DB> for ByHand
where
    DB: diesel::backend::Backend + diesel::sql_types::HasSqlType<BigInt>,
    i64: diesel::serialize::ToSql<BigInt, DB>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_with_values(&self.sql, &self.binds, out)
    }
}
