//! `diesel-sharded doctor` checks everything that the library depends on, and changes nothing: the library's own tables, each sharded
//! table, settings of the server and of the role's sessions, and signs of a pooler.

use std::collections::HashMap;
use std::mem;

use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::MIGRATIONS;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::{declared_type, migration_texts};
use diesel_sharded::model::TableName;

use crate::args::DoctorArgs;
use crate::condition::{Beside, Condition};
use crate::connection::AnyConnection;
use crate::error::{Ended, Error};
use crate::finding::{Finding, Level};
use crate::live::{Kind, LiveTable, LiveTables};
use crate::output;
use crate::privilege::{Need, current_role, denied, enabled_roles, lacked};
use crate::resize::needs_of_counts;
use crate::setup::{LibraryMigration, RECORDS, recorded};
use crate::sharded::{self, Sharded, names};
use crate::statement::quoted;

/// Adds the findings whose conditions hold. Each has a level, a check, a condition, a text, and a remedy unless all is well.
macro_rules! find {
    ($all:expr; $($level:ident $check:literal $(if $holds:expr)? => $says:expr $(, $remedy:expr)?;)*) => {
        $($(if $holds)? {
            $all.push(Finding::$level($check, $says $(, $remedy)?));
        })*
    };
}

pub fn run(args: &DoctorArgs, conn: &mut AnyConnection) -> Result<Ended, Error> {
    let mut doctor = Doctor { conn, all: vec![] };
    doctor.pooler()?; // first, while the session is unchanged
    let pooler = mem::take(&mut doctor.all);
    let tables = &sharded::named(&args.tables, output::note, doctor.conn)?;
    doctor.library_tables()?;
    find!(doctor.all;
        warning "tables" if tables.is_empty() =>
            "there is no sharded table that this role may see",
            "diesel-sharded generate TABLE COLUMN";
    );
    for sharded in tables {
        doctor.table(sharded)?;
    }
    doctor.settings(tables)?;
    let mut all = doctor.all;
    all.extend(pooler);
    let number = |level| all.iter().filter(|found| found.level == level).count();
    let [ok, warnings, problems] = [Level::Ok, Level::Warning, Level::Problem].map(number);
    if args.json {
        output::json(&all)?;
    } else {
        let sums = format!("\n{ok} ok, {warnings} to be looked at, {problems} wrong");
        let mut lines = all.iter().map(Finding::listed).chain([sums]);
        lines.try_for_each(|line| output::line(&line))?;
    }
    Ok(Ended::left_over_if(problems > 0))
}

/// A connection, and the findings so far.
struct Doctor<'c> {
    conn: &'c mut AnyConnection,
    all: Vec<Finding>,
}

