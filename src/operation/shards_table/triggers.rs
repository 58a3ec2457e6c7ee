//! SQLite's stand-ins for a foreign key's actions.
//!
//! They work with and without enforced foreign keys. A row that `REPLACE` deletes fires no trigger of its own. So the row that
//! takes over its key, new or renamed, removes the shards that it finds there. A row that is replaced through another unique
//! column leaves shards that belong to no row. The next row with that key removes them.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment};
use diesel::sql_types::{Nullable, Text};

use crate::backend::{Dialect, ShardedBackend};
use crate::connection::{Link, LoadIo};
use crate::error::Error;
use crate::query_builder::{Names, literal, no_query_id, sql};

use super::quoted::{Integrity, Quoted, each, quoted_on};

/// The triggers, by the ends of their names.
pub(super) const ON_SQLITE: [&str; 3] = ["delete", "update", "insert"];

impl Quoted<'_> {
    pub(super) fn create_on_sqlite(&self, end: &str, schema: &str) -> String {
        // Both are those of the trigger's own database.
        let (parent, shards) = (&self.bare_parent, &self.bare_shards);
        let name = self.bare_beside(end);
        let key_is = |row: &str| {
            each(&self.key, " AND ", |_, c| {
                format!("{} = {row}.{}", c.name, c.name)
            })
        };
        let (old, new) = (key_is("OLD"), key_is("NEW"));
        let (on, body) = match end {
            "delete" => (
                "DELETE".to_owned(),
                format!("DELETE FROM {shards} WHERE {old};"),
            ),
            "insert" => (
                "INSERT".to_owned(),
                format!("DELETE FROM {shards} WHERE {new};"),
            ),
            _ => {
                let renamed = each(&self.key, ", ", |_, c| format!("{0} = NEW.{0}", c.name));
                let delete = format!("DELETE FROM {shards} WHERE {new} AND NOT ({old})");
                let body = format!("{delete}; UPDATE {shards} SET {renamed} WHERE {old};");
                (format!("UPDATE OF {}", self.key_names()), body)
            }
        };
        format!("CREATE TRIGGER {schema}{name} AFTER {on} ON {parent} BEGIN {body} END")
    }
}

/// Checks that the triggers beside the shards table of `T` exist: SQLite's documented way to rebuild a table drops them with the
/// old one.
///
/// ```sql
/// SELECT name FROM `main`.sqlite_master WHERE name IN ('videos_shards', 'videos_shards_delete', …)
/// ```
///
/// # Errors
/// [`MissingTriggers`](Error::MissingTriggers).
pub(crate) async fn check_triggers<DB, M, Conn>(
    names: Names<'_, DB>,
    link: &mut Link<'_, M, Conn>,
) -> QueryResult<()>
where
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    let backend = link.backend();
    let quoted = Quoted::new(names, Integrity::default(), &backend)?;
    let own = names.shards_table.schema();
    let is_there = |found: &[String]| found.iter().any(|name| name == names.shards_table.name());
    let mut schema = own.map(str::to_owned);
    let mut found = texts::<DB, _, _>(link, quoted.select_triggers(own.unwrap_or("main"))).await?;
    if own.is_none() && !is_there(&found) {
        // Not in the main database, but in the temporary one or in one that is attached.
        let schemas = "SELECT name FROM pragma_database_list WHERE name <> 'main' ORDER BY seq";
        for name in texts::<DB, _, _>(link, schemas.to_owned()).await? {
            found = texts::<DB, _, _>(link, quoted.select_triggers(&name)).await?;
            schema = Some(name);
            if is_there(&found) {
                break;
            }
        }
    }
    let missing = match is_there(&found) {
        true => quoted.missing_triggers(schema.as_deref(), &found),
        false => None, // no shards table either, as the next statement tells
    };
    match missing {
        Some(sql) => {
            let table = names.shards_table.to_string();
            Err(Error::MissingTriggers { table, sql }.into())
        }
        None => Ok(()),
    }
}

impl Quoted<'_> {
    /// The shards table and its triggers, as far as they are in a database of the connection.
    fn select_triggers(&self, schema: &str) -> String {
        let names = ON_SQLITE.map(|end| self.name_beside(end));
        let names = names.iter().map(String::as_str);
        let names = names.chain([self.shards_table.name()]);
        let names: Vec<_> = names.map(|name| literal(Dialect::Sqlite, name)).collect();
        format!(
            "SELECT name FROM {}.sqlite_master WHERE name IN ({})",
            schema_name(schema),
            names.join(", ")
        )
    }

    /// The statements that create the triggers whose names are not among those that were found.
    pub(crate) fn missing_triggers(
        &self,
        schema: Option<&str>,
        found: &[String],
    ) -> Option<String> {
        let schema = schema
            .map(|schema| schema_name(schema) + ".")
            .unwrap_or_else(|| self.schema.clone());
        let is_missing = |end: &&str| !found.contains(&self.name_beside(end));
        let missing = ON_SQLITE.into_iter().filter(is_missing);
        let create = missing.map(|end| self.create_on_sqlite(end, &schema) + ";");
        let create: Vec<_> = create.collect();
        (!create.is_empty()).then(|| create.join("\n"))
    }
}

fn schema_name(name: &str) -> String {
    quoted_on(Dialect::Sqlite, name)
}

/// Reads the rows of a query of one column of texts.
pub(crate) async fn texts<DB, M, Conn>(
    link: &mut Link<'_, M, Conn>,
    sql: String,
) -> QueryResult<Vec<String>>
where
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    let texts = link.load::<Option<String>, _>(Texts(sql));
    Ok(texts.await?.into_iter().flatten().collect())
}

/// A query of one column of texts.
struct Texts(String);

impl<DB: ShardedBackend> QueryFragment<DB> for Texts {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared(); // a text of its own for each table
        sql!(out; self.0.as_str())
    }
}

impl Query for Texts {
    type SqlType = Nullable<Text>;
}

no_query_id!([] Texts);
