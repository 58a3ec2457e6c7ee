//! The errors of MySQL, MariaDB and the clusters that speak their protocol, by their texts.

use crate::conflict::{Conflict, Failure};

/// Tells the meaning of an error by its text.
pub(super) fn classify(message: &str) -> Failure {
    let message = behind_vitess(message);
    if is_deadlock_at_commit(message) {
        return Failure::Conflict(Conflict::Deadlock);
    }
    // 1180 of a cluster's node that lost the majority meanwhile: the other nodes may have committed, or not.
    if message.starts_with("Got error ") && message.ends_with(" during COMMIT") {
        return Failure::ConnectionLost;
    }
    // 1114: a table's file cannot grow.
    if message.starts_with("The table '") && message.ends_with("' is full") {
        return Failure::DiskFull;
    }
    let known = MESSAGES.iter().find(|(text, _)| message.starts_with(text));
    known.map_or(Failure::Other, |(_, failure)| *failure)
}

/// The text of the server behind Vitess, which puts the place of the failure before it:
/// `target: app.-80.primary: vttablet: rpc error: code = Aborted desc = Deadlock found … (errno 1213) (sqlstate 40001)`.
fn behind_vitess(message: &str) -> &str {
    let place = message.strip_prefix("target: ");
    let behind = place.and_then(|place| place.split_once(": vttablet: rpc error: code = "));
    let described = behind.and_then(|(_, code)| code.split_once(" desc = "));
    described.map_or(message, |(_, text)| text)
}

/// Whether a trigger in place of a foreign key refused a shard whose row is gone, by a subquery of two rows: 1242.
pub(super) fn is_parent_gone(message: &str) -> bool {
    message.starts_with("Subquery returns more than 1 row")
}

/// Whether an overflow is a `CHECK`'s of MariaDB: 4025. MySQL's has a kind of Diesel's.
pub(super) fn is_check(message: &str) -> bool {
    message.starts_with(CHECK)
}

const CHECK: &str = "CONSTRAINT `";

/// 3101 of Group Replication: another node has committed a write to one of the same rows.
const CERTIFICATION_FAILED: &str =
    "Plugin instructed the server to rollback the current transaction";

/// Whether an error of an unknown kind has ended the whole transaction: MySQL's 1213 and 3101, and MariaDB's 1020.
pub(super) fn ends_transaction(message: &str) -> bool {
    let message = behind_vitess(message);
    message.starts_with("Deadlock found when trying to get lock")
        || message.starts_with("Record has changed since last read")
        || is_of_a_commit(message)
}

/// 1305
pub(super) fn is_savepoint_gone(message: &str) -> bool {
    let message = behind_vitess(message);
    message.starts_with("SAVEPOINT ") && message.ends_with(" does not exist")
}

/// Whether an error is one that only a commit gives: those of Group Replication's certification.
pub(super) fn is_of_a_commit(message: &str) -> bool {
    message.starts_with(CERTIFICATION_FAILED) || is_deadlock_at_commit(message)
}

/// Whether a write of another node aborted a transaction of Group Replication as it was about to commit: 1180 with InnoDB's 149.
fn is_deadlock_at_commit(message: &str) -> bool {
    message.starts_with("Got error 149 ") && message.ends_with(" during COMMIT")
}

/// The error of a statement that counted on fewer rows than it should have.
pub(crate) const INTERRUPTED_UNHEARD: &str =
    "diesel_sharded: the statement was interrupted, or rows changed meanwhile";

/// The setting of a session that refused a statement, and the remedy.
pub(super) fn refused_by(message: &str) -> Option<(&'static str, &'static str)> {
    let refusal = REFUSALS.iter().find(|(text, ..)| message.starts_with(text));
    refusal.map(|(_, setting, remedy)| (*setting, *remedy))
}

const REFUSALS: [(&str, &str, &str); 4] = [
    (
        // 3098
        "The table does not comply with the requirements by an external plugin",
        "group_replication_enforce_update_everywhere_checks",
        "create the shards table by `ShardsTable::of(..).without_foreign_key()`, and the library's own by \
         `MIGRATIONS.without_foreign_key()`; MySQL Group Replication also wants a primary key and InnoDB of every table",
    ),
    (
        // 1665
        "Cannot execute statement: impossible to write to binary log since BINLOG_FORMAT = STATEMENT",
        "binlog_format",
        "set it to ROW or MIXED, since counts run in READ COMMITTED (`SET SESSION binlog_format = 'ROW'` on new \
         connections, or for the server)",
    ),
    (
        // 1419
        "You do not have the SUPER privilege and binary logging is enabled",
        "log_bin_trust_function_creators",
        "set it to ON for the server, or let a user with the privilege SUPER create the triggers",
    ),
    (
        // 1175
        "You are using safe update mode",
        "sql_safe_updates",
        "name rows by their keys, or turn it off (`SET SESSION sql_safe_updates = 0`)",
    ),
];

