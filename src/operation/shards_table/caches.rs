//! The counter caches that add to a shards table, as the database's catalogs know them: by what their triggers write.
//!
//! Each field has one, and the table stays while it has any. The texts check both by themselves.

use std::collections::BTreeSet;

use diesel::result::Error as DieselError;

use crate::backend::{Dialect, ShardedBackend};
use crate::connection::{Link, LoadIo};
use crate::error::Error;
use crate::query_builder::literal;

use super::quoted::{Quoted, quoted_on};
use super::triggers::texts;

/// A text about a cache begins so, and goes on with the shards table's name and that of a trigger.
const KEPT: &str = "a counter cache adds to ";
const DROP: &str = "; drop that cache first";

/// The triggers of a cache, by the ends of their names behind that of the cache.
const ENDS: [&str; 5] = ["_insert", "_update", "_delete", "_truncate", "_rename"];

/// Held on MySQL while a cache is created: of two for one field, one looks when the other is there.
pub(crate) const LOCK_CACHES: &str = "DO GET_LOCK('diesel_sharded_caches', 60)";
pub(crate) const UNLOCK_CACHES: &str = "DO RELEASE_LOCK('diesel_sharded_caches')";

/// A counter cache by its triggers.
#[derive(Debug, Clone)]
pub struct FoundCache {
    /// The name that those of its triggers begin with.
    pub name: String,
    /// The names of the triggers that are not there, or are off.
    pub missing: Vec<String>,
}

/// The caches to which these triggers belong.
pub(crate) fn found_caches(dialect: Dialect, triggers: &[String]) -> Vec<FoundCache> {
    let names: BTreeSet<_> = triggers.iter().map(|trigger| cache_of(trigger)).collect();
    let ends = match dialect {
        Dialect::Postgres => &ENDS[..],
        _ => &ENDS[..3],
    };
    let found = names.into_iter().map(|name| {
        let all = ends.iter().map(|end| format!("{name}{end}"));
        let missing = all.filter(|trigger| !triggers.contains(trigger));
        let (name, missing) = (name.to_owned(), missing.collect());
        FoundCache { name, missing }
    });
    found.collect()
}

/// The name of the cache to which a trigger belongs.
fn cache_of(trigger: &str) -> &str {
    let mut ends = ENDS.iter();
    ends.find_map(|end| trigger.strip_suffix(end))
        .unwrap_or(trigger)
}

/// The error that a text about a cache describes.
pub(super) fn told(text: &str, shards_table: &str) -> Option<DieselError> {
    let text = text.strip_prefix(KEPT)?.strip_prefix(shards_table)?;
    let trigger = text.strip_prefix(": ")?.strip_suffix(DROP)?; // MariaDB cuts it in an error
    let (table, cache) = (shards_table.to_owned(), cache_of(trigger).to_owned());
    Some(Error::HasCounterCache { table, cache }.into())
}

