//! The name of a table in SQL.

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};

use crate::error::Error;
use crate::model::TableName;

impl TableName<'_> {
    /// Refuses the name of another table's shards.
    pub(crate) fn check(self) -> QueryResult<()> {
        match self.is_anothers() {
            true => {
                let shards_table = self.as_str().to_owned();
                Err(Error::NamedAfterAnImport { shards_table }.into())
            }
            false => Ok(()),
        }
    }

    /// `"analytics"."videos_shards"`
    pub(crate) fn push<DB: Backend>(self, mut out: AstPass<'_, '_, DB>) -> QueryResult<()> {
        self.check()?;
        if let Some(schema) = self.schema() {
            out.push_identifier(schema)?;
            out.push_sql(".");
        }
        out.push_identifier(self.name())
    }
}

impl<DB: Backend> QueryFragment<DB> for TableName<'_> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.push(out)
    }
}
