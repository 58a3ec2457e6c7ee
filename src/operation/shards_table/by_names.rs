//! The texts of a shards table that is known by its names.

use diesel::prelude::*;

use crate::backend::ShardedBackend;
use crate::query_builder::Names;

use super::fold_and_drop::Program;
use super::integrity::Integrity;
use super::parent_triggers::MissingParentTriggers;
use super::quoted::{Quoted, identifier};

/// See [`ShardsTable::create_sql`].
pub(crate) fn create_sql<DB: ShardedBackend>(
    names: Names<'_, DB>,
    integrity: Integrity,
    backend: &DB,
) -> QueryResult<String> {
    Ok(Quoted::new(names, backend)?.kept_by(integrity).create())
}

/// The statements of `sql`, which creates this shards table among others with a foreign key, and of the triggers in its place.
pub(crate) fn adapted_create<DB: ShardedBackend>(
    sql: &str,
    names: Names<'_, DB>,
    integrity: Integrity,
    backend: &DB,
) -> QueryResult<Vec<String>> {
    let with = Quoted::new(names, backend)?;
    let mut sql = sql.to_owned();
    if let (Some(foreign_key), true) = (with.foreign_key(), integrity != Integrity::ForeignKey) {
        sql = sql.replace(&format!(",\n    {foreign_key}"), "");
    }
    let mut statements = vec![sql];
    statements.extend(with.kept_by(integrity).create_integrity());
    Ok(statements)
}

/// The statements of `sql`, which drops this shards table and its parent, and of what remains of the triggers.
pub(crate) fn adapted_drop<DB: ShardedBackend>(
    sql: &str,
    names: Names<'_, DB>,
    integrity: Integrity,
    backend: &DB,
) -> QueryResult<Vec<String>> {
    let quoted = Quoted::new(names, backend)?.kept_by(integrity);
    let mut statements = vec![sql.to_owned()];
    statements.extend(quoted.drop_triggers());
    Ok(statements)
}

/// See [`ShardsTable::drop_sql`].
pub(crate) fn drop_sql<DB: ShardedBackend>(
    names: Names<'_, DB>,
    integrity: Integrity,
    backend: &DB,
) -> QueryResult<String> {
    let quoted = Quoted::new(names, backend)?.kept_by(integrity);
    Ok(quoted.fold_and_drop(Program::Any))
}

/// See [`ShardsTable::add_function_sql`].
pub(crate) fn add_function_sql<DB: ShardedBackend>(
    names: Names<'_, DB>,
    backend: &DB,
) -> QueryResult<String> {
    Quoted::new(names, backend)?.create_function()
}

/// See [`ShardsTable::drop_function_sql`].
pub(crate) fn drop_function_sql<DB: ShardedBackend>(
    names: Names<'_, DB>,
    backend: &DB,
) -> QueryResult<String> {
    Quoted::new(names, backend)?.drop_function()
}

/// A query for the names of the triggers of all counter caches that add to the shards table, or to one of its fields.
pub(crate) fn cache_triggers_sql<DB: ShardedBackend>(
    names: Names<'_, DB>,
    field: Option<&str>,
    backend: &DB,
) -> QueryResult<String> {
    let field = field.map(|name| identifier(name, backend)).transpose()?;
    let quoted = Quoted::new(names, backend)?;
    Ok(quoted.select_cache_triggers(field.as_deref()))
}

/// The `CHECK` of each field, where a shard has one.
pub(crate) fn checks_sql<DB: ShardedBackend>(
    names: Names<'_, DB>,
    backend: &DB,
) -> QueryResult<Vec<Option<String>>> {
    let quoted = Quoted::new(names, backend)?;
    Ok(quoted.fields.iter().map(|f| quoted.check(f)).collect())
}

/// The foreign key, if there is to be one.
pub(crate) fn foreign_key_sql<DB: ShardedBackend>(
    names: Names<'_, DB>,
    integrity: Integrity,
    backend: &DB,
) -> QueryResult<Option<String>> {
    let quoted = Quoted::new(names, backend)?.kept_by(integrity);
    Ok(quoted.foreign_key())
}

/// The statements that create the triggers of a shards table on SQLite which are not among `found`.
pub(crate) fn missing_triggers<DB: ShardedBackend>(
    names: Names<'_, DB>,
    backend: &DB,
    found: &[String],
) -> QueryResult<Option<String>> {
    match backend.dialect().has_triggers() {
        true => Ok(Quoted::new(names, backend)?.missing_triggers(None, found)),
        false => Ok(None),
    }
}

/// The triggers in place of the foreign key that are not among those that were `found` on both tables. (SQLite has its own.)
pub(crate) fn missing_parent_triggers<DB: ShardedBackend>(
    names: Names<'_, DB>,
    backend: &DB,
    found: &[String],
) -> QueryResult<Option<MissingParentTriggers>> {
    match backend.dialect().has_triggers() {
        true => Ok(None),
        false => Ok(Quoted::new(names, backend)?.missing_parent_triggers(found)),
    }
}
