//! Settings of the server and of the role's sessions, of those that the reference page on surroundings names.

use std::collections::HashMap;
use std::rc::Rc;

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::DescribedTable;
use diesel_sharded::model::ColumnType;

use crate::connection::AnyConnection;
use crate::live::{Kind, LiveTables};
use crate::statement::quoted;

use super::finding::Finding;

type Tables = [(Rc<LiveTables>, DescribedTable)];

pub fn check(tables: &Tables, conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    match conn.dialect() {
        Dialect::Postgres => postgres(tables, conn),
        Dialect::Mysql => mysql(tables, conn),
        _ => sqlite(conn),
    }
}

/// Settings by their names, in small letters.
struct Settings(HashMap<String, String>);

impl Settings {
    fn read(sql: &str, conn: &mut AnyConnection) -> QueryResult<Self> {
        let rows = conn.rows(sql, &[])?;
        let settings = rows.iter().map(|row| {
            let value = row.get(1).unwrap_or_default();
            Ok((row.text(0)?.to_lowercase(), value.to_owned()))
        });
        settings.collect::<QueryResult<_>>().map(Settings)
    }

    /// Empty where the server has no such setting.
    fn get(&self, name: &str) -> &str {
        self.0.get(name).map(String::as_str).unwrap_or_default()
    }

    fn is_on(&self, name: &str) -> bool {
        matches!(self.get(name), "1") || self.get(name).eq_ignore_ascii_case("on")
    }
}

const READ_ONLY: &str =
    "every count is refused here: use the primary, or a role whose sessions may write";

fn isolation(default: &str) -> Finding {
    let default = default.replace('-', " ").to_lowercase();
    match default.as_str() {
        "serializable" => Finding::warning(
            "isolation",
            "transactions are SERIALIZABLE by default: one that conflicts is ended by the database",
            "The library's own transactions set the level that they need. Wrap the application's in retry::transaction",
        ),
        _ => Finding::ok("isolation", format!("{default} by default")),
    }
}

fn postgres(tables: &Tables, conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    let settings = Settings::read(
        "SELECT name, setting FROM pg_settings WHERE name IN ('default_transaction_isolation', 'default_transaction_read_only', \
         'session_replication_role', 'extra_float_digits', 'lock_timeout', 'statement_timeout') \
         UNION ALL SELECT 'in_recovery', CASE WHEN pg_is_in_recovery() THEN 'on' ELSE 'off' END",
        conn,
    )?;
    let mut findings = vec![isolation(settings.get("default_transaction_isolation"))];
    findings.push(
        match (
            settings.is_on("in_recovery"),
            settings.is_on("default_transaction_read_only"),
        ) {
            (true, _) => Finding::problem("read-only", "this server is a standby", READ_ONLY),
            (_, true) => Finding::problem(
                "read-only",
                "default_transaction_read_only is on",
                READ_ONLY,
            ),
            _ => Finding::ok("read-only", "sessions may write"),
        },
    );
    if settings.get("session_replication_role") != "origin" {
        findings.push(Finding::problem(
            "foreign keys",
            "session_replication_role switches foreign keys and triggers off: deleted rows leave their shards, and a shard may appear in the middle of a fold",
            "Take the setting from the role and the database: ALTER ROLE … RESET session_replication_role",
        ));
    }
    let has_double = tables.iter().any(|(_, sharded)| {
        let mut fields = sharded.fields().iter();
        fields.any(|field| field.column_type() == ColumnType::Double)
    });
    if has_double && settings.get("extra_float_digits").starts_with('-') {
        findings.push(Finding::problem(
            "floats",
            "extra_float_digits is below 0: folds and sets of double fields see rounded numbers and refuse them",
            "Take the setting from the role and the database, or set it to 1",
        ));
    }
    findings.push(Finding::ok(
        "timeouts",
        format!(
            "lock_timeout is {} ms and statement_timeout {} ms (0 is none); one that ends a count is a conflict, and is retried",
            settings.get("lock_timeout"),
            settings.get("statement_timeout")
        ),
    ));
    Ok(findings)
}

