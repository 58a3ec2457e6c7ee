//! `diesel-sharded doctor`: looks at all that the library depends on, and changes nothing: the library's own tables, each sharded table,
//! settings of the server and of the role's sessions, and signs of a pooler.

use std::collections::HashMap;
use std::fmt;

use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::MIGRATIONS;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::{declared_type, fitting_name, migration_texts};
use diesel_sharded::model::{ColumnType, ShardsColumn, TableName};
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::condition::{
    Beside, Cache, Integrity, KeptBy, OutOfRange, missing_index, sorted_columns,
};
use crate::connection::AnyConnection;
use crate::error::{Ended, Error};
use crate::live::{Kind, LiveTable, LiveTables};
use crate::output::{self, Note, joined};
use crate::privilege::{Need, current_role, denied, enabled_roles, lacked};
use crate::resize::needs_of_counts;
use crate::setup::{LibraryMigration, RECORDS, State, recorded};
use crate::sharded::{self, COUNTERS, Sharded, names};
use crate::shell;
use crate::statement::quoted;
use crate::sums::{Sizes, range};

/// The findings whose conditions hold: level, check, condition, what it says, and the remedy where all is not well.
macro_rules! findings {
    ($($level:ident $check:literal $(if $holds:expr)? => $says:expr $(, $remedy:expr)?;)*) => {{
        let mut findings: Vec<Finding> = vec![];
        $($(if $holds)? {
            findings.push(Finding {
                level: Level::$level,
                check: $check,
                says: $says.into(),
                remedy: None$(.or(Some($remedy.into())))?,
            });
        })*
        findings
    }};
}

pub fn run(args: &DoctorArgs, url: Option<&str>, conn: &mut AnyConnection) -> Result<Ended, Error> {
    let pooler = pooler(url, conn)?; // first: the session is still as it came
    let named = sharded::named(&args.tables, conn)?;
    let mut all = library_tables(conn)?;
    all.extend(findings! {
        Warning "tables" if named.tables.is_empty() =>
            "there is no sharded table that this role may see",
            "diesel-sharded generate TABLE COLUMN";
    });
    for sharded in &named.tables {
        all.extend(table(sharded, conn)?);
    }
    all.extend(settings(&named.tables, conn)?);
    all.extend(pooler);
    named.note_left_out();
    match args.json {
        true => output::json(&all)?,
        false => show(&all)?,
    }
    let is_wrong = all.iter().any(|f| f.level == Level::Problem);
    Ok(Ended::left_over_if(is_wrong))
}

fn show(findings: &[Finding]) -> Result<(), Error> {
    for finding in findings {
        output::line(&finding.to_string())?;
    }
    let number = |level| findings.iter().filter(|f| f.level == level).count();
    let [ok, warnings, problems] = [Level::Ok, Level::Warning, Level::Problem].map(number);
    output::line(&format!(
        "\n{ok} ok, {warnings} to be looked at, {problems} wrong"
    ))
}

/// These findings of a check, or that all is well.
fn or_ok(findings: Vec<Finding>, check: &'static str, says: impl Into<String>) -> Vec<Finding> {
    match findings.is_empty() {
        true => vec![Finding::ok(check, says)],
        false => findings,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    Ok,
    /// It may be meant so.
    Warning,
    Problem,
}

/// The outcome of one check.
#[derive(Debug, Serialize)]
struct Finding {
    level: Level,
    check: &'static str,
    says: String,
    /// A command, a statement or a sentence.
    remedy: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, says: impl Into<String>) -> Self {
        Finding {
            level: Level::Ok,
            check,
            says: says.into(),
            remedy: None,
        }
    }

    fn of(level: Level, check: &'static str, note: Note) -> Self {
        Finding {
            level,
            remedy: Some(note.remedy),
            ..Finding::ok(check, note.says)
        }
    }

    /// What a note says, or that all is well.
    fn of_note(level: Level, check: &'static str, note: Option<Note>, well: String) -> Self {
        match note {
            Some(note) => Finding::of(level, check, note),
            None => Finding::ok(check, well),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Problem => "problem",
        };
        write!(f, "{level:<8} {}: {}", self.check, self.says)?;
        let remedy = self.remedy.iter().flat_map(|remedy| remedy.lines());
        for line in remedy {
            write!(f, "\n         {line}")?;
        }
        Ok(())
    }
}

