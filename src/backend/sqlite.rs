//! SQLite.

mod ddl;

use std::sync::OnceLock;

use super::capabilities::{Capabilities, TotalForm};
use crate::model::ColumnType;
use crate::per_process::PerProcess;

pub(super) const CAPABILITIES: Capabilities = Capabilities {
    name: "sqlite",
    begins_immediate: true,
    notices_ends: ends_are_noticed,
    allows_idle_rollback: false,
    // After `RAISE(FAIL)` or `OR FAIL` in a trigger. `abs` raises the only error of an expression.
    proves_refusal: |is_commit| {
        (!is_commit)
            .then_some("SELECT CASE WHEN changes() > 0 THEN abs(-9223372036854775807 - 1) END")
    },
    // A database without a file is its connection's own, and so are temporary tables.
    savepoint_begins: true,
    asks_identity: "SELECT CASE WHEN MIN(COALESCE(file, '')) <> '' THEN group_concat(quote(name) || quote(file)) || (SELECT ' ' || foreign_keys FROM pragma_foreign_keys) \
                    || (SELECT ' ' || recursive_triggers FROM pragma_recursive_triggers) || (SELECT ' ' || synchronous FROM pragma_synchronous) \
                    || (SELECT ' ' || ignore_check_constraints FROM pragma_ignore_check_constraints) \
                    || (SELECT ' ' || query_only FROM pragma_query_only) END \
                    FROM (SELECT name, file FROM pragma_database_list ORDER BY seq)",
    keeps_after_errors: true,
    reads_bind_writes: true,
    locking_isolation: None,
    isolation_precedes_begin: None, // always serializable
    seconds_since_1970: "CAST(strftime('%s', 'now') AS INTEGER)",
    total_form: |column| match column {
        ColumnType::SmallInt => TotalForm::Checked("total BETWEEN -32768 AND 32767"),
        ColumnType::Integer => TotalForm::Checked("total BETWEEN -2147483648 AND 2147483647"),
        ColumnType::BigInt => TotalForm::Checked("typeof(total) = 'integer'"),
        ColumnType::Double | ColumnType::Numeric => {
            TotalForm::Checked("total BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308")
        }
        _ => TotalForm::Plain,
    },
    nan_refusal: |_| Some(" IS NULL THEN abs(-9223372036854775807 - 1) WHEN "),
    stores_nan_as_null: true,
    numerics_are_doubles: true,
    is_same: "IS",
    own_type: |column| (column == ColumnType::Binary).then_some("BLOB"),
    double_check: Some(" BETWEEN -1.7976931348623157e308 AND 1.7976931348623157e308"),
    table_options: " WITHOUT ROWID",
    foreign_key_actions: "",
    has_triggers: true,
    makes_one: ["SAVEPOINT diesel_sharded;\n", ";\nRELEASE diesel_sharded"],
    names_bare_in_triggers: true,
    asks_why_not_dropped: Some("SELECT unfit FROM temp.diesel_sharded_unfit"),
    temporary_schema: "temp.",
    body_of_trigger: [" BEGIN\n", ";\nEND"],
    triggers_of_shards: ddl::triggers_of_shards,
    triggers_that_contain: ddl::triggers_that_contain,
    refuse_second_cache: ddl::refuse_second_cache,
    error_texts: include_str!("sqlite.txt"),
    missing_table_text: Some(("no such table: ", "")),
    missing_column_text: Some(("no such column: ", "")),
    ..Capabilities::PLAIN
};

/// Whether this process's Diesel notices that SQLite has ended a transaction.
fn ends_are_noticed() -> bool {
    static ARE_NOTICED: PerProcess<OnceLock<bool>> = PerProcess::new(|_| OnceLock::new());
    *ARE_NOTICED.own().get_or_init(|| {
        #[cfg(feature = "sqlite")]
        {
            use diesel::connection::{
                AnsiTransactionManager as Transactions, SimpleConnection, TransactionManager,
            };
            use diesel::prelude::*;

            let Ok(conn) = &mut SqliteConnection::establish(":memory:") else {
                return true; // not what is asked here
            };
            let begun = Transactions::begin_transaction(conn);
            let ended = conn.batch_execute("ROLLBACK; no statement");
            let status = Transactions::transaction_manager_status_mut(conn);
            begun.is_err() || (ended.is_err() && matches!(status.transaction_depth(), Ok(None)))
        }
        #[cfg(not(feature = "sqlite"))]
        true
    })
}
