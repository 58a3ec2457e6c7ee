//! Triggers, and how a table has one counter cache for a field.

use crate::backend::capabilities::{Trigger, triggers};
use crate::backend::quoted::{Quoted, each};

pub(super) fn triggers_of_shards(tables: &Quoted<'_>) -> Vec<Trigger> {
    let (parent, shards) = tables.in_triggers();
    let key_is = |row: &str| each(&tables.key, " AND ", |_, c| format!("{c} = {row}.{c}"));
    let (old, new, names) = (key_is("OLD"), key_is("NEW"), tables.key_names());
    let renamed = tables.renamed();
    triggers! {
        delete: "AFTER DELETE ON {parent} BEGIN DELETE FROM {shards} WHERE {old}; END";
        update: "AFTER UPDATE OF {names} ON {parent} BEGIN DELETE FROM {shards} WHERE {new} AND NOT ({old}); UPDATE {shards} SET {renamed} WHERE {old}; END";
        insert: "AFTER INSERT ON {parent} BEGIN DELETE FROM {shards} WHERE {new}; END";
    }
}

pub(super) fn triggers_that_contain(text: &str, tables: &Quoted<'_>) -> String {
    let schema = &tables.schema;
    format!("FROM {schema}sqlite_master WHERE type = 'trigger' AND instr(sql, {text}) > 0")
}

/// Fails where `cache` reads a text, by a constraint of this name.
pub(super) fn refuse_second_cache(_: &str, cache: &str, constraint: &str) -> String {
    format!(
        "CREATE TEMPORARY TABLE diesel_sharded_cache (kept CONSTRAINT {constraint} CHECK (kept IS NULL));
INSERT INTO temp.diesel_sharded_cache {cache};
DROP TABLE temp.diesel_sharded_cache"
    )
}
