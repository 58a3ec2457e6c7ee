//! The shards table: its `CREATE TABLE` and `DROP TABLE`, as text and as a Diesel migration.

mod create;
mod fold_and_drop;
mod migration;
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

pub use self::migration::ShardsMigration;
pub(crate) use self::migration::{InTransaction, backend_behind};
pub use self::table::ShardsTable;
pub(crate) use self::table::{create_sql, drop_sql, missing_triggers};
pub(crate) use self::triggers::check_triggers;
pub use self::view::TotalsView;
pub(crate) use self::view::{create_view_sql, drop_view_sql};
pub use self::view_migration::ViewMigration;
