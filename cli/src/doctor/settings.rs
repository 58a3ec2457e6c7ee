//! Settings of the server and of the role's sessions, of those that the reference page on surroundings names, and signs of a pooler.

use std::collections::HashMap;

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::model::ColumnType;

use crate::connection::AnyConnection;
use crate::live::Kind;
use crate::sharded::Sharded;
use crate::statement::quoted;

use super::Finding;

pub fn check(tables: &[Sharded], conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
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

/// Or the reason why they may not.
fn sessions_write(read_only: Option<String>) -> Finding {
    let remedy = "every count is refused here: use the primary, or a role whose sessions may write";
    match read_only {
        Some(says) => Finding::problem("read-only", says, remedy),
        None => Finding::ok("read-only", "sessions may write"),
    }
}

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

fn postgres(tables: &[Sharded], conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    let settings = Settings::read(
        "SELECT name, setting FROM pg_settings WHERE name IN ('default_transaction_isolation', 'default_transaction_read_only', \
         'session_replication_role', 'extra_float_digits', 'lock_timeout', 'statement_timeout') \
         UNION ALL SELECT 'in_recovery', CASE WHEN pg_is_in_recovery() THEN 'on' ELSE 'off' END",
        conn,
    )?;
    let mut findings = vec![isolation(settings.get("default_transaction_isolation"))];
    let read_only = match settings.is_on("in_recovery") {
        true => Some("this server is a standby"),
        false => settings
            .is_on("default_transaction_read_only")
            .then_some("default_transaction_read_only is on"),
    };
    findings.push(sessions_write(read_only.map(str::to_owned)));
    if settings.get("session_replication_role") != "origin" {
        findings.push(Finding::problem(
            "foreign keys",
            "session_replication_role switches foreign keys and triggers off: deleted rows leave their shards, and a shard may appear in the middle of a fold",
            "Take the setting from the role and the database: ALTER ROLE … RESET session_replication_role",
        ));
    }
    let mut fields = tables.iter().flat_map(|sharded| sharded.table.fields());
    let has_double = fields.any(|field| field.column_type() == ColumnType::Double);
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

fn mysql(tables: &[Sharded], conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    let settings = Settings::read("SHOW VARIABLES", conn)?;
    let either = |old: &str, new: &str| match settings.get(new) {
        "" => settings.get(old).to_owned(),
        value => value.to_owned(),
    };
    let mut findings = vec![isolation(&either("tx_isolation", "transaction_isolation"))];
    let read_only = ["tx_read_only", "transaction_read_only", "read_only"];
    let read_only = read_only.iter().find(|name| settings.is_on(name));
    findings.push(sessions_write(
        read_only.map(|name| format!("{name} is on")),
    ));
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
        let tables = tables.iter().map(|sharded| &sharded.table);
        for sharded in tables.filter(|sharded| sharded.has_foreign_key()) {
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
fn engines(tables: &[Sharded]) -> Vec<Finding> {
    let Some(Sharded { live, .. }) = tables.first() else {
        return vec![];
    };
    let shards = live.tables.values().filter(|table| {
        let parent = table.name.strip_suffix("_shards");
        parent.is_some_and(|parent| live.tables.contains_key(parent))
    });
    let findings = shards.filter_map(|table| {
        let (Kind::Engine(engine), name) = (&table.kind, &table.name) else {
            return None;
        };
        let says = format!("{name} uses {engine}, which takes no change back");
        let name = quoted(Dialect::Mysql, name);
        let remedy = format!("ALTER TABLE {name} ENGINE = InnoDB;");
        Some(Finding::problem("engine", says, remedy))
    });
    let findings: Vec<_> = findings.collect();
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

/// Of a pooler.
const REMEDY: &str = "Counts are safe behind any pooler. If it pools transactions and does not keep prepared statements (PgBouncer before 1.21, or \
without max_prepared_statements), give the application's connections set_prepared_statement_cache_size(CacheSize::Disabled); see \
docs/poolers.md";

/// Whether a pooler stands between this connection and PostgreSQL, as far as the session tells.
pub fn pooler(url: Option<&str>, conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    if conn.dialect() != Dialect::Postgres {
        return Ok(vec![]);
    }
    let session = "SELECT CAST(CAST(EXTRACT(EPOCH FROM clock_timestamp() - backend_start) AS BIGINT) AS TEXT), \
         CAST((SELECT COUNT(*) FROM pg_prepared_statements) AS TEXT), CAST(inet_server_port() AS TEXT) \
         FROM pg_stat_activity WHERE pid = pg_backend_pid()";
    let rows = conn.rows(session, &[])?;
    let Some(row) = rows.first() else {
        return Ok(vec![]);
    };
    let (age, prepared): (i64, u64) = (row.parse(0)?, row.parse(1)?);
    let server_port = row.get(2).and_then(|port| port.parse::<u16>().ok());
    let found = match server_port.zip(url.and_then(port)) {
        _ if prepared > 0 => format!(
            "this session came with {prepared} prepared statements of another client: a pooler shares it"
        ),
        _ if age >= 2 => {
            format!("the server's session is {age} s older than this connection: a pooler keeps it")
        }
        Some((server, asked)) if server != asked => format!(
            "the server listens on port {server}, and this connection goes to {asked}: a pooler, a proxy or a forwarded port"
        ),
        _ => {
            return Ok(vec![Finding::ok(
                "pooler",
                "none is seen; one that has just opened its session is not",
            )]);
        }
    };
    Ok(vec![Finding::warning("pooler", found, REMEDY)])
}

/// The port in a database's address, which is 5432 where it names a host alone.
fn port(url: &str) -> Option<u16> {
    let (_, place) = url.split_once("://")?;
    let host = place.split(['/', '?']).next()?;
    let host = host.rsplit('@').next()?;
    match host.rsplit_once(':') {
        Some((_, port)) => port.parse().ok(),
        None => (!host.is_empty()).then_some(5432),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports() {
        for (url, expected) in [
            ("postgres://a:b@h:6432/db", Some(6432)),
            ("postgres://h/db?x=y:1", Some(5432)),
            ("postgresql:///db?host=/tmp", None),
            ("postgres://h:x/db", None),
            ("file.db", None),
        ] {
            assert_eq!(port(url), expected, "{url}");
        }
    }
}
