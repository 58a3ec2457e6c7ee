//! The shards table: its `CREATE TABLE` and `DROP TABLE`, as text and as a Diesel migration.

mod by_names;
mod caches;
mod create;
mod fold_and_drop;
mod fold_check;
mod function;
mod integrity;
mod migration;
mod orphans;
mod parent_triggers;
mod quoted;
mod table;
mod triggers;
mod unfit_text;
mod view;
mod view_migration;

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests;

pub(crate) use self::by_names::{
    adapted_create, adapted_drop, add_function_sql, cache_triggers_sql, checks_sql, create_sql,
    drop_function_sql, drop_sql, foreign_key_sql, missing_parent_triggers, missing_triggers,
};
pub use self::caches::FoundCache;
pub(crate) use self::caches::{UNLOCK_CACHES, found_caches};
pub(crate) use self::integrity::Integrity;
pub use self::migration::ShardsMigration;
pub(crate) use self::migration::{InTransaction, backend_behind};
pub(crate) use self::orphans::remove_orphans;
pub use self::parent_triggers::MissingParentTriggers;
pub(crate) use self::quoted::{
    Quoted, as_one, dollar_quoted, each, fix_search_path, identifier, identifiers,
};
pub use self::table::ShardsTable;
pub(crate) use self::triggers::{check_triggers, texts};
pub(crate) use self::unfit_text::explain_unfit;
pub use self::view::TotalsView;
pub(crate) use self::view::{create_view_sql, drop_view_sql};
pub use self::view_migration::ViewMigration;
