//! SQLite's stand-ins for a foreign key's actions.
//!
//! They work with and without enforced foreign keys. A row that `REPLACE` deletes fires no trigger of its own. So the row that
//! takes over its key, new or renamed, removes the shards that it finds there. A row that is replaced through another unique
//! column leaves shards that belong to no row. The next row with that key removes them.

use diesel::connection::LoadConnection;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment};
use diesel::sql_types::{Nullable, Text};

use crate::backend::{BackendOf, Dialect, ShardedBackend};
use crate::connection::{Link, LoadIo, now};
use crate::error::Error;
use crate::query_builder::{Names, literal, no_query_id};

use super::quoted::{Quoted, each, quoted_on};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trigger {
    Delete,
    Update,
    Insert,
}

impl Trigger {
    pub(super) const ALL: [Self; 3] = [Trigger::Delete, Trigger::Update, Trigger::Insert];

    fn action(self) -> &'static str {
        match self {
            Trigger::Delete => "delete",
            Trigger::Update => "update",
            Trigger::Insert => "insert",
        }
    }

    /// Not quoted.
    fn name(self, shards_table: &str) -> String {
        format!("{shards_table}_{}", self.action())
    }
}

impl Quoted<'_> {
    fn trigger_name(&self, trigger: Trigger) -> String {
        schema_name(&trigger.name(self.shards_table.name()))
    }

    pub(super) fn create_trigger(&self, trigger: Trigger, schema: &str) -> String {
        // Both are those of the trigger's own database.
        let (parent, shards) = (&self.bare_parent, &self.bare_shards);
        let name = self.trigger_name(trigger);
        let key_is = |row: &str| {
            each(&self.key, " AND ", |_, c| {
                format!("{} = {row}.{}", c.name, c.name)
            })
        };
        let (on, body) = match trigger {
            Trigger::Delete => (
                "DELETE".to_owned(),
                format!("DELETE FROM {shards} WHERE {};", key_is("OLD")),
            ),
            Trigger::Insert => (
                "INSERT".to_owned(),
                format!("DELETE FROM {shards} WHERE {};", key_is("NEW")),
            ),
            Trigger::Update => {
                let renamed = each(&self.key, ", ", |_, c| {
                    format!("{} = NEW.{}", c.name, c.name)
                });
                let body = format!(
                    "DELETE FROM {shards} WHERE {} AND NOT ({}); UPDATE {shards} SET {renamed} WHERE {};",
                    key_is("NEW"),
                    key_is("OLD"),
                    key_is("OLD")
                );
                (format!("UPDATE OF {}", self.key_names()), body)
            }
        };
        format!("CREATE TRIGGER {schema}{name} AFTER {on} ON {parent} BEGIN {body} END")
    }

    pub(super) fn drop_trigger(&self, trigger: Trigger) -> String {
        let name = self.trigger_name(trigger);
        format!("DROP TRIGGER IF EXISTS {}{name}", self.schema) // rebuilding the parent's table drops them
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
    let quoted = Quoted::new(names, &backend)?;
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
        let triggers = Trigger::ALL.map(|trigger| trigger.name(self.shards_table.name()));
        let names = triggers
            .iter()
            .map(String::as_str)
            .chain([self.shards_table.name()]);
        let names: Vec<_> = names.map(|name| literal(Dialect::Sqlite, name)).collect();
        format!(
            "SELECT name FROM {}.sqlite_master WHERE name IN ({})",
            schema_name(schema),
            names.join(", ")
        )
    }

    /// The statements that create the triggers whose names are not among those that were found.
    pub(super) fn missing_triggers(
        &self,
        schema: Option<&str>,
        found: &[String],
    ) -> Option<String> {
        let schema = schema
            .map(|schema| schema_name(schema) + ".")
            .unwrap_or_else(|| self.schema.clone());
        let missing = Trigger::ALL
            .into_iter()
            .filter(|trigger| !found.contains(&trigger.name(self.shards_table.name())));
        let create: Vec<_> = missing
            .map(|trigger| self.create_trigger(trigger, &schema) + ";")
            .collect();
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

/// The same on a blocking connection.
pub(super) fn texts_of<Conn>(conn: &mut Conn, sql: String) -> QueryResult<Vec<String>>
where
    Conn: LoadConnection,
    Conn::Backend: BackendOf<Conn>,
{
    now(texts::<Conn::Backend, _, _>(&mut Link::blocking(conn), sql))
}

/// A query of one column of texts.
struct Texts(String);

impl<DB: ShardedBackend> QueryFragment<DB> for Texts {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared(); // a text of its own for each table
        out.push_sql(&self.0);
        Ok(())
    }
}

impl Query for Texts {
    type SqlType = Nullable<Text>;
}

no_query_id!([] Texts);
