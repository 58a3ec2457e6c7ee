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

use crate::backend::{Dialect, ShardedBackend};
use crate::connection::{Link, LoadIo};
use crate::error::Error;
use crate::query_builder::{Names, literal};

use super::quoted::{Integrity, Quoted, as_one, each, quoted_on, trigger_function};
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

/// A trigger by the end of its name, with what follows that name in its statement.
type Ended = (&'static str, String);

/// Triggers, each as [`Ended`].
macro_rules! triggers {
    ($($end:ident: $rest:literal;)+) => { vec![$((stringify!($end), format!($rest))),+] };
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
        let triggers = self.triggers().into_iter();
        let create = triggers.map(|trigger| self.create_trigger(&self.schema, &trigger));
        self.function().into_iter().chain(create).collect()
    }

    fn create_trigger(&self, schema: &str, (end, rest): &Ended) -> String {
        let schema = match self.dialect {
            Dialect::Postgres => "",
            _ => schema,
        };
        format!("CREATE TRIGGER {schema}{} {rest}", self.bare_beside(end))
    }

    /// The statements that drop those that do not go with the shards table.
    pub(crate) fn drop_triggers(&self) -> Vec<String> {
        if !self.has_triggers() {
            return vec![];
        }
        if self.dialect == Dialect::Postgres {
            let function = self.beside("keep"); // its triggers go with it
            return vec![format!("DROP FUNCTION IF EXISTS {function}() CASCADE")];
        }
        let triggers = self.triggers().into_iter();
        let on_parent = triggers.filter(|(end, _)| *end != "create");
        let drop = on_parent.map(|(end, _)| format!("DROP TRIGGER IF EXISTS {}", self.beside(end)));
        drop.collect()
    }

    /// Finds the triggers of a table that was created with them, where this value has none: one that is left would fail each write of the
    /// parent. MySQL drops none without a privilege, so that they are dropped only where they are there.
    pub(super) async fn find_triggers<M: LoadIo<Conn>, Conn>(
        &mut self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<()> {
        if self.dialect == Dialect::Mysql && !self.has_triggers() {
            let text = |text: &str| literal(self.dialect, text);
            let schema = self.shards_table.schema();
            let sql = format!(
                "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = {} AND TRIGGER_NAME = {}",
                schema.map_or("DATABASE()".to_owned(), text),
                text(&self.name_beside("delete")),
            );
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
        let mut triggers = self.triggers();
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
        if all && self.dialect == Dialect::Postgres {
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

    fn triggers(&self) -> Vec<Ended> {
        match self.dialect {
            Dialect::Postgres => self.triggers_on_postgres(),
            Dialect::Mysql => self.triggers_on_mysql(),
            Dialect::Sqlite => self.triggers_on_sqlite(),
        }
    }

    /// The one function that PostgreSQL's triggers call. Fired with an argument, it looks for the row of a new shard.
    fn function(&self) -> Vec<String> {
        if self.dialect != Dialect::Postgres {
            return vec![];
        }
        let body = format!(
            include_str!("sql/keep_on_postgres.sql"),
            parent = self.parent,
            shards = self.shards,
            new_row = self.key_is(&self.parent, "NEW"),
            gone = self.says(": there is no row with the key of a shard"),
            isolation = self.says(
                ": a key changes in READ COMMITTED alone, since an older snapshot may miss a shard"
            ),
            old_shards = self.key_is(&self.shards, "OLD"),
            renamed = self.renamed(),
        );
        let function = self.beside("keep");
        trigger_function("CREATE FUNCTION", &function, body.trim_end()).into()
    }

    fn triggers_on_postgres(&self) -> Vec<Ended> {
        let Quoted { parent, shards, .. } = self;
        let (old, new) = (self.key_of("OLD"), self.key_of("NEW"));
        let call = format!("EXECUTE FUNCTION {}", self.beside("keep"));
        triggers! {
            create: "AFTER INSERT ON {shards} FOR EACH ROW {call}('row')";
            delete: "AFTER DELETE ON {parent} FOR EACH ROW {call}()";
            rename: "AFTER UPDATE ON {parent} FOR EACH ROW WHEN (ROW({old}) IS DISTINCT FROM ROW({new})) {call}()";
            truncate: "AFTER TRUNCATE ON {parent} FOR EACH STATEMENT {call}()";
        }
    }

    /// Each is one statement alone: a client that splits the text at semicolons leaves it whole. A subquery of two rows fails in every
    /// mode of the server.
    ///
    /// No trigger renames shards: MySQL refuses a statement that reads the shards table, as a fold's update of the bases, if a
    /// trigger that it may fire writes there.
    fn triggers_on_mysql(&self) -> Vec<Ended> {
        let (parent, shards, shard) = (&self.parent, &self.shards, &self.shard);
        let row = self.key_is(parent, "NEW");
        let [old, new] = ["OLD", "NEW"].map(|row| self.key_is(shards, row));
        let same = self.key_is("NEW", "OLD");
        let key = each(&self.key[..1], "", |_, c| c.to_string());
        let refuse = "(SELECT n FROM (SELECT 1 AS n UNION ALL SELECT 2) AS refused)";
        triggers! {
            create: "BEFORE INSERT ON {shards} FOR EACH ROW SET NEW.{shard} = IF(EXISTS (SELECT 1 FROM {parent} WHERE {row} LOCK IN SHARE MODE), NEW.{shard}, {refuse})";
            delete: "AFTER DELETE ON {parent} FOR EACH ROW DELETE FROM {shards} WHERE {old}";
            insert: "AFTER INSERT ON {parent} FOR EACH ROW DELETE FROM {shards} WHERE {new}";
            rename: "BEFORE UPDATE ON {parent} FOR EACH ROW SET NEW.{key} = IF({same} OR NOT EXISTS (SELECT 1 FROM {shards} WHERE {old} OR {new}), NEW.{key}, {refuse})";
        }
    }

    fn triggers_on_sqlite(&self) -> Vec<Ended> {
        let (parent, shards) = self.in_triggers();
        let key_is = |row: &str| each(&self.key, " AND ", |_, c| format!("{c} = {row}.{c}"));
        let (old, new, names) = (key_is("OLD"), key_is("NEW"), self.key_names());
        let renamed = self.renamed();
        triggers! {
            delete: "AFTER DELETE ON {parent} BEGIN DELETE FROM {shards} WHERE {old}; END";
            update: "AFTER UPDATE OF {names} ON {parent} BEGIN DELETE FROM {shards} WHERE {new} AND NOT ({old}); UPDATE {shards} SET {renamed} WHERE {old}; END";
            insert: "AFTER INSERT ON {parent} BEGIN DELETE FROM {shards} WHERE {new}; END";
        }
    }

    /// SQLite's shards table and its triggers, as far as they are in a database of the connection.
    fn select_triggers(&self, schema: &str) -> String {
        let triggers = self.triggers().into_iter();
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
        return Ok(()); // no shards table either, as the next statement tells
    }
    match quoted.missing_triggers(schema.as_deref(), &found) {
        Some(missing) => {
            let (table, sql) = (names.shards_table.to_string(), missing.sql);
            Err(Error::MissingTriggers { table, sql }.into())
        }
        None => Ok(()),
    }
}
