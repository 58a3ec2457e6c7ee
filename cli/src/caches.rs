//! The counter caches of a sharded table, by the triggers that are there.

use diesel::prelude::*;
use diesel_sharded::described::{DescribedTable, found_caches};
use serde::Serialize;

use crate::connection::AnyConnection;
use crate::integrity::names;
use crate::statement::Statement;
use crate::within::within;

#[derive(Debug, Serialize)]
pub struct Cache {
    /// Those of its triggers begin with it.
    pub name: String,
    /// The triggers that are not there, or are off.
    pub missing_triggers: Vec<String>,
}

impl Cache {
    /// Those of all fields, or of one.
    pub fn read(
        sharded: &DescribedTable,
        field: Option<&str>,
        schema: Option<&str>,
        conn: &mut AnyConnection,
    ) -> QueryResult<Vec<Self>> {
        let triggers = sharded.cache_triggers_sql(field, &conn.backend())?;
        let triggers = Statement::default().sql(&triggers);
        let triggers = within(schema, conn, |conn| names(triggers, conn))?;
        let found = found_caches(conn.dialect(), &triggers).into_iter();
        let cache = found.map(|cache| Cache {
            name: cache.name,
            missing_triggers: cache.missing,
        });
        Ok(cache.collect())
    }

    /// What is wrong with it, and what to do.
    pub fn note(&self) -> Option<(String, &'static str)> {
        if self.missing_triggers.is_empty() {
            return None;
        }
        let says = format!(
            "the counter cache {} lacks {}: some changes of its rows are not counted",
            self.name,
            self.missing_triggers.join(", ")
        );
        Some((
            says,
            "Drop the rest of it and create it again, by its migration's down.sql and up.sql, and run `backfill`",
        ))
    }
}
