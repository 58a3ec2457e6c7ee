//! What keeps counts right in the database: a foreign key or triggers that keep shards together with their rows, and counter caches.

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::{DescribedTable, found_caches};
use serde::Serialize;

use crate::connection::AnyConnection;
use crate::key::Keyed;
use crate::output::Note;
use crate::shell;

/// The means that delete and rename the shards of a row with it.
#[derive(Debug, Serialize)]
pub struct Integrity {
    pub kept_by: KeptBy,
    /// The statements that create the triggers which are not there.
    pub missing_triggers: Option<String>,
    #[serde(skip)]
    missing_names: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeptBy {
    ForeignKey,
    Triggers,
    /// Neither, as far as this role may see.
    Application,
}

impl Integrity {
    pub fn read(keyed: Keyed<'_>, conn: &mut AnyConnection) -> QueryResult<Self> {
        let sharded = keyed.sharded;
        let mut integrity = Integrity {
            kept_by: KeptBy::ForeignKey,
            missing_triggers: None,
            missing_names: vec![],
        };
        if keyed.dialect == Dialect::Sqlite {
            let triggers = "SELECT name FROM sqlite_master WHERE type = 'trigger'";
            let found = conn.texts(triggers, &[])?;
            integrity.kept_by = KeptBy::Triggers;
            integrity.missing_triggers = sharded.missing_triggers(&conn.backend(), &found)?;
        } else if !sharded.has_foreign_key() {
            let tables = [sharded.table().name(), sharded.shards_table().name()];
            let found = keyed.within(conn, |conn| triggers_on(tables, conn))?;
            integrity.kept_by = KeptBy::Triggers;
            if let Some(missing) = sharded.missing_parent_triggers(&conn.backend(), &found)? {
                if missing.all {
                    integrity.kept_by = KeptBy::Application;
                }
                integrity.missing_triggers = Some(missing.sql);
                integrity.missing_names = missing.names;
            }
        }
        Ok(integrity)
    }

    /// Whether triggers are missing among others that are there.
    pub fn is_broken(&self) -> bool {
        self.kept_by == KeptBy::Triggers && self.missing_triggers.is_some()
    }

    /// The damage that comes of it, and the statements that repair it.
    pub fn note(&self, sharded: &DescribedTable) -> Option<Note> {
        let sql = self.missing_triggers.as_deref()?;
        let (table, shards_table) = (sharded.table(), sharded.shards_table());
        let note = match (self.kept_by, self.missing_names.is_empty()) {
            (KeptBy::Application, _) => format!(
                "{shards_table} has neither a foreign key nor triggers that this role may see. The application has to delete the shards \
                 of a row with it; `{}` removes those that it left. If triggers were to do that, create them again:",
                shell::command(["remove-orphans", table.as_str()])
            ),
            (_, true) => format!(
                "Triggers of {shards_table} are missing, as after a rebuild of {table}: a new row may inherit the shards of one that \
                 was deleted. Create them again:"
            ),
            (_, false) => format!(
                "Triggers of {shards_table}, which has no foreign key, are missing: {}. Shards may be left behind, or be created for a \
                 row that is gone. Create them again:",
                self.missing_names.join(", ")
            ),
        };
        Some(Note::new(note, sql))
    }
}

/// The names of the triggers on two tables of the schema to which plain names lead.
fn triggers_on(tables: [&str; 2], conn: &mut AnyConnection) -> QueryResult<Vec<String>> {
    let triggers = match conn.dialect() {
        Dialect::Postgres => {
            "SELECT t.tgname::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid \
             WHERE NOT t.tgisinternal AND pg_table_is_visible(c.oid) AND c.relname IN (?, ?)"
        }
        _ => {
            "SELECT CAST(TRIGGER_NAME AS CHAR) FROM information_schema.TRIGGERS \
             WHERE TRIGGER_SCHEMA = DATABASE() AND EVENT_OBJECT_TABLE IN (?, ?)"
        }
    };
    conn.texts(triggers, &tables)
}

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
        keyed: Keyed<'_>,
        field: Option<&str>,
        conn: &mut AnyConnection,
    ) -> QueryResult<Vec<Self>> {
        let triggers = keyed.sharded.cache_triggers_sql(field, &conn.backend())?;
        let triggers = keyed.within(conn, |conn| conn.texts(&triggers, &[]))?;
        let found = found_caches(keyed.dialect, &triggers).into_iter();
        let caches = found.map(|cache| Cache {
            name: cache.name,
            missing_triggers: cache.missing,
        });
        Ok(caches.collect())
    }

    /// What is wrong with it, and what to do.
    pub fn note(&self) -> Option<Note> {
        let (name, lacks) = (&self.name, self.missing_triggers.join(", "));
        let says = format!(
            "the counter cache {name} lacks {lacks}: some changes of its rows are not counted"
        );
        let remedy = "Drop the rest of it and create it again, by its migration's down.sql and up.sql, and run `backfill`";
        (!lacks.is_empty()).then(|| Note::new(says, remedy))
    }
}
