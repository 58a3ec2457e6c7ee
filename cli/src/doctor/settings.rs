//! Settings of the server and of the role's sessions, of those that the reference page on surroundings names, and signs of a pooler.

use std::collections::HashMap;

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::model::ColumnType;

use crate::connection::AnyConnection;
use crate::live::Kind;
use crate::output::Note;
use crate::sharded::Sharded;
use crate::statement::quoted;

use super::{Finding, Level, or_ok};

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

    /// What all servers have: the isolation level by default, and whether sessions may write, or why they may not.
    fn of_transactions(&self, isolation: &str, read_only: Option<String>) -> Vec<Finding> {
        let isolation = isolation.replace('-', " ").to_lowercase();
        let is_serializable = isolation == "serializable";
        findings! {
            Warning "isolation" if is_serializable =>
                "transactions are SERIALIZABLE by default: one that conflicts is ended by the database",
                "The library's own transactions set the level that they need. Wrap the application's in retry::transaction";
            Ok "isolation" if !is_serializable => format!("{isolation} by default");
            Ok "read-only" if read_only.is_none() => "sessions may write";
            Problem "read-only" if read_only.is_some() =>
                read_only.unwrap_or_default(),
                "every count is refused here: use the primary, or a role whose sessions may write";
        }
    }
}

fn postgres(tables: &[Sharded], conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    let settings = Settings::read(catalog!("postgres/", "settings"), conn)?;
    let read_only = match settings.is_on("in_recovery") {
        true => Some("this server is a standby"),
        false => settings
            .is_on("default_transaction_read_only")
            .then_some("default_transaction_read_only is on"),
    };
    let isolation = settings.get("default_transaction_isolation");
    let mut all = settings.of_transactions(isolation, read_only.map(str::to_owned));
    let mut fields = tables.iter().flat_map(Sharded::fields);
    let has_double = fields.any(|field| field.column_type() == ColumnType::Double);
    let (lock, statement) = (
        settings.get("lock_timeout"),
        settings.get("statement_timeout"),
    );
    all.extend(findings! {
        Problem "foreign keys" if settings.get("session_replication_role") != "origin" =>
            "session_replication_role switches foreign keys and triggers off: deleted rows leave their shards, and a shard may appear in the middle of a fold",
            "Take the setting from the role and the database: ALTER ROLE … RESET session_replication_role";
        Problem "floats" if has_double && settings.get("extra_float_digits").starts_with('-') =>
            "extra_float_digits is below 0: folds and sets of double fields see rounded numbers and refuse them",
            "Take the setting from the role and the database, or set it to 1";
        Ok "timeouts" =>
            format!("lock_timeout is {lock} ms and statement_timeout {statement} ms (0 is none); one that ends a count is a conflict, and is retried");
    });
    Ok(all)
}

fn mysql(tables: &[Sharded], conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    let settings = &Settings::read("SHOW VARIABLES", conn)?;
    let isolation = ["transaction_isolation", "tx_isolation"].map(|name| settings.get(name));
    let isolation = isolation.into_iter().find(|value| !value.is_empty());
    let read_only = ["tx_read_only", "transaction_read_only", "read_only"];
    let read_only = read_only.iter().find(|name| settings.is_on(name));
    let read_only = read_only.map(|name| format!("{name} is on"));
    let mut all = settings.of_transactions(isolation.unwrap_or_default(), read_only);
    let mode = settings.get("sql_mode");
    let mut strict = ["STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"].iter();
    let is_strict = strict.any(|strict| mode.contains(strict));
    let limit = settings.get("sql_select_limit");
    let completion = settings.get("completion_type");
    all.extend(findings! {
        Ok "sql_mode" if is_strict => "strict";
        Warning "sql_mode" if !is_strict =>
            "not strict: the server cuts numbers beyond the range of a column in silence. Counts and folds notice it and fail, other statements do not",
            "SET GLOBAL sql_mode = CONCAT(@@GLOBAL.sql_mode, ',STRICT_TRANS_TABLES');";
        Problem "foreign keys" if !settings.is_on("foreign_key_checks") =>
            "foreign_key_checks is off: deleted rows leave their shards, and a shard may appear in the middle of a fold",
            "SET GLOBAL foreign_key_checks = ON;";
        Warning "sql_select_limit" if limit.parse().is_ok_and(|limit: u64| limit < u64::MAX) =>
            format!("queries without a limit return {limit} rows: `verify` refuses such a session"),
            "SET GLOBAL sql_select_limit = DEFAULT;";
        Warning "sql_safe_updates" if settings.is_on("sql_safe_updates") =>
            "on: folds that remove shards are refused (1175)",
            "Switch it off on the connections that fold";
        Problem "binlog_format" if settings.is_on("log_bin") && settings.get("binlog_format") == "STATEMENT" =>
            "STATEMENT: the server refuses every statement in READ COMMITTED (1665), such as folds, sets and counts by filter",
            "SET GLOBAL binlog_format = 'ROW';";
        Problem "completion_type" if !matches!(completion, "NO_CHAIN" | "0") =>
            format!("{completion}: each COMMIT opens another transaction or closes the connection, and the next count is never committed"),
            "SET GLOBAL completion_type = NO_CHAIN;";
        Warning "autocommit" if !settings.is_on("autocommit") =>
            "off: each statement begins a transaction, and a count waits for the application's COMMIT",
            "Switch it on unless the application commits by itself";
    });
    let all_write = settings.is_on("group_replication_enforce_update_everywhere_checks");
    for sharded in tables
        .iter()
        .filter(|sharded| sharded.described.has_foreign_key())
    {
        all.extend(findings! {
            Problem "foreign keys" if all_write =>
                format!("all nodes of this group take writes, and {} has a foreign key: writes are refused (3098)", sharded.shards_table()),
                "Revert its migration, which folds, and write it by generate --no-foreign-key";
        });
    }
    all.extend(findings! {
        Warning "cluster" if settings.is_on("wsrep_on") =>
            "this is a node of a Galera cluster: nodes that count on the same shard conflict",
            "Give each process a stripe of its own (shard_choice::Stripe); see docs/clusters.md";
    });
    all.extend(engines(tables));
    Ok(all)
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
        Some(Finding::of(
            Level::Problem,
            "engine",
            Note::new(says, remedy),
        ))
    });
    or_ok(findings.collect(), "engine", "all shards tables use InnoDB")
}

fn sqlite(conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    let mode = conn.text("SELECT journal_mode FROM pragma_journal_mode", &[])?;
    let mode = mode.unwrap_or_default();
    Ok(findings! {
        Ok "journal" if mode == "wal" => "WAL: readers and the writer do not wait for each other";
        Warning "journal" if mode != "wal" =>
            format!("journal_mode is {mode}: readers and the writer wait for each other"),
            "PRAGMA journal_mode = WAL;";
        Ok "connections" =>
            "busy_timeout, query_only and ignore_check_constraints belong to the application's connections, and are not seen from here: set \
             PRAGMA busy_timeout = 5000 on each, and leave the checks on";
    })
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
    let rows = conn.rows(catalog!("postgres/", "session"), &[])?;
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
        _ => String::new(),
    };
    Ok(findings! {
        Ok "pooler" if found.is_empty() => "none is seen; one that has just opened its session is not";
        Warning "pooler" if !found.is_empty() => found, REMEDY;
    })
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