/// The library's own tables, and the record of the migrations that create them.
fn library_tables(conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    let live = LiveTables::read(conn)?;
    let mut findings = vec![];
    let recorded = match recorded(&live, conn) {
        Err(DieselError::DatabaseError(_, refused)) => {
            let says = refused.message();
            findings.extend(findings! {
                Warning "library tables" =>
                    format!("the record of migrations cannot be read: {says}"),
                    format!("Run this as the role that migrates, or GRANT SELECT ON {RECORDS}");
            });
            None
        }
        recorded => Some(recorded?),
    };
    let texts = migration_texts(MIGRATIONS, &conn.backend())?;
    findings.extend(texts.iter().map(|text| {
        let migration = LibraryMigration::new(text, &live, recorded.as_deref());
        let level = match migration.state {
            State::Lost | State::Interrupted => Level::Problem,
            _ => Level::Warning,
        };
        let well = text.tables.join(", ");
        Finding::of_note(level, "library tables", migration.note(), well)
    }));
    Ok(findings)
}

/// The checks of one sharded table.
fn table(sharded: &Sharded, conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    let table = sharded.table();
    let mut all = vec![integrity(sharded, conn)?];
    all.extend(caches(sharded, conn)?);
    let live = |name: TableName<'_>| sharded.live.tables.get(name.name());
    if let (Some(parent), Some(shards)) = (live(table), live(sharded.shards_table())) {
        if let Kind::Engine(engine) = &parent.kind {
            all.extend(findings! {
                Problem "engine" =>
                    format!("{table} uses {engine}, which takes no change back: a fold that fails would lose counts"),
                    format!("ALTER TABLE {} ENGINE = InnoDB;", sharded.parent());
            });
        }
        all.extend(columns(sharded, parent, shards));
        all.extend(rules(sharded, shards, conn)?);
        let (_, notes) = Beside::of(sharded, conn)?;
        let notes = notes.into_iter();
        all.extend(notes.map(|note| Finding::of(Level::Warning, "triggers and checks", note)));
    }
    all.extend(index(sharded, conn)?);
    all.extend(sharded.within(conn, |conn| row_rules(sharded, conn))?);
    all.extend(privileges(sharded, conn)?);
    all.extend(match totals(sharded, conn) {
        Err(DieselError::DatabaseError(_, refused)) => findings! {
            Warning "fold" =>
                format!("the shards of {table} cannot be added up: {}", refused.message()),
                "Run this as a role that may read both tables";
        },
        found => found?,
    });
    Ok(all)
}

/// As far as few rows tell.
fn totals(sharded: &Sharded, conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    let table = sharded.table();
    let sizes = Sizes::read(sharded, false, conn)?;
    let fields = sharded.fields().iter();
    let ranged = fields.filter(|field| range(sharded.dialect, field).is_some());
    let is_exact = sizes.shards.is_exact();
    let well = match (is_exact, &*joined(", ", ranged.map(ShardsColumn::name))) {
        (false, _) => too_many(sharded, &sizes, "look at each total"),
        (true, "") => format!("every base of {table} is a number"),
        (true, ranged) => format!("every total of {table} is in the range of {ranged}"),
    };
    let out_of_range = match is_exact {
        true => OutOfRange::read(sharded, conn)?,
        false => vec![],
    };
    let note = OutOfRange::note(&out_of_range, table);
    let in_range = Finding::of_note(Level::Problem, "range", note, well);
    Ok(vec![unfolded(sharded, &sizes), in_range])
}

/// Rows or shards of which only the command that looks at each of them does this.
fn too_many(sharded: &Sharded, sizes: &Sizes, to_do: &str) -> String {
    let table = sharded.table();
    let number = match sizes.shards.is_exact() {
        true => sizes.rows.of("row"),
        false => sizes.shards.of("shard"),
    };
    let status = shell::command(["status", table.as_str(), "--exact"]);
    format!("{table} has {number}, too many to {to_do} here: `{status}`")
}

fn integrity(sharded: &Sharded, conn: &mut AnyConnection) -> QueryResult<Finding> {
    let integrity = Integrity::read(sharded, conn)?;
    let kept_by = match integrity.kept_by {
        KeptBy::ForeignKey => "a foreign key keeps",
        _ => "triggers keep",
    };
    let level = match integrity.is_broken() {
        true => Level::Problem,
        false => Level::Warning,
    };
    let well = format!("{kept_by} {} with its rows", sharded.shards_table());
    let note = integrity.note(sharded);
    Ok(Finding::of_note(level, "integrity", note, well))
}

fn caches(sharded: &Sharded, conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    let caches = Cache::read(sharded, None, conn)?.into_iter();
    let findings = caches.map(|cache| {
        let well = format!("{} has all of its triggers", cache.name);
        Finding::of_note(Level::Problem, "counter caches", cache.note(), well)
    });
    Ok(findings.collect())
}

