//! A view of a sharded table with totals.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};

use crate::backend::ShardedBackend;
use crate::query_builder::{Names, push_total_of};

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
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("CREATE VIEW ");
        push_view(self.names.shards_table.schema(), self.view, out.reborrow())?;
        for (i, column) in self.columns.iter().enumerate() {
            out.push_sql(if i == 0 { " (" } else { ", " });
            out.push_identifier(column)?;
        }
        out.push_sql(") AS\nSELECT ");
        for (i, column) in self.columns.iter().enumerate() {
            out.push_sql(if i == 0 { "" } else { ", " });
            let mut fields = self.names.fields.iter();
            match fields.find(|field| field.name == *column) {
                Some(field) => push_total_of(self.names, field, None, out.reborrow())?,
                None => self.names.push_column(column, out.reborrow())?,
            }
        }
        out.push_sql("\nFROM ");
        self.names.parent.walk_ast(out)
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
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("DROP VIEW ");
        push_view(self.schema, self.view, out)
    }
}

/// `"analytics"."videos_totals"`
fn push_view<DB: ShardedBackend>(
    schema: Option<&str>,
    view: &str,
    mut out: AstPass<'_, '_, DB>,
) -> QueryResult<()> {
    if let Some(schema) = schema {
        out.push_identifier(schema)?;
        out.push_sql(".");
    }
    out.push_identifier(view)
}
