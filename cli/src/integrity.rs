//! What keeps counts right in the database: a foreign key or triggers that keep shards together with their rows, and counter caches.

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::found_caches;
use serde::Serialize;

use crate::connection::AnyConnection;
use crate::output::Note;
use crate::sharded::Sharded;
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
    pub fn read(sharded: &Sharded, conn: &mut AnyConnection) -> QueryResult<Self> {
        let described = &sharded.described;
        if described.has_foreign_key() && sharded.dialect != Dialect::Sqlite {
            return Ok(Integrity {
                kept_by: KeptBy::ForeignKey,
                missing_triggers: None,
                missing_names: vec![],
            });
        }
        let triggers = catalog!(sharded.dialect, "triggers");
        let tables = [sharded.table().name(), sharded.shards_table().name()];
        let found = sharded.within(conn, |conn| conn.texts(triggers, &tables))?;
        let missing = described.quoted(&conn.backend())?.missing_triggers(None, &found);
        let are_all = missing.as_ref().is_some_and(|missing| missing.all);
        let (missing_triggers, missing_names) =
            missing.map(|missing| (missing.sql, missing.names)).unzip();
        Ok(Integrity {
            kept_by: match are_all {
                true => KeptBy::Application,
                false => KeptBy::Triggers,
            },
            missing_triggers,
            missing_names: missing_names.unwrap_or_default(),
        })
    }

    /// Whether triggers are missing among others that are there.
    pub fn is_broken(&self) -> bool {
        self.kept_by == KeptBy::Triggers && self.missing_triggers.is_some()
    }

    /// The damage that comes of it, and the statements that repair it.
    pub fn note(&self, sharded: &Sharded) -> Option<Note> {
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
        sharded: &Sharded,
        field: Option<&str>,
        conn: &mut AnyConnection,
    ) -> QueryResult<Vec<Self>> {
        let triggers = sharded
            .described
            .quoted(&conn.backend())?
            .cache_triggers_sql(field);
        let triggers = sharded.within(conn, |conn| conn.texts(&triggers, &[]))?;
        let found = found_caches(sharded.dialect, &triggers).into_iter();
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