fn index(sharded: &Sharded, conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    let (table, shards) = (sharded.table(), sharded.shards_table());
    let (sorted, others) = sharded.within(conn, |conn| {
        let others = catalog!(sharded.dialect, "other_indexes");
        let others = conn.texts(others, &[shards.name()])?;
        Ok((sorted_columns(conn, table.name())?, others))
    })?;
    // Without its primary key it would not have been recognized.
    let key = format!("the key of {shards} leads to its shards");
    let mut all = vec![Finding::ok("index", key)];
    for name in others {
        let name = quoted(sharded.dialect, &name);
        let drop = match (sharded.dialect, shards.schema()) {
            (Dialect::Mysql, _) => format!("DROP INDEX {name} ON {};", sharded.shards()),
            (dialect, Some(schema)) => format!("DROP INDEX {}.{name};", quoted(dialect, schema)),
            (_, None) => format!("DROP INDEX {name};"),
        };
        all.extend(findings! {
            Warning "index" =>
                format!("{shards} has another index, {name}: each count writes it too, on PostgreSQL none is updated in place (HOT) if it has a \
                    count, and a unique one brings deadlocks on MySQL"),
                drop;
        });
    }
    if table.as_str() != COUNTERS {
        all.extend(names(sharded.fields()).into_iter().map(|field| {
            let is_sorted = sorted.iter().any(|column| column == field);
            let note = (!is_sorted).then(|| missing_index(sharded, field));
            let well = format!("one begins with {table}.{field}, for `top`");
            Finding::of_note(Level::Warning, "index", note, well)
        }));
    }
    Ok(all)
}

fn unfolded(sharded: &Sharded, sizes: &Sizes) -> Finding {
    let table = sharded.table();
    let shares = sharded.fields().iter().zip(&sizes.sums);
    let shares = shares.filter_map(|(field, sums)| Some((field.name(), sums.share()?)));
    let shares: Vec<_> = shares.collect();
    if shares.is_empty() {
        return Finding::ok("fold", too_many(sharded, sizes, "add them up"));
    }
    let most = shares
        .iter()
        .fold(0.0, |most, (_, share)| f64::max(most, *share));
    let texts = shares
        .iter()
        .map(|(field, share)| format!("{:.1}% of {field}", share * 100.0));
    let (texts, shards) = (joined(", ", texts), sizes.shards.of("shard"));
    let on_shards = format!("{table} has {texts} on {shards}");
    let fold = shell::command(["fold", table.as_str()]);
    let remedy = format!("{fold}\nor in the application fold(..).every(..)");
    let note = (most > 0.5).then(|| Note::new(&*on_shards, remedy));
    Finding::of_note(Level::Warning, "fold", note, on_shards)
}

/// Columns that are not as the library would create them now, as after a change of the parent's columns.
fn columns(sharded: &Sharded, parent: &LiveTable, shards: &LiveTable) -> Vec<Finding> {
    let (dialect, name) = (sharded.dialect, sharded.shards_table());
    let key = sharded.key().iter().filter_map(|column| {
        let wanted = parent.column(column.name())?.full_type();
        Some((column, wanted, ""))
    });
    let fields = sharded.fields().iter().map(|field| {
        let wanted = declared_type(dialect, field).to_owned();
        (field, wanted, " DEFAULT 0")
    });
    let drifted = key.chain(fields).filter_map(|(column, wanted, default)| {
        let there = shards.column(column.name())?;
        if plain(&there.full_type()) == plain(&wanted) {
            return None;
        }
        let column = quoted(dialect, &there.name);
        let how = match dialect {
            Dialect::Mysql => format!("MODIFY {column} {wanted} NOT NULL{default}"),
            _ => format!("ALTER COLUMN {column} TYPE {wanted}"),
        };
        let says = format!(
            "{name}.{} is {}, and would be created as {} now: a count may overflow early, or a fold not fit",
            there.name,
            there.full_type(),
            wanted.to_lowercase()
        );
        let note = Note::new(says, alter(sharded, &how));
        Some(Finding::of(Level::Warning, "columns", note))
    });
    let well = format!("those of {name} have the types that they would be created with");
    or_ok(drifted.collect(), "columns", well)
}

/// A type without what says nothing: `INTEGER`, `int` and MariaDB's `int(11)` are one.
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