impl Doctor<'_> {
    /// Adds a finding that all is well, if the check has added none since there were `before` findings.
    fn or_ok(&mut self, before: usize, check: &'static str, says: impl Into<String>) {
        if self.all.len() == before {
            self.all.push(Finding::ok(check, says));
        }
    }

    /// Checks the library's own tables and the record of the migrations that create them.
    fn library_tables(&mut self) -> QueryResult<()> {
        let live = LiveTables::read(self.conn)?;
        let recorded = match recorded(&live, self.conn) {
            Err(DieselError::DatabaseError(_, refused)) => {
                let (says, role) = (refused.message(), current_role(self.conn)?);
                find!(self.all;
                    warning "library tables" =>
                        format!("the record of migrations cannot be read: {says}"),
                        format!("Run this as the role that migrates, or GRANT SELECT ON {RECORDS} TO {role};");
                );
                None
            }
            recorded => Some(recorded?),
        };
        for text in &migration_texts(MIGRATIONS, &self.conn.backend())? {
            let migration = LibraryMigration::new(text, &live, recorded.as_deref());
            self.all.push(migration.finding());
        }
        Ok(())
    }

    /// Checks one sharded table.
    fn table(&mut self, sharded: &Sharded) -> QueryResult<()> {
        let condition = Condition::read(sharded, self.conn)?;
        self.all.extend(condition.findings);
        let live = |name: TableName<'_>| sharded.live.tables.get(name.name());
        if let (Some(parent), Some(shards)) = (live(sharded.table()), live(sharded.shards_table()))
        {
            self.columns(sharded, parent, shards);
            self.rules(sharded, shards)?;
        }
        self.other_indexes(sharded)?;
        self.row_rules(sharded)?;
        self.privileges(sharded)
    }

    /// Looks for indexes of the shards table other than its key. Every increment writes them.
    fn other_indexes(&mut self, sharded: &Sharded) -> QueryResult<()> {
        let shards = sharded.shards_table();
        let others = catalog!(sharded.dialect, "other_indexes");
        let others = sharded.within(self.conn, |conn| conn.texts(others, &[shards.name()]))?;
        for name in others {
            let index = sharded.beside(&name);
            let name = quoted(sharded.dialect, &name);
            let drop = match sharded.dialect {
                Dialect::Mysql => format!("DROP INDEX {name} ON {};", sharded.shards()),
                _ => format!("DROP INDEX {index};"),
            };
            let says = format!(
                "{shards} has another index, {name}: each count writes it too, on PostgreSQL none is updated in place (HOT) if it \
                 has a count, and a unique one brings deadlocks on MySQL"
            );
            self.all.push(Finding::warning("index", says, drop));
        }
        Ok(())
    }

    /// Looks for columns that the library would now create differently, perhaps since the parent's columns have changed.
    fn columns(&mut self, sharded: &Sharded, parent: &LiveTable, shards: &LiveTable) {
        let (dialect, name) = (sharded.dialect, sharded.shards_table());
        let key = sharded.key.iter().filter_map(|column| {
            let wanted = parent.column(column.name())?.full_type();
            let lost =
                "a row whose key does not fit is not counted on, and on PostgreSQL a fold fails";
            Some((column, wanted, "", lost))
        });
        let fields = sharded.fields.iter().map(|field| {
            let wanted = declared_type(dialect, field).to_owned();
            let lost = "a count may overflow early, or a fold not fit";
            (field, wanted, " DEFAULT 0", lost)
        });
        let before = self.all.len();
        for (column, wanted, default, lost) in key.chain(fields) {
            let there = shards.column(column.name());
            let Some(there) = there.filter(|there| plain(&there.full_type()) != plain(&wanted))
            else {
                continue;
            };
            let column = quoted(dialect, &there.name);
            let how = match dialect {
                Dialect::Mysql => format!("MODIFY {column} {wanted} NOT NULL{default}"),
                _ => format!("ALTER COLUMN {column} TYPE {wanted}"),
            };
            let (column, is, wanted) = (&there.name, there.full_type(), wanted.to_lowercase());
            let says =
                format!("{name}.{column} is {is}, and would be created as {wanted} now: {lost}");
            let remedy = alter(sharded, &how);
            self.all.push(Finding::warning("columns", says, remedy));
        }
        let well = format!("those of {name} have the types that they would be created with");
        self.or_ok(before, "columns", well);
    }

    /// Checks the rules that keep totals exact against those that the library would create: a field's default, its `CHECK`, and the actions
    /// of the foreign key.
    fn rules(&mut self, sharded: &Sharded, shards: &LiveTable) -> QueryResult<()> {
        let (name, before) = (sharded.shards_table(), self.all.len());
        self.defaults(sharded, shards);
        // MySQL and MariaDB hide constraints from a role that may only read and write rows.
        let key = catalog!("mysql/", "primary_key");
        let is_all_seen = sharded.dialect != Dialect::Mysql
            || sharded
                .within(self.conn, |conn| conn.text(key, &[&shards.name]))?
                .is_some();
        if is_all_seen {
            self.checks(sharded, shards)?;
            self.foreign_key(sharded, shards)?;
        }
        let well = match is_all_seen {
            true => "defaults, checks and foreign key of NAME are as it would be created",
            false => {
                "defaults of NAME are as it would be created; its checks and its foreign key this role may not see"
            }
        };
        self.or_ok(before, "rules", well.replace("NAME", name.as_str()));
        Ok(())
    }

    fn checks(&mut self, sharded: &Sharded, shards: &LiveTable) -> QueryResult<()> {
        let expected = sharded.quoted(&self.conn.backend())?.checks_sql();
        let name = sharded.shards_table();
        for (field, expected) in names(&sharded.fields).into_iter().zip(expected) {
            let Some(expected) = expected else {
                continue;
            };
            let read = |conn: &mut _| Beside::read(conn, shards, &[field], "");
            let found = sharded.within(self.conn, read)?;
            find!(self.all;
                warning "rules" if found.checks.is_empty() =>
                    format!("{name}.{field} has no CHECK: a shard that leaves its range may be kept as another number"),
                    alter(sharded, &format!("ADD {expected}"));
            );
        }
        Ok(())
    }

    /// Checks that fields default to zero: an insert of a shard names only its key and number.
    fn defaults(&mut self, sharded: &Sharded, shards: &LiveTable) {
        let columns = sharded.fields.iter();
        let columns = columns.filter_map(|field| shards.column(field.name()));
        for column in columns.filter(|column| !column.default.as_deref().is_some_and(is_zero)) {
            let name = format!("{}.{}", sharded.shards_table(), column.name);
            let says = match &column.default {
                Some(default) => format!(
                    "{name} begins at {default} in place of 0: each new shard changes the total"
                ),
                None => format!("{name} has no default: no new shard can be created"),
            };
            let column = quoted(sharded.dialect, &column.name);
            let remedy = alter(sharded, &format!("ALTER COLUMN {column} SET DEFAULT 0"));
            self.all.push(Finding::problem("rules", says, remedy));
        }
    }

    /// Checks the foreign key, except on SQLite, where triggers exist beside it.
    fn foreign_key(&mut self, sharded: &Sharded, shards: &LiveTable) -> QueryResult<()> {
        let expected = sharded.quoted(&self.conn.backend())?.foreign_key_sql();
        let (Some(expected), false) = (expected, sharded.dialect == Dialect::Sqlite) else {
            return Ok(());
        };
        let to_parent = shards.foreign_keys.iter();
        let to_parent = to_parent.filter(|key| key.parent == sharded.table().name());
        let (cascade, wrong): (Vec<_>, Vec<_>) =
            to_parent.partition(|key| key.deletes && key.renames);
        for (i, key) in wrong.iter().enumerate() {
            let lost = match key.deletes {
                false => "ON DELETE: a row that has shards cannot be deleted",
                true => "ON UPDATE: a row that has shards cannot get another key",
            };
            let name = quoted(sharded.dialect, &key.name);
            let mut remedy = match sharded.dialect {
                Dialect::Mysql => alter(sharded, &format!("DROP FOREIGN KEY {name}")),
                _ => alter(sharded, &format!("DROP CONSTRAINT {name}")),
            };
            // If no foreign key cascades, the first remedy adds one.
            if i == 0 && cascade.is_empty() {
                let add = alter(sharded, &format!("ADD {expected}"));
                remedy = format!("{remedy}\n{add}");
            }
            let (key, shards) = (&key.name, sharded.shards_table());
            let says = format!("the foreign key {key} of {shards} has no CASCADE {lost}");
            self.all.push(Finding::problem("rules", says, remedy));
        }
        Ok(())
    }

    /// Looks for rules of PostgreSQL that can come between an increment and its rows: row security, disabled triggers, triggers on shards.
    fn row_rules(&mut self, sharded: &Sharded) -> QueryResult<()> {
        if sharded.dialect != Dialect::Postgres {
            return Ok(());
        }
        let shards = sharded.shards_table().name();
        let tables = [sharded.table().name(), shards];
        let own = Dialect::Postgres.fitting_name(format!("{shards}_create"));
        let (secured, off, others) = sharded.within(self.conn, |conn| {
            Ok((
                conn.texts(catalog!("postgres/", "secured"), &tables)?,
                conn.texts(catalog!("postgres/", "switched_off"), &tables)?,
                conn.texts(catalog!("postgres/", "other_triggers"), &[&own, shards])?,
            ))
        })?;
        find!(self.all;
            warning "row security" if !secured.is_empty() =>
                format!("policies apply to {}", secured.join(", ")),
                "Run folds, sets and repairs as the table's owner or a role with BYPASSRLS: a row that a policy hides is not folded. Counts \
                 are bound by policies of the shards table alone";
        );
        for name in &off {
            find!(self.all;
                problem "triggers" =>
                    format!("triggers of {name} are switched off: a foreign key or triggers that keep shards with their rows may not act"),
                    format!("ALTER TABLE {} ENABLE TRIGGER ALL;", sharded.beside(name));
            );
        }
        for name in others {
            find!(self.all;
                warning "triggers" =>
                    format!("{shards} has a trigger {name}"),
                    "A count does not read back what it wrote: no trigger may change what is written to the shards table";
            );
        }
        Ok(())
    }

    /// Checks by the catalogs whether the role that runs the tool may count on a table and fold it.
    fn privileges(&mut self, sharded: &Sharded) -> QueryResult<()> {
        if sharded.dialect == Dialect::Sqlite {
            return Ok(()); // it has no roles
        }
        let (table, shards) = (sharded.table(), sharded.shards_table());
        let count = ["INSERT", "UPDATE"].map(|privilege| Need::of(privilege, shards));
        let mut fold: Vec<_> = Need::to_fold(sharded, true).collect();
        if sharded.live.has_numbers && sharded.live.schema().is_none() {
            fold.extend(needs_of_counts());
        }
        let role = current_role(self.conn)?;
        let read = denied(&Need::to_read(sharded), self.conn)?;
        let roles = enabled_roles(self.conn)?.into_iter();
        let show = roles.map(|role| format!("SHOW GRANTS FOR {role};"));
        let show: Vec<_> = show.collect();
        for (needs, to, level) in [
            (&count[..], "count on", Level::Problem),
            (&fold[..], "fold", Level::Warning), // another role may do it
        ] {
            let missing = [read.clone(), denied(needs, self.conn)?].concat();
            let grants = lacked(sharded.dialect, &missing, &role).grants;
            let may_not = format!("{role} may not {to} {table}");
            self.all.push(match (&*grants, &*show) {
                ([], _) => Finding::ok("privileges", format!("{role} may {to} {table}")),
                (grants, []) => {
                    Finding::warning("privileges", may_not, grants.join(";\n") + ";").at(level)
                }
                (_, show) => {
                    let unknown = " by itself; what its roles may do the catalogs do not show";
                    Finding::warning("privileges", may_not + unknown, show.join("\n"))
                }
            });
        }
        Ok(())
    }

    /// Checks the settings, of the server and of the role's sessions, that the reference page on surroundings names.
    fn settings(&mut self, tables: &[Sharded]) -> QueryResult<()> {
        match self.conn.dialect() {
            Dialect::Postgres => self.postgres(),
            Dialect::Mysql => self.mysql(tables),
            _ => self.sqlite(),
        }
    }

    /// Checks the default isolation level, and whether sessions may write. `read_only` is the reason if they may not.
    fn transactions(&mut self, isolation: &str, read_only: Option<String>) {
        let isolation = isolation.replace('-', " ").to_lowercase();
        let is_serializable = isolation == "serializable";
        find!(self.all;
            warning "isolation" if is_serializable =>
                "transactions are SERIALIZABLE by default: one that conflicts is ended by the database",
                "The library's own transactions set the level that they need. Wrap the application's in retry::transaction";
            ok "isolation" if !is_serializable => format!("{isolation} by default");
            ok "read-only" if read_only.is_none() => "sessions may write";
            problem "read-only" if read_only.is_some() =>
                read_only.unwrap_or_default(),
                "every increment is refused here: use the primary, or a role whose sessions may write";
        );
    }

    fn postgres(&mut self) -> QueryResult<()> {
        let settings = Settings::read(catalog!("postgres/", "settings"), self.conn)?;
        let read_only = match settings.is_on("in_recovery") {
            true => Some("this server is a standby"),
            false => settings
                .is_on("default_transaction_read_only")
                .then_some("default_transaction_read_only is on"),
        };
        let isolation = settings.get("default_transaction_isolation");
        self.transactions(isolation, read_only.map(str::to_owned));
        let [lock, statement] =
            ["lock_timeout", "statement_timeout"].map(|name| settings.get(name));
        find!(self.all;
            problem "foreign keys" if settings.get("session_replication_role") != "origin" =>
                "session_replication_role switches foreign keys and triggers off: deleted rows leave their shards, and a shard may appear in the middle of a fold",
                "Take the setting from the role and the database: ALTER ROLE … RESET session_replication_role";
            ok "timeouts" =>
                format!("lock_timeout is {lock} ms and statement_timeout {statement} ms (0 is none); one that ends a count is a conflict, and is retried");
        );
        Ok(())
    }

    fn mysql(&mut self, tables: &[Sharded]) -> QueryResult<()> {
        let settings = &Settings::read("SHOW VARIABLES", self.conn)?;
        let isolation = ["transaction_isolation", "tx_isolation"].map(|name| settings.get(name));
        let isolation = isolation.into_iter().find(|value| !value.is_empty());
        let read_only = ["tx_read_only", "transaction_read_only", "read_only"];
        let read_only = read_only.iter().find(|name| settings.is_on(name));
        let read_only = read_only.map(|name| format!("{name} is on"));
        self.transactions(isolation.unwrap_or_default(), read_only);
        let mode = settings.get("sql_mode");
        let mut strict = ["STRICT_TRANS_TABLES", "STRICT_ALL_TABLES"].iter();
        let is_strict = strict.any(|strict| mode.contains(strict));
        let limit = settings.get("sql_select_limit");
        let completion = settings.get("completion_type");
        find!(self.all;
            ok "sql_mode" if is_strict => "strict";
            warning "sql_mode" if !is_strict =>
                "not strict: the server cuts numbers beyond the range of a column in silence. Counts and folds notice it and fail, other statements do not",
                "SET GLOBAL sql_mode = CONCAT(@@GLOBAL.sql_mode, ',STRICT_TRANS_TABLES');";
            problem "foreign keys" if !settings.is_on("foreign_key_checks") =>
                "foreign_key_checks is off: deleted rows leave their shards, and a shard may appear in the middle of a fold",
                "SET GLOBAL foreign_key_checks = ON;";
            warning "sql_select_limit" if limit.parse().is_ok_and(|limit: u64| limit < u64::MAX) =>
                format!("queries without a limit return {limit} rows: `verify` refuses such a session"),
                "SET GLOBAL sql_select_limit = DEFAULT;";
            warning "sql_safe_updates" if settings.is_on("sql_safe_updates") =>
                "on: folds that remove shards are refused (1175)",
                "Switch it off on the connections that fold";
            problem "binlog_format" if settings.is_on("log_bin") && settings.get("binlog_format") == "STATEMENT" =>
                "STATEMENT: the server refuses every statement in READ COMMITTED (1665), such as folds, sets and counts by filter",
                "SET GLOBAL binlog_format = 'ROW';";
            problem "completion_type" if !matches!(completion, "NO_CHAIN" | "0") =>
                format!("{completion}: each COMMIT opens another transaction or closes the connection, and the next count is never committed"),
                "SET GLOBAL completion_type = NO_CHAIN;";
            warning "autocommit" if !settings.is_on("autocommit") =>
                "off: each statement begins a transaction, and a count waits for the application's COMMIT",
                "Switch it on unless the application commits by itself";
        );
        let all_write = settings.is_on("group_replication_enforce_update_everywhere_checks");
        for sharded in tables.iter().filter(|sharded| sharded.has_foreign_key()) {
            find!(self.all;
                problem "foreign keys" if all_write =>
                    format!("all nodes of this group take writes, and {} has a foreign key: writes are refused (3098)", sharded.shards_table()),
                    "Revert its migration, which folds, and write it by generate --no-foreign-key";
            );
        }
        find!(self.all;
            warning "cluster" if settings.is_on("wsrep_on") =>
                "this is a node of a Galera cluster: nodes that count on the same shard conflict",
                "Give each process a stripe of its own (shard_choice::Stripe); see docs/clusters.md";
        );
        self.engines(tables);
        Ok(())
    }

    /// Looks for tables of another engine. Shards tables are not recognized there.
    fn engines(&mut self, tables: &[Sharded]) {
        let Some(Sharded { live, .. }) = tables.first() else {
            return;
        };
        let before = self.all.len();
        for (name, table) in &live.tables {
            let parent = name.strip_suffix("_shards");
            let is_shards = parent.is_some_and(|parent| live.tables.contains_key(parent));
            let is_parent = tables.iter().any(|sharded| sharded.table().name() == name);
            if let (Kind::Engine(engine), true) = (&table.kind, is_shards || is_parent) {
                let says = format!(
                    "{name} uses {engine}, which takes no change back: a fold that fails would lose counts"
                );
                let name = quoted(Dialect::Mysql, name);
                let remedy = format!("ALTER TABLE {name} ENGINE = InnoDB;");
                self.all.push(Finding::problem("engine", says, remedy));
            }
        }
        self.or_ok(before, "engine", "all shards tables use InnoDB");
    }

    fn sqlite(&mut self) -> QueryResult<()> {
        let mode = "SELECT journal_mode FROM pragma_journal_mode";
        let mode = self.conn.text(mode, &[])?.unwrap_or_default();
        find!(self.all;
            ok "journal" if mode == "wal" => "WAL: readers and the writer do not wait for each other";
            warning "journal" if mode != "wal" =>
                format!("journal_mode is {mode}: readers and the writer wait for each other"),
                "PRAGMA journal_mode = WAL;";
            ok "connections" =>
                "busy_timeout, query_only and ignore_check_constraints belong to the application's connections, and are not seen from here: set \
                 PRAGMA busy_timeout = 5000 on each, and leave the checks on";
        );
        Ok(())
    }

    /// Looks for signs of a pooler between this connection and PostgreSQL.
    fn pooler(&mut self) -> QueryResult<()> {
        if self.conn.dialect() != Dialect::Postgres {
            return Ok(());
        }
        for row in self.conn.rows(catalog!("postgres/", "session"), &[])? {
            let (age, prepared): (i64, u64) = (row.parse(0)?, row.parse(1)?);
            find!(self.all;
                ok "pooler" if prepared == 0 && age < 2 => "none is seen; one that has just opened its session is not";
                warning "pooler" if prepared > 0 =>
                    format!("this session came with {prepared} prepared statements of another client: a pooler shares it"), REMEDY;
                warning "pooler" if prepared == 0 && age >= 2 =>
                    format!("the server's session is {age} s older than this connection: a pooler keeps it"), REMEDY;
            );
        }
        Ok(())
    }
}

