//! PostgreSQL.
//!
//! Diesel passes on the server's text and no SQLSTATE, and the text is in the language of `lc_messages`, which only a superuser may change.

pub(super) mod ddl;

use diesel::result::DatabaseErrorKind;

use super::capabilities::{
    AsksPrimary, Capabilities, DropForm, KeepsAndLocks, OnceForm, OpenQuestion, Routine, Strength,
    SurvivalCheck, TotalForm, words,
};
use super::quoted::plain_literal;
use crate::conflict::{Conflict, ErrorClass};
use crate::model::{ColumnType, Merge};

/// Appears in the error of a guarded statement, in whatever language the server writes it.
pub(crate) const TAKEN_FOR_ANOTHER: &str =
    "diesel_sharded: this text was prepared for another statement";

/// Appears in the error of a statement that found a shard at first, but no longer when it counted.
pub(crate) const SHARD_REMOVED: &str = "diesel_sharded: the shard was removed meanwhile";

pub(super) const CAPABILITIES: Capabilities = Capabilities {
    name: "postgresql",
    creates_without_transaction: true,
    survival_check: Some(SurvivalCheck {
        at_begin: None,
        before_commit: "SELECT 1",
    }),
    asks_whether_open: OpenQuestion::Rows {
        // The query's own portal is among the cursors and was made when its parameters came. (The query's own time is that of its
        // execution, which is a later message.) The transaction's time is noted in a variable that ends with it.
        is_older: "SELECT 1 FROM pg_catalog.pg_cursors WHERE name = '' AND creation_time <> transaction_timestamp() \
                   AND set_config('diesel_sharded.began', transaction_timestamp()::text, true) IS NOT NULL",
        is_same: "SELECT 1 WHERE current_setting('diesel_sharded.began', true) = transaction_timestamp()::text",
    },
    // PostgreSQL lists no variable of an application's own.
    sets_in_transaction: &["LOCAL", "TRANSACTION"],
    changes_session,
    asks_identity: "SELECT CAST(ROW(pg_postmaster_start_time(), inet_server_addr(), inet_server_port(), current_database(), session_user, \
                    current_user, current_schemas(true), pg_my_temp_schema(), \
                    (SELECT string_agg(name || '=' || quote_literal(setting), ' ' ORDER BY name) FROM pg_catalog.pg_settings \
                    WHERE source IN ('client', 'session', 'user', 'database', 'database user') \
                    AND name <> 'application_name' AND name NOT LIKE 'transaction%')) AS TEXT)",
    refuses_after_errors: true,
    proves_refusal: |_| Some("SELECT 1"),
    keeps_and_locks: KeepsAndLocks::ConflictLocks,
    locks_rows: |strength| match strength {
        Strength::Exclusive => Some(" FOR NO KEY UPDATE"),
        Strength::ExclusiveAtOnce => Some(" FOR NO KEY UPDATE NOWAIT"),
        Strength::ExclusiveIfFree => Some(" FOR NO KEY UPDATE SKIP LOCKED"),
        Strength::Full => Some(" FOR UPDATE"),
    },
    unlocks_at_savepoints: true,
    supports_skip_locked: true,
    bounds_waits_for_locks: Some("SET LOCAL lock_timeout = '200ms'"),
    bounds_some_waits: Some([
        // The caller's own bound may be shorter.
        "SELECT set_config('diesel_sharded.lock_timeout', setting, true), \
         set_config('lock_timeout', CASE WHEN setting::integer BETWEEN 1 AND 49 THEN setting ELSE '50' END, true) \
         FROM pg_catalog.pg_settings WHERE name = 'lock_timeout'",
        "SELECT set_config('lock_timeout', current_setting('diesel_sharded.lock_timeout'), true)",
    ]),
    reads_what_is_safe: " FOR KEY SHARE",
    asks_primary: AsksPrimary::BehindWrite(
        "WITH \"sharded_primary\" AS (UPDATE ",
        " SET \"shard\" = 0 WHERE FALSE) ",
    ),
    hides_rows_from_locks: true,
    joins_values: true,
    inserts_unless_there: true,
    tells_rows_of_queries: true,
    counts_all_or_none: true,
    counts_once_by: Some(OnceForm::With),
    seconds_since_1970: "EXTRACT(EPOCH FROM statement_timestamp())::BIGINT",
    mistakes_statements: true,
    numbers_binds: true,
    // SUM widens: smallint and integer to bigint, bigint to numeric.
    total_form: |column| match column {
        ColumnType::SmallInt => TotalForm::Cast("smallint"),
        ColumnType::Integer => TotalForm::Cast("integer"),
        ColumnType::BigInt => TotalForm::Cast("bigint"),
        _ => TotalForm::Plain,
    },
    nan_refusal: |field| (field.merge == Merge::Min).then_some(" = 'NaN' THEN 'NaN' WHEN "),
    bytes_as_text: ("encode(", ", 'hex')"),
    pads_text: true,
    recounted: |field, is_sum| match field {
        ColumnType::Double => ("CAST(", " AS DOUBLE PRECISION)"),
        ColumnType::Numeric => ("CAST(", " AS NUMERIC)"),
        _ if is_sum => ("CAST(", " AS BIGINT)"),
        _ => ("", ""),
    },
    own_type: |column| match column {
        ColumnType::Double => Some("DOUBLE PRECISION"),
        ColumnType::Binary => Some("BYTEA"),
        ColumnType::Uuid => Some("UUID"),
        _ => None,
    },
    keeps_any_integer: false,
    double_check: Some(" NOT IN ('NaN', 'Infinity', '-Infinity')"),
    table_options: " WITH (fillfactor = 90)",
    security_invoker: ["", " WITH (security_invoker)"],
    quote: "\"",
    literal_with_backslash: |text| format!("E{}", plain_literal(text).replace('\\', r"\\")),
    in_a_block: ddl::in_a_block,
    copies_collations: true,
    drop_form: DropForm::Block,
    reason_not_dropped: |message| Some(message),
    temporary_schema: "pg_temp.",
    routine: Some(Routine::Function),
    triggers_call_functions: true,
    function_of_shards: ddl::function_of_shards,
    triggers_of_shards: ddl::triggers_of_shards,
    name_of_trigger: "CAST(t.tgname AS TEXT)",
    triggers_that_contain: ddl::triggers_that_contain,
    // After a counted table was dropped, the trigger on the parent remains.
    is_statements_trigger: " AND t.tgtype & 1 = 0",
    is_trigger_on: " AND t.tgenabled <> 'D'",
    refuse_second_cache: ddl::refuse_second_cache,
    asks_for_shard_numbers: Some(
        "SELECT 1 WHERE to_regclass('diesel_sharded_shard_numbers') IS NOT NULL",
    ),
    session_number: Some("pg_backend_pid()"),
    takes_name: |name| name.len() <= 63,
    error_texts: include_str!("postgres.txt"),
    class_of_kind: |kind| match kind {
        DatabaseErrorKind::SerializationFailure => ErrorClass::Conflict(Conflict::Serialization),
        DatabaseErrorKind::UnableToSendCommand => ErrorClass::ConnectionLost,
        // A standby, or a session whose transactions are read-only. PostgreSQL's drivers check both before they regard a server as
        // writable.
        DatabaseErrorKind::ReadOnlyTransaction => ErrorClass::NodeNotReady,
        _ => ErrorClass::Other,
    },
    ..Capabilities::PLAIN
};

fn changes_session(text: &str) -> bool {
    ["SET_CONFIG", "PG_SETTINGS", "PG_TEMP"]
        .iter()
        .any(|word| text.contains(word))
        || words(text).any(|word| matches!(word, "TEMP" | "TEMPORARY")) // SELECT … INTO TEMP …
}