/// Rules by which counts stay exact, as the library would create them: the default of a field, its `CHECK`, and what the foreign key does.
fn rules(
    sharded: &Sharded,
    shards: &LiveTable,
    conn: &mut AnyConnection,
) -> QueryResult<Vec<Finding>> {
    let name = sharded.shards_table();
    let mut all = defaults(sharded, shards);
    let is_all_seen = sharded.within(conn, |conn| sees_constraints(shards, conn))?;
    if is_all_seen {
        all.extend(checks(sharded, shards, conn)?);
        all.extend(foreign_key(sharded, shards, conn)?);
    }
    let well = match is_all_seen {
        true => format!("defaults, checks and foreign key of {name} are as it would be created"),
        false => format!(
            "defaults of {name} are as it would be created; its checks and its foreign key this role may not see"
        ),
    };
    Ok(or_ok(all, "rules", well))
}

/// MySQL and MariaDB hide them from a role that may only read and write the rows.
fn sees_constraints(shards: &LiveTable, conn: &mut AnyConnection) -> QueryResult<bool> {
    if conn.dialect() != Dialect::Mysql {
        return Ok(true);
    }
    let primary_key = catalog!("mysql/", "primary_key");
    Ok(conn.text(primary_key, &[&shards.name])?.is_some())
}

fn checks(
    sharded: &Sharded,
    shards: &LiveTable,
    conn: &mut AnyConnection,
) -> QueryResult<Vec<Finding>> {
    let expected = sharded.checks_sql(&conn.backend())?;
    let name = sharded.shards_table();
    let mut all = vec![];
    for (field, expected) in names(sharded.fields()).into_iter().zip(expected) {
        let Some(expected) = expected else {
            continue;
        };
        let found = sharded.within(conn, |conn| Beside::read(conn, shards, &[field], ""))?;
        all.extend(findings! {
            Warning "rules" if found.checks.is_empty() =>
                format!("{name}.{field} has no CHECK: a shard that leaves its range may be kept as another number"),
                alter(sharded, &format!("ADD {expected}"));
        });
    }
    Ok(all)
}

/// The statement that alters the shards table, or the remedy where a table cannot be altered.
fn alter(sharded: &Sharded, how: &str) -> String {
    match sharded.dialect {
        Dialect::Sqlite => {
            "Revert the migration that created the shards table, which folds, and generate it again"
                .to_owned()
        }
        _ => format!("ALTER TABLE {} {how};", sharded.shards()),
    }
}

/// A shard is inserted by its key and its number alone.
fn defaults(sharded: &Sharded, shards: &LiveTable) -> Vec<Finding> {
    let columns = sharded.fields().iter();
    let columns = columns.filter_map(|field| shards.column(field.name()));
    let wrong = columns.filter(|column| !column.default.as_deref().is_some_and(is_zero));
    let finding = wrong.map(|column| {
        let name = format!("{}.{}", sharded.shards_table(), column.name);
        let says = match &column.default {
            Some(default) => format!(
                "{name} begins at {default} in place of 0: each new shard changes the total"
            ),
            None => format!("{name} has no default: no new shard can be created"),
        };
        let column = quoted(sharded.dialect, &column.name);
        let remedy = alter(sharded, &format!("ALTER COLUMN {column} SET DEFAULT 0"));
        Finding::of(Level::Problem, "rules", Note::new(says, remedy))
    });
    finding.collect()
}

/// `0`, `0.00`, `'0'::numeric`, `(0)::double precision`
fn is_zero(default: &str) -> bool {
    let (value, _) = default.split_once("::").unwrap_or((default, ""));
    let value = value.trim_matches(['(', ')', '\'', ' ']);
    value.parse::<f64>().is_ok_and(|number| number == 0.0)
}

/// SQLite has triggers beside it.
fn foreign_key(
    sharded: &Sharded,
    shards: &LiveTable,
    conn: &AnyConnection,
) -> QueryResult<Vec<Finding>> {
    let expected = sharded.foreign_key_sql(&conn.backend())?;
    let (Some(expected), false) = (expected, sharded.dialect == Dialect::Sqlite) else {
        return Ok(vec![]);
    };
    let to_parent = shards.foreign_keys.iter();
    let to_parent = to_parent.filter(|key| key.parent == sharded.table().name());
    let (cascade, wrong): (Vec<_>, Vec<_>) = to_parent.partition(|key| key.deletes && key.renames);
    let findings = wrong.iter().enumerate().map(|(i, key)| {
        let lost = match key.deletes {
            false => "ON DELETE: a row that has shards cannot be deleted",
            true => "ON UPDATE: a row that has shards cannot get another key",
        };
        let name = quoted(sharded.dialect, &key.name);
        let drop = match sharded.dialect {
            Dialect::Mysql => format!("DROP FOREIGN KEY {name}"),
            _ => format!("DROP CONSTRAINT {name}"),
        };
        let remedy = match sharded.dialect {
            // A key that cascades stays, or comes with the first of them.
            _ if i > 0 || !cascade.is_empty() => alter(sharded, &drop),
            Dialect::Mysql => {
                let add = alter(sharded, &format!("ADD {expected}"));
                format!("{}\n{add}", alter(sharded, &drop))
            }
            _ => alter(sharded, &format!("{drop}, ADD {expected}")),
        };
        let (key, shards) = (&key.name, sharded.shards_table());
        let says = format!("the foreign key {key} of {shards} has no CASCADE {lost}");
        Finding::of(Level::Problem, "rules", Note::new(says, remedy))
    });
    Ok(findings.collect())
}

