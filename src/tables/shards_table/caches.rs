//! The counter caches that add to a shards table, as the database's catalogs know them: by what their triggers write.
//!
//! Each field has one, and the table stays while it has any. The texts check both by themselves.

use std::collections::BTreeSet;

use diesel::result::Error as DieselError;

use crate::backend::Dialect;
use crate::connection::{Link, LoadIo};
use crate::error::Error;
use crate::query_builder::literal;

use super::quoted::{Quoted, quoted_on};
use super::texts;

/// A text about a cache begins so, and goes on with the shards table's name and that of a trigger.
const KEPT: &str = "a counter cache adds to ";
const DROP: &str = "; drop that cache first";

/// The triggers of a cache, by the ends of their names behind that of the cache.
const ENDS: [&str; 5] = ["_insert", "_update", "_delete", "_truncate", "_rename"];

/// Held on MySQL while a cache is created: of two for one field, one looks when the other is there.
const LOCK_CACHES: &str = "SET @diesel_sharded_locked = GET_LOCK('diesel_sharded_caches', 60)";
/// What is in the place of a cache that is there where another session keeps the lock.
const NOT_LOCKED: &str = "another counter cache is being created";
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
pub fn found_caches(dialect: Dialect, triggers: &[String]) -> Vec<FoundCache> {
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
    /// A trigger that counts into a field, quoted, or into any, as a text about it. NULL if there is none; on MySQL, where NULL may come of
    /// an interruption, the empty text.
    pub(super) fn cache(&self, shards: &str, field: Option<&str>) -> String {
        let (name, triggers) = self.cache_triggers(shards, field);
        let text = self.concatenated(&[
            literal(self.dialect, &format!("{KEPT}{}: ", self.shards_table)),
            format!("MIN({name})"),
            literal(self.dialect, DROP),
        ]);
        match self.dialect {
            // Where a counted table was dropped, the trigger on the parent is left.
            Dialect::Postgres => format!("SELECT {text} AS kept {triggers} AND t.tgtype & 1 = 0"),
            Dialect::Mysql => format!("SELECT COALESCE({text}, '') AS kept {triggers}"),
            Dialect::Sqlite => format!("SELECT {text} AS kept {triggers}"),
        }
    }

    /// A query for the names of the triggers of all counter caches that add to the shards table, or to one of its fields, and are on.
    pub fn cache_triggers_sql(&self, field: Option<&str>) -> String {
        let field = field.map(|name| quoted_on(self.dialect, name));
        let (_, shards) = self.in_triggers();
        let (name, triggers) = self.cache_triggers(shards, field.as_deref());
        let on = match self.dialect {
            Dialect::Postgres => " AND t.tgenabled <> 'D'",
            _ => "",
        };
        format!("SELECT {name} {triggers}{on} ORDER BY 1")
    }

    /// The column of triggers' names in the catalog, and the rows of those that insert into shards.
    fn cache_triggers(&self, shards: &str, field: Option<&str>) -> (&'static str, String) {
        let insert = self.insert_into(shards, field.unwrap_or_default());
        let begin = match field {
            Some(_) => &*insert,
            None => insert.trim_end_matches(')'),
        };
        let begin = literal(self.dialect, begin);
        let is_bare = self.schema.is_empty();
        match self.dialect {
            Dialect::Postgres => {
                let place = is_bare.then(|| format!(" AND {}", self.is_found_by_function()));
                let triggers = format!(
                    "FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid WHERE strpos(p.prosrc, {begin}) > 0{}",
                    place.unwrap_or_default()
                );
                ("CAST(t.tgname AS TEXT)", triggers)
            }
            Dialect::Mysql => {
                // The table's: by the trigger's, all databases are scanned, of which any may be busy with DDL (1684).
                let place = is_bare.then_some(" AND EVENT_OBJECT_SCHEMA = DATABASE()");
                let triggers = format!(
                    "FROM information_schema.TRIGGERS WHERE LOCATE(CAST({begin} AS BINARY), ACTION_STATEMENT) > 0{}",
                    place.unwrap_or_default()
                );
                ("CAST(TRIGGER_NAME AS CHAR)", triggers)
            }
            Dialect::Sqlite => {
                let triggers = format!(
                    "FROM {}sqlite_master WHERE type = 'trigger' AND instr(sql, {begin}) > 0",
                    self.schema
                );
                ("name", triggers)
            }
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
    pub(crate) fn refuse_second_cache(&self, field: &str) -> String {
        let (_, shards) = self.in_triggers();
        let cache = self.cache(shards, Some(field));
        match self.dialect {
            // The lock waits for the creation of another cache, and for no count.
            Dialect::Postgres => format!(
                "LOCK TABLE {shards} IN SHARE UPDATE EXCLUSIVE MODE;
kept := ({cache});
IF kept IS NOT NULL THEN
    RAISE EXCEPTION USING MESSAGE = kept;
END IF"
            ),
            // The variable is set by itself: beside other tables' DDL the catalog warns, and what writes takes a warning for an error.
            Dialect::Mysql => format!(
                "{LOCK_CACHES};
SET @diesel_sharded_cache = IF(@diesel_sharded_locked = 1, ({cache}), '{NOT_LOCKED}');
CREATE TEMPORARY TABLE `diesel_sharded_cache` (PRIMARY KEY (kept)) ENGINE = InnoDB AS
    SELECT CAST(COALESCE(@diesel_sharded_cache, 'not checked') AS CHAR(180)) AS kept FROM (SELECT 1 UNION ALL SELECT 2) AS twice
    WHERE COALESCE(@diesel_sharded_cache, 'not checked') <> '';
DROP TEMPORARY TABLE `diesel_sharded_cache`"
            ),
            Dialect::Sqlite => {
                let message = format!("{KEPT}{}: {field} has one already", self.shards_table);
                let constraint = quoted_on(self.dialect, &message);
                format!(
                    "CREATE TEMPORARY TABLE diesel_sharded_cache (kept CONSTRAINT {constraint} CHECK (kept IS NULL));
INSERT INTO temp.diesel_sharded_cache {cache};
DROP TABLE temp.diesel_sharded_cache"
                )
            }
        }
    }

    /// Names the cache, if the error says that there is one. SQLite's does not tell which.
    pub(crate) async fn explain_cache<M: LoadIo<Conn>, Conn>(
        &self,
        field: &str,
        link: &mut Link<'_, M, Conn>,
        error: DieselError,
    ) -> DieselError {
        let is_about_cache = |error: &DieselError| matches!(error, DieselError::DatabaseError(_, says) if says.message().contains(KEPT));
        if !is_about_cache(&error) {
            return error;
        }
        let (_, shards) = self.in_triggers();
        let found = texts(link, self.cache(shards, Some(field))).await;
        let found = found.ok().and_then(|mut found| found.pop());
        let kept = found.and_then(|text| told(&text, self.shards_table.as_str()));
        kept.unwrap_or(error)
    }
}