/// The remedy for a pooler.
const REMEDY: &str = "Counts are safe behind any pooler. If it pools transactions and does not keep prepared statements (PgBouncer before 1.21, or \
without max_prepared_statements), give the application's connections set_prepared_statement_cache_size(CacheSize::Disabled); see \
docs/poolers.md";

/// A type in a normal form: `INTEGER`, `int` and MariaDB's `int(11)` are equal.
fn plain(sql_type: &str) -> String {
    let sql_type = sql_type.to_lowercase().replace(' ', "");
    let (name, rest) = match sql_type.split_once('(') {
        Some((name, rest)) => (name, rest.split_once(')').unwrap_or((rest, ""))),
        None => (sql_type.as_str(), ("", "")),
    };
    let name = name.replace("integer", "int");
    match name.ends_with("int") || rest.0.is_empty() {
        true => name + rest.1,
        false => format!("{name}({}){}", rest.0, rest.1),
    }
}

/// The statement that alters the shards table, or another remedy on SQLite, which cannot alter it that way.
fn alter(sharded: &Sharded, how: &str) -> String {
    match sharded.dialect {
        Dialect::Sqlite => {
            "Revert the migration that created the shards table, which folds, and generate it again"
                .to_owned()
        }
        _ => format!("ALTER TABLE {} {how};", sharded.shards()),
    }
}

