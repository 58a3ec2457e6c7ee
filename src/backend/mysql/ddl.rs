//! Triggers, and how a table has one counter cache for a field.

use crate::backend::capabilities::{Trigger, triggers};
use crate::backend::quoted::{Quoted, each};

/// Ends the locks under which a counter cache is created; also after a failure.
pub(crate) const UNLOCK_CACHES: &str = "UNLOCK TABLES;\nDO RELEASE_LOCK('diesel_sharded_caches')";

/// Undoes what the text that folds and drops a shards table leaves behind after another kind of failure.
pub(crate) const CLEAN_UP_DROP: &str = "ROLLBACK; UNLOCK TABLES; DROP TEMPORARY TABLE IF EXISTS `diesel_sharded_totals`; \
    SET autocommit = COALESCE(@diesel_sharded_autocommit, @@autocommit)";

/// Each is a single statement: a client that splits the text at semicolons leaves it whole. A subquery of two rows fails in every
/// mode of the server.
///
/// No trigger renames shards: MySQL refuses a statement that reads the shards table, as a fold's update of the bases, if a
/// trigger that it may fire writes there.
pub(super) fn triggers_of_shards(tables: &Quoted<'_>) -> Vec<Trigger> {
    let (parent, shards, shard) = (&tables.parent, &tables.shards, &tables.shard);
    let row = tables.key_is(parent, "NEW");
    let [old, new] = ["OLD", "NEW"].map(|row| tables.key_is(shards, row));
    let same = tables.key_is("NEW", "OLD");
    let key = each(&tables.key[..1], "", |_, c| c.to_string());
    let refuse = "(SELECT n FROM (SELECT 1 AS n UNION ALL SELECT 2) AS refused)";
    triggers! {
        create: "BEFORE INSERT ON {shards} FOR EACH ROW SET NEW.{shard} = IF(EXISTS (SELECT 1 FROM {parent} WHERE {row} LOCK IN SHARE MODE), NEW.{shard}, {refuse})";
        delete: "AFTER DELETE ON {parent} FOR EACH ROW DELETE FROM {shards} WHERE {old}";
        insert: "AFTER INSERT ON {parent} FOR EACH ROW DELETE FROM {shards} WHERE {new}";
        rename: "BEFORE UPDATE ON {parent} FOR EACH ROW SET NEW.{key} = IF({same} OR NOT EXISTS (SELECT 1 FROM {shards} WHERE {old} OR {new}), NEW.{key}, {refuse})";
    }
}

/// Filters by the table's schema. A filter by the trigger's schema scans all databases, any of which may be busy with DDL (1684).
pub(super) fn triggers_that_contain(text: &str, tables: &Quoted<'_>) -> String {
    let place = match tables.schema.is_empty() {
        true => " AND EVENT_OBJECT_SCHEMA = DATABASE()",
        false => "",
    };
    format!(
        "FROM information_schema.TRIGGERS WHERE LOCATE(CAST({text} AS BINARY), ACTION_STATEMENT) > 0{place}"
    )
}

/// All triggers appear at once. MariaDB would not prepare a statement anew for the second one.
pub(super) fn create_at_once(table: &str) -> Option<(String, String)> {
    let lock = format!("LOCK TABLES {table} WRITE");
    Some((lock, UNLOCK_CACHES.to_owned()))
}

/// Fails where `cache` reads a text that is not empty. The lock is held while a cache is created, so of two caches for one field the later
/// one finds the other. The variable is set by a statement of its own: during DDL on other tables the catalog warns, and a statement that
/// writes treats a warning as an error.
pub(super) fn refuse_second_cache(_: &str, cache: &str, _: &str) -> String {
    format!(
        "SET @diesel_sharded_locked = GET_LOCK('diesel_sharded_caches', 60);
SET @diesel_sharded_cache = IF(@diesel_sharded_locked = 1, ({cache}), 'another counter cache is being created');
CREATE TEMPORARY TABLE `diesel_sharded_cache` (PRIMARY KEY (kept)) ENGINE = InnoDB AS
    SELECT CAST(COALESCE(@diesel_sharded_cache, 'not checked') AS CHAR(180)) AS kept FROM (SELECT 1 UNION ALL SELECT 2) AS twice
    WHERE COALESCE(@diesel_sharded_cache, 'not checked') <> '';
DROP TEMPORARY TABLE `diesel_sharded_cache`"
    )
}