impl Quoted<'_> {
    /// The beginning of each statement that inserts shards.
    fn insert_into_any(&self, shards: &str) -> String {
        let all = self.insert_into(shards, "");
        all.trim_end_matches(')').to_owned()
    }

    /// A trigger that counts into a field, or into any, as a text about it. NULL if there is none; on MySQL, where NULL may come of an
    /// interruption, the empty text.
    pub(super) fn cache(&self, shards: &str, field: Option<&str>) -> String {
        let (name, triggers) = self.cache_triggers(shards, field);
        let counting = match self.dialect {
            // Where a counted table was dropped, the trigger on the parent is left.
            Dialect::Postgres => " AND t.tgtype & 1 = 0",
            _ => "",
        };
        let text = self.concatenated(&[
            literal(self.dialect, &format!("{KEPT}{}: ", self.shards_table)),
            format!("MIN({name})"),
            literal(self.dialect, DROP),
        ]);
        match self.dialect {
            Dialect::Mysql => format!("SELECT COALESCE({text}, '') AS kept {triggers}"),
            _ => format!("SELECT {text} AS kept {triggers}{counting}"),
        }
    }

    /// The names of the triggers of all caches that are on; of a field, quoted, or of all.
    pub(crate) fn select_cache_triggers(&self, field: Option<&str>) -> String {
        let (name, triggers) = self.cache_triggers(self.shards_in_triggers(), field);
        let on = match self.dialect {
            Dialect::Postgres => " AND t.tgenabled <> 'D'",
            _ => "",
        };
        format!("SELECT {name} {triggers}{on} ORDER BY 1")
    }

    /// The shards table as triggers name it. SQLite's end at their database.
    pub(super) fn shards_in_triggers(&self) -> &str {
        match self.dialect {
            Dialect::Sqlite => &self.bare_shards,
            _ => &self.shards,
        }
    }

    fn cache_triggers(&self, shards: &str, field: Option<&str>) -> (&'static str, String) {
        let begin = match field {
            Some(field) => self.insert_into(shards, field),
            None => self.insert_into_any(shards),
        };
        let begin = literal(self.dialect, &begin);
        let is_bare = self.schema.is_empty();
        match self.dialect {
            Dialect::Postgres => {
                let place = match is_bare {
                    true => format!(" AND {}", self.is_found_by_function()),
                    false => String::new(),
                };
                (
                    "CAST(t.tgname AS TEXT)",
                    format!(
                        "FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid WHERE strpos(p.prosrc, {begin}) > 0{place}"
                    ),
                )
            }
            Dialect::Mysql => {
                // The table's: by the trigger's, all databases are scanned, of which any may be busy with DDL (1684).
                let place = match is_bare {
                    true => " AND EVENT_OBJECT_SCHEMA = DATABASE()",
                    false => "",
                };
                (
                    "CAST(TRIGGER_NAME AS CHAR)",
                    format!(
                        "FROM information_schema.TRIGGERS WHERE LOCATE(CAST({begin} AS BINARY), ACTION_STATEMENT) > 0{place}"
                    ),
                )
            }
            Dialect::Sqlite => (
                "name",
                format!(
                    "FROM {}sqlite_master WHERE type = 'trigger' AND instr(sql, {begin}) > 0",
                    self.schema
                ),
            ),
        }
    }

    /// Whether the path of the function leads to this table: another schema may have one of its name.
    fn is_found_by_function(&self) -> String {
        let table = literal(self.dialect, self.shards_table.name());
        let quoted = literal(self.dialect, &self.shards);
        format!(
            "to_regclass({quoted}) = (SELECT c.oid FROM unnest(p.proconfig) AS setting(text),
            regexp_split_to_table(substr(setting.text, 13), ', ') WITH ORDINALITY AS path(name, place),
            pg_namespace n, pg_class c
        WHERE setting.text LIKE 'search_path=%' AND quote_ident(n.nspname) = path.name AND c.relnamespace = n.oid AND c.relname = {table}
        ORDER BY path.place LIMIT 1)"
        )
    }

    /// The statements that fail where a field, quoted, has a cache already; for PostgreSQL inside a block with a variable `kept`.
    pub(crate) fn refuse_second_cache(&self, field: &str) -> Vec<String> {
        let cache = self.cache(self.shards_in_triggers(), Some(field));
        match self.dialect {
            Dialect::Postgres => vec![
                // Waits for the creation of another cache, and for no count.
                format!("LOCK TABLE {} IN SHARE UPDATE EXCLUSIVE MODE", self.shards),
                format!("kept := ({cache})"),
                "IF kept IS NOT NULL THEN\n    RAISE EXCEPTION USING MESSAGE = kept;\nEND IF"
                    .to_owned(),
            ],
            Dialect::Mysql => vec![
                LOCK_CACHES.to_owned(),
                // By itself: beside other tables' DDL the catalog warns, and what writes takes a warning for an error.
                format!("SET @diesel_sharded_cache = ({cache})"),
                "CREATE TEMPORARY TABLE `diesel_sharded_cache` (PRIMARY KEY (kept)) ENGINE = InnoDB AS
    SELECT CAST(COALESCE(@diesel_sharded_cache, 'not checked') AS CHAR(180)) AS kept FROM (SELECT 1 UNION ALL SELECT 2) AS twice
    WHERE COALESCE(@diesel_sharded_cache, 'not checked') <> ''"
                    .to_owned(),
                "DROP TEMPORARY TABLE `diesel_sharded_cache`".to_owned(),
            ],
            Dialect::Sqlite => {
                let message = format!("{KEPT}{}: {field} has one already", self.shards_table);
                let constraint = quoted_on(self.dialect, &message);
                vec![
                    format!(
                        "CREATE TEMPORARY TABLE diesel_sharded_cache (kept CONSTRAINT {constraint} CHECK (kept IS NULL))"
                    ),
                    format!("INSERT INTO temp.diesel_sharded_cache {cache}"),
                    "DROP TABLE temp.diesel_sharded_cache".to_owned(),
                ]
            }
        }
    }

    /// Names the cache, if the error says that there is one. SQLite's does not tell which.
    pub(crate) async fn explain_cache<DB, M, Conn>(
        &self,
        field: &str,
        link: &mut Link<'_, M, Conn>,
        error: DieselError,
    ) -> DieselError
    where
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let is_about_cache = |error: &DieselError| matches!(error, DieselError::DatabaseError(_, says) if says.message().contains(KEPT));
        if !is_about_cache(&error) {
            return error;
        }
        let cache = self.cache(self.shards_in_triggers(), Some(field));
        let found = texts::<DB, _, _>(link, cache).await;
        let found = found.ok().and_then(|mut found| found.pop());
        let kept = found.and_then(|text| told(&text, self.shards_table.as_str()));
        kept.unwrap_or(error)
    }
}