/// Diesel drops MySQL's error numbers; the texts are those of the server's default language and of the client library.
/// Sources: MySQL 9 error reference, MariaDB `errmsg-utf8.txt`, both client libraries' `errmsg.c`, mysql_async's `error/mod.rs`.
const MESSAGES: &[(&str, Failure)] = &[
    // 1213
    (
        "Deadlock found when trying to get lock",
        Failure::Conflict(Conflict::Deadlock),
    ),
    // 1205; MariaDB answers NOWAIT with it too
    (
        "Lock wait timeout exceeded",
        Failure::Conflict(Conflict::LockTimeout),
    ),
    // 3572, MySQL's NOWAIT
    (
        "Statement aborted because lock(s) could not be acquired immediately",
        Failure::Conflict(Conflict::LockTimeout),
    ),
    // 1020, MariaDB under innodb_snapshot_isolation
    (
        "Record has changed since last read",
        Failure::Conflict(Conflict::Serialization),
    ),
    (
        CERTIFICATION_FAILED,
        Failure::Conflict(Conflict::Serialization),
    ),
    // 3024 (MySQL), 1969 (MariaDB)
    (
        "Query execution was interrupted, maximum statement execution time exceeded",
        Failure::Conflict(Conflict::StatementTimeout),
    ),
    (
        "Query execution was interrupted (max_statement_time exceeded)",
        Failure::Conflict(Conflict::StatementTimeout),
    ),
    (
        INTERRUPTED_UNHEARD,
        Failure::Conflict(Conflict::StatementTimeout),
    ),
    // 2006, 2013, 2055; 1927, 1053, 4031; 1158 to 1161
    ("Server has gone away", Failure::ConnectionLost),
    ("MySQL server has gone away", Failure::ConnectionLost),
    ("Lost connection to", Failure::ConnectionLost),
    ("Connection was killed", Failure::ConnectionLost),
    ("Server shutdown in progress", Failure::ConnectionLost),
    (
        "The client was disconnected by the server",
        Failure::ConnectionLost,
    ),
    (
        "Got an error reading communication packets",
        Failure::ConnectionLost,
    ),
    (
        "Got timeout reading communication packets",
        Failure::ConnectionLost,
    ),
    (
        "Got an error writing communication packets",
        Failure::ConnectionLost,
    ),
    (
        "Got timeout writing communication packets",
        Failure::ConnectionLost,
    ),
    // mysql_async, which `diesel_async` is built on: any error of the socket, and the errors that follow it
    ("Input/output error: ", Failure::ConnectionLost),
    (
        "Driver error: `Connection to the server is closed.'",
        Failure::ConnectionLost,
    ),
    (
        "Driver error: `Packet out of order.'",
        Failure::ConnectionLost,
    ),
    // 1180 of MariaDB Galera, whatever was replicated: at COMMIT, of a node that lost the majority meanwhile
    (
        "Error while appending streaming replication fragment",
        Failure::ConnectionLost,
    ),
    // 3100 of Group Replication: at COMMIT, of a node that left the group meanwhile
    (
        "Error on observer while running replication hook",
        Failure::ConnectionLost,
    ),
    // 1047 of Galera; 1290, of which other options have other texts
    (
        "WSREP has not yet prepared node for application use",
        Failure::NodeNotReady,
    ),
    (
        "The MySQL server is running with the --read-only option",
        Failure::NodeNotReady,
    ),
    (
        "The MySQL server is running with the --super-read-only option",
        Failure::NodeNotReady,
    ),
    (
        "The MariaDB server is running with the --read-only option",
        Failure::NodeNotReady,
    ),
    // TiDB's 9007 and 8005, 8022, 8002, 8028, each after it rolled back; and a commit whose outcome it does not know
    (
        "Write conflict, txnStartTS",
        Failure::Conflict(Conflict::Serialization),
    ),
    (
        "Error: KV error safe to retry",
        Failure::Conflict(Conflict::Serialization),
    ),
    (
        "can not retry select for update statement",
        Failure::Conflict(Conflict::Serialization),
    ),
    (
        "Information schema is changed during the execution of the statement",
        Failure::Conflict(Conflict::Serialization),
    ),
    ("execution result undetermined", Failure::ConnectionLost),
    // 1264; 1690
    ("Out of range value for column", Failure::Overflow),
    ("BIGINT value is out of range in", Failure::Overflow),
    (
        "BIGINT UNSIGNED value is out of range in",
        Failure::Overflow,
    ),
    ("DECIMAL value is out of range in", Failure::Overflow),
    ("DOUBLE value is out of range in", Failure::Overflow),
    (CHECK, Failure::Overflow),
    // 1021; 1030 from the storage engine. 1114 names a table in between, see `classify`
    ("Disk full (", Failure::DiskFull),
    ("Got error 28 ", Failure::DiskFull),
];
