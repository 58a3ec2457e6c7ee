//! The counter caches that add to a shards table, as the database's catalogs know them: by what their triggers write.
//!
//! Each field has one, and the table stays while it has any. The texts check both by themselves.

use std::collections::BTreeSet;

use diesel::result::Error as DieselError;

use super::texts;
use crate::backend::{Dialect, Quoted, literal, quoted_on};
use crate::connection::{Link, LoadIo};
use crate::error::Error;

/// A text about a cache begins with this, followed by the names of the shards table and of a trigger.
const KEPT: &str = "a counter cache adds to ";
const DROP: &str = "; drop that cache first";

/// The triggers of a cache, by the suffixes of their names after that of the cache.
const ENDS: [&str; 5] = ["_insert", "_update", "_delete", "_truncate", "_rename"];

/// A counter cache by its triggers.
#[derive(Debug, Clone)]
pub struct FoundCache {
    /// The name with which those of its triggers begin.
    pub name: String,
    /// The names of the triggers that are not there, or are off.
    pub missing: Vec<String>,
}

/// The caches to which these triggers belong.
pub fn found_caches(dialect: Dialect, triggers: &[String]) -> Vec<FoundCache> {
    let names: BTreeSet<_> = triggers.iter().map(|trigger| cache_of(trigger)).collect();
    let ends = match dialect.triggers_call_functions() {
        true => &ENDS[..],
        false => &ENDS[..3],
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
    /// A trigger that counts into a field, quoted, or into any, as a text about it. NULL if there is none; on MySQL, where an interruption
    /// may give NULL, the empty text.
    pub(super) fn cache(&self, shards: &str, field: Option<&str>) -> String {
        let text = self.concatenated(&[
            literal(self.dialect, &format!("{KEPT}{}: ", self.shards_table)),
            format!("MIN({})", self.dialect.name_of_trigger()),
            literal(self.dialect, DROP),
        ]);
        let [before, behind] = self.dialect.text_or_none();
        let triggers = self.cache_triggers(shards, field);
        let of_statements = self.dialect.is_statements_trigger();
        format!("SELECT {before}{text}{behind} AS kept {triggers}{of_statements}")
    }

    /// A query for the names of the triggers of all counter caches that add to the shards table, or to one of its fields, and are on.
    pub fn cache_triggers_sql(&self, field: Option<&str>) -> String {
        let field = field.map(|name| quoted_on(self.dialect, name));
        let (_, shards) = self.in_triggers();
        let triggers = self.cache_triggers(shards, field.as_deref());
        let (name, on) = (self.dialect.name_of_trigger(), self.dialect.is_trigger_on());
        format!("SELECT {name} {triggers}{on} ORDER BY 1")
    }

    /// The triggers that insert into shards.
    fn cache_triggers(&self, shards: &str, field: Option<&str>) -> String {
        let insert = self.insert_into(shards, field.unwrap_or_default());
        let begin = match field {
            Some(_) => &*insert,
            None => insert.trim_end_matches(')'),
        };
        let begin = literal(self.dialect, begin);
        self.dialect.triggers_that_contain(&begin, self)
    }

    /// The statements that fail where a field, quoted, has a cache already; for PostgreSQL inside a block with a variable `kept`.
    pub(crate) fn refuse_second_cache(&self, field: &str) -> String {
        let (_, shards) = self.in_triggers();
        let cache = self.cache(shards, Some(field));
        let message = format!("{KEPT}{}: {field} has one already", self.shards_table);
        let constraint = quoted_on(self.dialect, &message);
        self.dialect
            .refuse_second_cache(shards, &cache, &constraint)
    }

    /// Names the cache, if the error says that there is one. SQLite's does not say which.
    pub(crate) async fn explain_cache<M: LoadIo>(
        &self,
        field: &str,
        link: &mut Link<'_, M>,
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