/// `0`, `0.00`, `'0'::numeric`, `(0)::double precision`
fn is_zero(default: &str) -> bool {
    let (value, _) = default.split_once("::").unwrap_or((default, ""));
    let value = value.trim_matches(['(', ')', '\'', ' ']);
    value.parse::<f64>().is_ok_and(|number| number == 0.0)
}

/// Settings by their names in lower case.
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

    /// The setting's value; empty if the server has no such setting.
    fn get(&self, name: &str) -> &str {
        self.0.get(name).map(String::as_str).unwrap_or_default()
    }

    fn is_on(&self, name: &str) -> bool {
        matches!(self.get(name), "1") || self.get(name).eq_ignore_ascii_case("on")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_that_are_one() {
        for (one, other) in [
            ("INTEGER", "int(11)"),
            ("bigint(20) unsigned", "BIGINT UNSIGNED"),
            ("DECIMAL(20, 0)", "decimal(20,0)"),
            ("DOUBLE PRECISION", "double precision"),
        ] {
            assert_eq!(plain(one), plain(other));
        }
        for (one, other) in [
            ("integer", "bigint"),
            ("decimal(10,2)", "decimal(20,2)"),
            ("bigint", "bigint unsigned"),
            ("varchar(5)", "varchar(6)"),
        ] {
            assert_ne!(plain(one), plain(other));
        }
    }

    #[test]
    fn defaults_that_are_zero() {
        for default in [
            "0",
            "0.00",
            "'0'::numeric",
            "(0)::double precision",
            "'0'",
            "0e0",
        ] {
            assert!(is_zero(default), "{default}");
        }
        for default in ["1", "NULL", "nextval('a'::regclass)", "random()", ""] {
            assert!(!is_zero(default), "{default}");
        }
    }
}
