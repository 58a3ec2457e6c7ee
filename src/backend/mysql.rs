//! MySQL and MariaDB.

pub(super) mod ddl;

use diesel::result::DatabaseErrorKind;

use super::capabilities::{
    AsksPrimary, BegunTransactions, Capabilities, DropForm, Guard, KeepsAndLocks, OnceForm,
    OpenQuestion, Routine, Strength, SumsForm, SurvivalCheck,
};
use super::isolation::Isolation;
use crate::conflict::{Conflict, ErrorClass};
use crate::model::ColumnType;

/// The error of a statement that counted on fewer rows than it should have.
pub(crate) const INTERRUPTED_UNHEARD: &str =
    "diesel_sharded: the statement was interrupted, or rows changed meanwhile";

const AS_TEXT: (&str, &str) = ("CAST(", " AS CHAR)");

pub(super) const CAPABILITIES: Capabilities = Capabilities {
    name: "mysql",
    begins_by_statement: true,
    survival_check: Some(SurvivalCheck {
        at_begin: Some("SAVEPOINT diesel_sharded"),
        before_commit: "RELEASE SAVEPOINT diesel_sharded",
    }),
    guard: Some(Guard {
        before: "SET @diesel_sharded_autocommit = @@autocommit, autocommit = 0",
        at_begin: "SAVEPOINT diesel_sharded",
        before_commit: "RELEASE SAVEPOINT diesel_sharded",
        rollback: "ROLLBACK",
        after: "SET autocommit = COALESCE(@diesel_sharded_autocommit, @@autocommit), @diesel_sharded_autocommit = NULL",
    }),
    own_isolation: Some(Isolation::ReadCommitted),
    isolation_precedes_begin: Some(true),
    forgets_isolation: Some(
        "/*M!100000 SET @@tx_isolation = @@session.tx_isolation */\
         /*!50720 SET @@transaction_isolation = @@session.transaction_isolation */",
    ),
    // Not every driver reports how many rows a query returned. MySQL has no variable for an open transaction, but inside one it refuses to set
    // the access mode of the next. Outside, the statement sets that mode to the session's, and a mode that the caller has set for the next
    // transaction is lost.
    asks_whether_open: OpenQuestion::Statement(
        "/*M!100000 SET @diesel_sharded_open = (SELECT 0 UNION SELECT @@in_transaction) */\
         /*!50720 SET @@transaction_read_only = @@session.transaction_read_only */",
    ),
    changes_session: |text| text.contains('@'),
    // A UUID ends in numbers that a server chooses when it starts, and changes only when its clock goes back.
    asks_identity: "SELECT CAST(CONCAT_WS(' ', QUOTE(@@hostname), @@port, @@server_id, SUBSTRING(UUID(), 20), QUOTE(DATABASE()), \
                    QUOTE(CURRENT_USER()), /*!80000 QUOTE(CURRENT_ROLE()), */ QUOTE(@@sql_mode), @@autocommit, @@completion_type, \
                    @@foreign_key_checks, @@unique_checks, @@sql_safe_updates, @@sql_log_bin, @@time_zone, @@character_set_client, \
                    @@collation_connection, @@innodb_lock_wait_timeout, @@lock_wait_timeout, \
                    /*M!100000 @@tx_isolation, @@tx_read_only, @@max_statement_time, @@check_constraint_checks */\
                    /*!50720 @@transaction_isolation, @@transaction_read_only */) AS CHAR)",
    asks_whether_commits: Some(
        "/*M!100000 SET @diesel_sharded_open = (SELECT 0 UNION SELECT @@in_transaction OR @@autocommit = 0) */\
         /*!50720 SET @diesel_sharded_open = (SELECT 0 UNION SELECT @@autocommit = 0), \
         @@transaction_read_only = @@session.transaction_read_only */",
    ),
    proves_refusal: |is_commit| {
        (!is_commit)
            .then_some("SET @diesel_sharded_open = (SELECT 0 UNION SELECT @@error_count = 0)")
    },
    // MySQL's table of a session's status lacks these numbers. `SHOW` has them, needs no privilege, and returns no row here.
    asks_whether_was_open: Some(BegunTransactions {
        reads: "/*M!100000 SET @diesel_sharded_begun = (SELECT SUM(IF(VARIABLE_NAME = 'Com_begin', VARIABLE_VALUE, -VARIABLE_VALUE)) FROM information_schema.session_status \
                WHERE VARIABLE_NAME IN ('Com_begin', 'Com_commit', 'Com_rollback')), \
                @diesel_sharded_committed = 0, @diesel_sharded_rolled_back = 0 */\
                /*!50720 SHOW SESSION STATUS WHERE Variable_name IN ('Com_begin', 'Com_commit', 'Com_rollback') \
                AND CASE Variable_name WHEN 'Com_begin' THEN @diesel_sharded_begun := Value \
                WHEN 'Com_commit' THEN @diesel_sharded_committed := Value ELSE @diesel_sharded_rolled_back := Value END IS NULL */",
        asks: "SET @diesel_sharded_open = (SELECT 0 UNION SELECT @@autocommit = 0 OR @diesel_sharded_begun \
               - @diesel_sharded_committed - @diesel_sharded_rolled_back + COALESCE(@diesel_sharded_surplus, 0) > 0)",
        notes: "SET @diesel_sharded_surplus = GREATEST(COALESCE(@diesel_sharded_surplus, 0), \
                @diesel_sharded_committed + @diesel_sharded_rolled_back - @diesel_sharded_begun)",
    }),
    keeps_and_locks: KeepsAndLocks::DuplicateKeyLocks,
    locks_rows: |strength| match strength {
        Strength::Exclusive | Strength::Full => Some(" FOR UPDATE"),
        Strength::ExclusiveAtOnce | Strength::ExclusiveIfFree => Some(" FOR UPDATE NOWAIT"),
    },
    reads_what_is_locked: " FOR UPDATE",
    reads_what_is_safe: " FOR UPDATE",
    asks_primary: AsksPrimary::InTransaction,
    shares_lock: " LOCK IN SHARE MODE",
    missing_row_locks_gap: true,
    finds_without_a_look: "/*M!110600 TRUE OR */ ",
    reads_bind_writes: true,
    waits_unseen_for_tables: true,
    joins_before_set: true,
    joins_end_early: true,
    joins_to_few: "STRAIGHT_JOIN",
    keeps_order: Some(" LIMIT 18446744073709551615"),
    deletes_by_alias: true,
    counts_only_inserted: false,
    names_conflict_target: false,
    counts_once_by: Some(OnceForm::Compound),
    sums_form: |is_filtered| SumsForm::GroupJoined {
        straight: !is_filtered,
    },
    finds_none: ("(", " LIMIT 1) IS NULL"),
    seconds_since_1970: "CAST(UNIX_TIMESTAMP() AS SIGNED)",
    clients_have_faults: true,
    unread_reply_breaks_connection: true,
    is_same: "<=>",
    as_text: AS_TEXT,
    // The same number of fractional digits for each value.
    time_as_text: ("CAST(CAST(", " AS DATETIME(6)) AS CHAR)"),
    own_type: |column| match column {
        ColumnType::TinyInt => Some("TINYINT"),
        ColumnType::Float => Some("FLOAT"),
        ColumnType::Numeric => Some("DECIMAL(65, 20)"),
        ColumnType::Text => Some("VARCHAR(255)"),
        ColumnType::Binary => Some("VARBINARY(255)"),
        // Its `TIMESTAMP` ends in 2038, and a fraction that is not kept would be rounded.
        ColumnType::Timestamp | ColumnType::Timestamptz => Some("DATETIME(6)"),
        _ => None,
    },
    roomy_type: |column| match column {
        ColumnType::SmallInt => Some("INTEGER"),
        ColumnType::Integer => Some("BIGINT"),
        _ => None,
    },
    check_of_cut_values: inside_of,
    table_options: " ENGINE = InnoDB",
    security_invoker: ["SQL SECURITY INVOKER ", ""],
    reads_what_triggers_write: false,
    literal_with_backslash: |text| {
        let bytes = text.bytes().map(|byte| format!("{byte:02X}"));
        format!("_utf8mb4 x'{}'", bytes.collect::<String>())
    },
    backslash_escapes: true,
    commits_definitions: true,
    cuts_keys: true,
    drop_form: DropForm::UnderLocks,
    asks_why_not_dropped: Some("SELECT CAST(@diesel_sharded_unfit AS CHAR)"),
    reason_not_dropped: |message| {
        let duplicate = message.strip_prefix("Duplicate entry '")?;
        duplicate.rsplit_once("' for key ").map(|(text, _)| text)
    },
    refuses_own_name: |constraint| constraint.chars().count() >= 64,
    routine: Some(Routine::Procedure),
    triggers_of_shards: ddl::triggers_of_shards,
    asks_for_trigger: |schema, trigger| {
        Some(format!(
            "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = {schema} AND TRIGGER_NAME = {trigger}"
        ))
    },
    create_at_once: ddl::create_at_once,
    name_of_trigger: "CAST(TRIGGER_NAME AS CHAR)",
    triggers_that_contain: ddl::triggers_that_contain,
    // An interruption may give NULL.
    text_or_none: ["COALESCE(", ", '')"],
    any_text: ["SELECT COALESCE(MIN(", "), '') FROM ", ""],
    concatenated: ["CONCAT(", ", ", ")"],
    refuse_second_cache: ddl::refuse_second_cache,
    session_number: Some("CONNECTION_ID()"),
    takes_name: |name| name.chars().count() <= 64,
    error_texts: include_str!("mysql.txt"),
    text_behind_proxy: behind_vitess,
    class_of_kind: |kind| match kind {
        // Diesel gives this kind to 1213.
        DatabaseErrorKind::SerializationFailure => ErrorClass::Conflict(Conflict::Deadlock),
        _ => ErrorClass::Other,
    },
    deadlock_ends_transaction: true,
    refusals: include_str!("mysql_refusals.txt"),
    missing_table_text: Some(("Table '", "' doesn't exist")),
    missing_column_text: Some(("Unknown column '", "' in '")),
    ..Capabilities::PLAIN
};