/// Rules of PostgreSQL that stand between a count and its rows: row security, triggers that are switched off, triggers on shards. While
/// plain names lead to the table's schema.
fn row_rules(sharded: &Sharded, conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    if sharded.dialect != Dialect::Postgres {
        return Ok(vec![]);
    }
    let quoted = |name: &str| quoted(Dialect::Postgres, name);
    let shards = sharded.shards_table().name();
    let tables = [sharded.table().name(), shards];
    let secured = conn.texts(catalog!("postgres/", "secured"), &tables)?;
    let off = conn.texts(catalog!("postgres/", "switched_off"), &tables)?;
    let mut all = findings! {
        Warning "row security" if !secured.is_empty() =>
            format!("policies apply to {}", secured.join(", ")),
            "Run folds, sets and repairs as the table's owner or a role with BYPASSRLS: a row that a policy hides is not folded. Counts \
             are bound by policies of the shards table alone";
    };
    let schema = sharded.table().schema();
    let schema = schema.map(|schema| quoted(schema) + ".");
    let schema = schema.unwrap_or_default();
    for name in &off {
        all.extend(findings! {
            Problem "triggers" =>
                format!("triggers of {name} are switched off: a foreign key or triggers that keep shards with their rows may not act"),
                format!("ALTER TABLE {schema}{} ENABLE TRIGGER ALL;", quoted(name));
        });
    }
    let own = fitting_name(Dialect::Postgres, format!("{shards}_create"));
    let others = catalog!("postgres/", "other_triggers");
    for name in conn.texts(others, &[&own, shards])? {
        all.extend(findings! {
            Warning "triggers" =>
                format!("{shards} has a trigger {name}"),
                "A count does not read back what it wrote: no trigger may change what is written to the shards table";
        });
    }
    Ok(all)
}

/// Whether the role that runs the tool may count on a table, and fold it, by the catalogs.
fn privileges(sharded: &Sharded, conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    if sharded.dialect == Dialect::Sqlite {
        return Ok(vec![]); // it has no roles
    }
    let (table, shards) = (sharded.table(), sharded.shards_table());
    let count = ["INSERT", "UPDATE"].map(|privilege| Need::of(privilege, shards));
    let mut fold = vec![Need::of("UPDATE", shards), Need::of("DELETE", shards)];
    fold.extend(Need::to_update(sharded.fields(), table));
    if sharded.live.has_numbers && sharded.live.schema().is_none() {
        fold.extend(needs_of_counts());
    }
    let role = current_role(conn)?;
    let read = denied(&Need::to_read(sharded), conn)?;
    let enabled = enabled_roles(conn)?;
    let enabled = enabled.iter();
    let show: String = enabled
        .map(|role| format!("SHOW GRANTS FOR {role};\n"))
        .collect();
    let mut all = vec![];
    for (needs, to, level) in [
        (&count[..], "count on", Level::Problem),
        (&fold[..], "fold", Level::Warning), // another role may do it
    ] {
        let missing = [read.clone(), denied(needs, conn)?].concat();
        let grants = lacked(sharded.dialect, &missing, &role).grants;
        let may_not = format!("{role} may not {to} {table}");
        let (level, note) = match show.is_empty() {
            true => (level, Note::new(may_not, grants.join(";\n") + ";")),
            false => (
                Level::Warning,
                Note::new(
                    may_not + " by itself; what its roles may do the catalogs do not show",
                    &*show,
                ),
            ),
        };
        let note = (!grants.is_empty()).then_some(note);
        let well = format!("{role} may {to} {table}");
        all.push(Finding::of_note(level, "privileges", note, well));
    }
    Ok(all)
}

/// Settings of the server and of the role's sessions, of those that the reference page on surroundings names.
fn settings(tables: &[Sharded], conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
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
    let mut fields = tables.iter().flat_map(|sharded| sharded.fields());
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
    for sharded in tables.iter().filter(|sharded| sharded.has_foreign_key()) {
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
fn pooler(url: Option<&str>, conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
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
