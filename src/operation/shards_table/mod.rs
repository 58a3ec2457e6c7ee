//! The shards table: its `CREATE TABLE` and `DROP TABLE`, as text and as a Diesel migration.

mod caches;
mod create;
mod fold_and_drop;
mod fold_check;
mod function;
mod migration;
mod orphans;
mod parent_triggers;
mod quoted;
mod table;
mod triggers;
mod unfit_text;
mod view;

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests;

pub use self::caches::FoundCache;
pub(crate) use self::caches::{UNLOCK_CACHES, found_caches};
pub(crate) use self::fold_and_drop::Program;
pub use self::migration::{CreatedBySql, SqlMigration};
pub(crate) use self::orphans::remove_orphans;
pub use self::parent_triggers::MissingTriggers;
pub(crate) use self::quoted::{
    Integrity, Quoted, as_one, dollar_quoted, each, fix_search_path, identifiers, quoted_on,
};
pub use self::table::ShardsTable;
pub(crate) use self::table::install;
pub(crate) use self::triggers::{check_triggers, texts};
pub(crate) use self::unfit_text::explain_unfit;
pub use self::view::TotalsView;
pub(crate) use self::view::{create_view_sql, drop_view_sql};