/// The text of the server behind Vitess, which puts the place of the failure before it:
/// `target: app.-80.primary: vttablet: rpc error: code = Aborted desc = Deadlock found … (errno 1213) (sqlstate 40001)`.
fn behind_vitess(message: &str) -> &str {
    let place = message.strip_prefix("target: ");
    let behind = place.and_then(|place| place.split_once(": vttablet: rpc error: code = "));
    let described = behind.and_then(|(_, code)| code.split_once(" desc = "));
    described.map_or(message, |(_, text)| text)
}

/// ` BETWEEN the least + 1 AND the greatest - 1` for a type that MySQL cuts values to. An integer that leaves the range of a
/// `BIGINT` is an error in each mode.
fn inside_of(sql_type: &str) -> Option<String> {
    let sql_type = sql_type.trim().to_ascii_uppercase();
    let (name, rest) = match sql_type.find(|c: char| !c.is_ascii_alphanumeric()) {
        Some(end) => sql_type.split_at(end),
        None => (&*sql_type, ""),
    };
    let bits = match name {
        "TINYINT" | "INT1" => 8,
        "SMALLINT" | "INT2" => 16,
        "MEDIUMINT" | "INT3" => 24,
        "INT" | "INTEGER" | "INT4" => 32,
        "DECIMAL" | "NUMERIC" | "DEC" | "FIXED" => return inside_of_decimal(rest),
        _ => return None,
    };
    let half = 1_i64 << (bits - 1);
    Some(match rest.contains("UNSIGNED") {
        // A shard begins at zero.
        true => format!(" BETWEEN 0 AND {}", 2 * half - 2),
        false => format!(" BETWEEN {} AND {}", 1 - half, half - 2),
    })
}

/// The same for a `DECIMAL`. `rest` follows its name: `(10, 2)`, `(10)` or nothing.
fn inside_of_decimal(rest: &str) -> Option<String> {
    let numbers = match rest.trim_start().strip_prefix('(') {
        Some(rest) => rest.split_once(')')?.0,
        None => "10",
    };
    let (digits, scale) = numbers.split_once(',').unwrap_or((numbers, "0"));
    let digits: usize = digits.trim().parse().ok()?;
    let scale: usize = scale.trim().parse().ok()?;
    if !(1..=65).contains(&digits) || scale > digits {
        return None;
    }
    let mut last = "9".repeat(digits - 1) + "8";
    if scale > 0 {
        last.insert(digits - scale, '.');
        last.insert_str(0, if scale == digits { "0" } else { "" });
    }
    Some(format!(" BETWEEN -{last} AND {last}"))
}
