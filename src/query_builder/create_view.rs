//! A view of a sharded table with totals.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};

use crate::backend::ShardedBackend;
use crate::query_builder::{Names, Sql, id, sql, walk};

/// Creates a view of these columns of the parent, with totals in place of bases.
///
/// ```sql
/// CREATE VIEW "videos_totals" ("id", "title", "views") AS
/// SELECT "videos"."id", "videos"."title", total FROM "videos"
/// ```
pub(crate) struct CreateView<'a, DB: ShardedBackend> {
    pub(crate) names: Names<'a, DB>,
    pub(crate) view: &'a str,
    pub(crate) columns: &'a [&'a str],
}

impl<DB: ShardedBackend> QueryFragment<DB> for CreateView<'_, DB> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let field = |name: &str| self.names.fields.iter().find(|field| field.name == name);
        sql!(out;
            "CREATE VIEW ", view_name(self.names.shards_table.schema(), self.view),
            " (", for column in (self.columns, ", ") { id(column) }, ") AS\nSELECT ",
            for column in (self.columns, ", ") {
                if let Some(field) = field(column) { self.names.total(field, None) } else { self.names.column(column) }
            },
            "\nFROM ", walk(self.names.parent))
    }
}

/// Removes a view.
///
/// ```sql
/// DROP VIEW "videos_totals"
/// ```
pub(crate) struct DropView<'a> {
    pub(crate) schema: Option<&'a str>,
    pub(crate) view: &'a str,
}

impl<DB: ShardedBackend> QueryFragment<DB> for DropView<'_> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        sql!(out; "DROP VIEW ", view_name(self.schema, self.view))
    }
}

/// `"analytics"."videos_totals"`
fn view_name<'b, DB: ShardedBackend>(schema: Option<&str>, view: &str) -> impl Sql<'b, DB> {
    sql! { if let Some(schema) = schema { id(schema), "." }, id(view) }
}