fn mysql(tables: &Tables, conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    let settings = Settings::read(
        "SHOW VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation', 'tx_read_only', 'transaction_read_only', \
         'read_only', 'sql_mode', 'sql_select_limit', 'sql_safe_updates', 'binlog_format', 'log_bin', 'completion_type', \
         'foreign_key_checks', 'autocommit', 'group_replication_enforce_update_everywhere_checks', 'wsrep_on')",
        conn,
    )?;
    let either = |old: &str, new: &str| match settings.get(new) {
        "" => settings.get(old).to_owned(),
        value => value.to_owned(),
    };
    let mut findings = vec![isolation(&either("tx_isolation", "transaction_isolation"))];
    let read_only = ["tx_read_only", "transaction_read_only", "read_only"];
    findings.push(match read_only.iter().find(|name| settings.is_on(name)) {
        Some(name) => Finding::problem("read-only", format!("{name} is on"), READ_ONLY),
        None => Finding::ok("read-only", "sessions may write"),
    });
    let mode = settings.get("sql_mode");
    let is_strict = ["STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"]
        .iter()
        .any(|strict| mode.contains(strict));
    findings.push(match is_strict {
        true => Finding::ok("sql_mode", "strict"),
        false => Finding::warning(
            "sql_mode",
            "not strict: the server cuts numbers beyond the range of a column in silence. Counts and folds notice it and fail, other statements do not",
            "SET GLOBAL sql_mode = CONCAT(@@GLOBAL.sql_mode, ',STRICT_TRANS_TABLES');",
        ),
    });
    if !settings.is_on("foreign_key_checks") {
        findings.push(Finding::problem(
            "foreign keys",
            "foreign_key_checks is off: deleted rows leave their shards, and a shard may appear in the middle of a fold",
            "SET GLOBAL foreign_key_checks = ON;",
        ));
    }
    let limit = settings.get("sql_select_limit");
    if limit.parse().is_ok_and(|limit: u64| limit < u64::MAX) {
        findings.push(Finding::warning(
            "sql_select_limit",
            format!("queries without a limit return {limit} rows: `verify` refuses such a session"),
            "SET GLOBAL sql_select_limit = DEFAULT;",
        ));
    }
    if settings.is_on("sql_safe_updates") {
        findings.push(Finding::warning(
            "sql_safe_updates",
            "on: folds that remove shards are refused (1175)",
            "Switch it off on the connections that fold",
        ));
    }
    if settings.is_on("log_bin") && settings.get("binlog_format") == "STATEMENT" {
        findings.push(Finding::problem(
            "binlog_format",
            "STATEMENT: the server refuses every statement in READ COMMITTED (1665), such as folds, sets and counts by filter",
            "SET GLOBAL binlog_format = 'ROW';",
        ));
    }
    if !matches!(settings.get("completion_type"), "NO_CHAIN" | "0") {
        findings.push(Finding::problem(
            "completion_type",
            format!(
                "{}: each COMMIT opens another transaction or closes the connection, and the next count is never committed",
                settings.get("completion_type")
            ),
            "SET GLOBAL completion_type = NO_CHAIN;",
        ));
    }
    if !settings.is_on("autocommit") {
        findings.push(Finding::warning(
            "autocommit",
            "off: each statement begins a transaction, and a count waits for the application's COMMIT",
            "Switch it on unless the application commits by itself",
        ));
    }
    if settings.is_on("group_replication_enforce_update_everywhere_checks") {
        for (_, sharded) in tables
            .iter()
            .filter(|(_, sharded)| sharded.has_foreign_key())
        {
            findings.push(Finding::problem(
                "foreign keys",
                format!("all nodes of this group take writes, and {} has a foreign key: writes are refused (3098)", sharded.shards_table()),
                "Revert its migration, which folds, and write it by generate --no-foreign-key",
            ));
        }
    }
    if settings.is_on("wsrep_on") {
        findings.push(Finding::warning(
            "cluster",
            "this is a node of a Galera cluster: nodes that count on the same shard conflict",
            "Give each process a stripe of its own (shard_choice::Stripe); see docs/clusters.md",
        ));
    }
    findings.extend(engines(tables));
    Ok(findings)
}

/// Shards tables of another engine, which are not recognized as such: their changes cannot be taken back.
fn engines(tables: &Tables) -> Vec<Finding> {
    let Some((live, _)) = tables.first() else {
        return vec![];
    };
    let others = live.tables.values().filter_map(|table| match &table.kind {
        Kind::Engine(engine) => Some((&table.name, engine)),
        _ => None,
    });
    let shards = others.filter(|(name, _)| {
        let parent = name.strip_suffix("_shards");
        parent.is_some_and(|parent| live.tables.contains_key(parent))
    });
    let findings: Vec<_> = shards
        .map(|(name, engine)| {
            Finding::problem(
                "engine",
                format!("{name} uses {engine}, which takes no change back"),
                format!(
                    "ALTER TABLE {} ENGINE = InnoDB;",
                    quoted(Dialect::Mysql, name)
                ),
            )
        })
        .collect();
    match findings.is_empty() {
        true => vec![Finding::ok("engine", "all shards tables use InnoDB")],
        false => findings,
    }
}

fn sqlite(conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    let mode = conn.text("SELECT journal_mode FROM pragma_journal_mode", &[])?;
    let journal = match mode.as_deref().unwrap_or_default() {
        "wal" => Finding::ok(
            "journal",
            "WAL: readers and the writer do not wait for each other",
        ),
        mode => Finding::warning(
            "journal",
            format!("journal_mode is {mode}: readers and the writer wait for each other"),
            "PRAGMA journal_mode = WAL;",
        ),
    };
    let connections = Finding::ok(
        "connections",
        "busy_timeout, query_only and ignore_check_constraints belong to the application's connections, and are not seen from here: set \
         PRAGMA busy_timeout = 5000 on each, and leave the checks on",
    );
    Ok(vec![journal, connections])
}
