//! Triggers that keep shards with their parents: in place of a foreign key, and on SQLite in either case.
//!
//! PostgreSQL and MySQL: they do what the foreign key does. A shard is created only for a row that is there and stays until the creating
//! transaction ends, and it goes and is renamed with its row. On MySQL the key of a row that has shards cannot be changed, and a new row
//! removes the shards that it finds under its key. A node of a cluster may have created them while another one deleted the row before,
//! and no certification compares the two.
//!
//! SQLite: they work with and without enforced foreign keys. The foreign key has no actions: by a cascade, dropping the parent's table in
//! a rebuild would delete all shards. A row that `REPLACE` deletes fires no trigger of its own. So the row that takes over its key, new or
//! renamed, removes the shards that it finds there. A row that is replaced through another unique column leaves shards that belong to no
//! row, or fails at the foreign key. The next row with that key removes them.

use diesel::prelude::*;

use crate::backend::{Integrity, Quoted, ShardedBackend, Trigger, as_one, literal, quoted_on};
use crate::connection::{Link, LoadIo};
use crate::error::Error;
use crate::query_builder::Names;

use super::texts;

/// Triggers that are not there.
#[derive(Debug, Clone)]
pub struct MissingTriggers {
    /// Their names; none on SQLite.
    pub names: Vec<String>,
    /// The statements that create them.
    pub sql: String,
    /// Whether none of the triggers is there, as in a shards table that was created without them.
    pub all: bool,
}

impl Quoted<'_> {
    /// Whether this table is to have triggers.
    fn has_triggers(&self) -> bool {
        self.integrity == Integrity::Triggers || self.dialect.has_triggers()
    }

    /// The statements that create the triggers, if the table is to have some; for PostgreSQL inside a block.
    pub(crate) fn create_triggers(&self) -> Vec<String> {
        if !self.has_triggers() {
            return vec![];
        }
        let triggers = self.dialect.triggers_of_shards(self).into_iter();
        let create = triggers.map(|trigger| self.create_trigger(&self.schema, &trigger));
        let function = self.dialect.function_of_shards(self).into_iter();
        function.chain(create).collect()
    }

    fn create_trigger(&self, schema: &str, (end, rest): &Trigger) -> String {
        let schema = match self.dialect.triggers_call_functions() {
            true => "",
            false => schema,
        };
        format!("CREATE TRIGGER {schema}{} {rest}", self.bare_beside(end))
    }

    /// The statements that drop those that do not go with the shards table.
    pub(crate) fn drop_triggers(&self) -> Vec<String> {
        if !self.has_triggers() {
            return vec![];
        }
        if self.dialect.triggers_call_functions() {
            let function = self.beside("keep"); // its triggers go with it
            return vec![format!("DROP FUNCTION IF EXISTS {function}() CASCADE")];
        }
        let triggers = self.dialect.triggers_of_shards(self).into_iter();
        let on_parent = triggers.filter(|(end, _)| *end != "create");
        let drop = on_parent.map(|(end, _)| format!("DROP TRIGGER IF EXISTS {}", self.beside(end)));
        drop.collect()
    }

    /// Finds the triggers of a table that was created with them, where this value has none: one that is left would fail each write of the
    /// parent. MySQL drops none without a privilege, so that they are dropped only where they are there.
    pub(super) async fn find_triggers<M: LoadIo>(
        &mut self,
        link: &mut Link<'_, M>,
    ) -> QueryResult<()> {
        if self.has_triggers() {
            return Ok(());
        }
        let text = |text: &str| literal(self.dialect, text);
        let schema = self.shards_table.schema();
        let schema = schema.map_or("DATABASE()".to_owned(), text);
        let trigger = text(&self.name_beside("delete"));
        if let Some(sql) = self.dialect.asks_for_trigger(&schema, &trigger) {
            if !texts(link, sql).await?.is_empty() {
                self.integrity = Integrity::Triggers;
            }
        }
        Ok(())
    }

    /// The triggers that keep shards with their rows, in place of a foreign key or on SQLite beside it, and are not among the names that
    /// were `found` on the table and its shards table. SQLite's are to be in a schema, if it is given.
    pub fn missing_triggers(
        &self,
        schema: Option<&str>,
        found: &[String],
    ) -> Option<MissingTriggers> {
        let mut triggers = self.dialect.triggers_of_shards(self);
        let number = triggers.len();
        triggers.retain(|(end, _)| !found.contains(&self.name_beside(end)));
        if triggers.is_empty() {
            return None;
        }
        let all = triggers.len() == number;
        let schema = schema.map(|schema| quoted_on(self.dialect, schema) + ".");
        let schema = schema.as_deref().unwrap_or(&self.schema);
        let create = triggers
            .iter()
            .map(|trigger| self.create_trigger(schema, trigger));
        let mut statements: Vec<_> = create.collect();
        if all && self.dialect.triggers_call_functions() {
            // The function may be left over.
            let again = [self.drop_triggers(), self.create_triggers()].concat();
            statements = vec![as_one("", &format!("{};\n", again.join(";\n")))];
        }
        let sql = statements.join(";\n") + ";";
        let is_named = !self.dialect.has_triggers();
        let names = triggers.iter().filter(|_| is_named);
        Some(MissingTriggers {
            names: names.map(|(end, _)| self.name_beside(end)).collect(),
            sql,
            all: all && is_named,
        })
    }

    /// SQLite's shards table and its triggers, as far as they are in a database of the connection.
    fn select_triggers(&self, schema: &str) -> String {
        let triggers = self.dialect.triggers_of_shards(self).into_iter();
        let names = triggers.map(|(end, _)| self.name_beside(end));
        let names = names.chain([self.shards_table.name().to_owned()]);
        let names: Vec<_> = names.map(|name| literal(self.dialect, &name)).collect();
        format!(
            "SELECT name FROM {}.sqlite_master WHERE name IN ({})",
            quoted_on(self.dialect, schema),
            names.join(", ")
        )
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
pub(crate) async fn check_triggers<DB, M>(
    names: Names<'_, DB>,
    link: &mut Link<'_, M>,
) -> QueryResult<()>
where
    M: LoadIo<Backend = DB>,
    DB: ShardedBackend,
{
    let backend = link.backend();
    let quoted = Quoted::new(names, Integrity::default(), &backend)?;
    let own = names.shards_table.schema();
    let is_there = |found: &[String]| found.iter().any(|name| name == names.shards_table.name());
    let mut schema = own.map(str::to_owned);
    let mut found = texts(link, quoted.select_triggers(own.unwrap_or("main"))).await?;
    if own.is_none() && !is_there(&found) {
        // Not in the main database, but in the temporary one or in one that is attached.
        let schemas = "SELECT name FROM pragma_database_list WHERE name <> 'main' ORDER BY seq";
        for name in texts(link, schemas.to_owned()).await? {
            found = texts(link, quoted.select_triggers(&name)).await?;
            schema = Some(name);
            if is_there(&found) {
                break;
            }
        }
    }
    if !is_there(&found) {
        return Ok(()); // no shards table either, as the next statement reports
    }
    match quoted.missing_triggers(schema.as_deref(), &found) {
        Some(missing) => {
            let (table, sql) = (names.shards_table.to_string(), missing.sql);
            Err(Error::MissingTriggers { table, sql }.into())
        }
        None => Ok(()),
    }
}
