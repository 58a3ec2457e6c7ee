//! The checks of one sharded table.

use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::{declared_type, fitting_name};
use diesel_sharded::model::{ShardsColumn, TableName};

use super::{Finding, Level};
use crate::beside::Beside;
use crate::connection::AnyConnection;
use crate::indexes::{self, other_indexes, sorted_columns};
use crate::integrity::{Cache, Integrity, KeptBy};
use crate::key::Keyed;
use crate::live::{Kind, LiveColumn, LiveTable};
use crate::out_of_range::OutOfRange;
use crate::output::Note;
use crate::privilege::{Need, current_role, denied, enabled_roles, lacked};
use crate::resize::needs_of_counts;
use crate::sharded::{COUNTERS, names};
use crate::shell;
use crate::size::Sizes;
use crate::statement::quoted;
use crate::sums::range;

const COLUMNS: &str = "columns";
const RULES: &str = "rules";
const PRIVILEGES: &str = "privileges";

pub fn check(keyed: Keyed<'_>, conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    let (table, shards) = (keyed.sharded.table(), keyed.sharded.shards_table());
    let mut findings = vec![integrity(keyed, conn)?];
    findings.extend(caches(keyed, conn)?);
    let tables = &keyed.live.tables;
    if let (Some(parent), Some(of_shards)) = (tables.get(table.name()), tables.get(shards.name())) {
        if let Kind::Engine(engine) = &parent.kind {
            findings.push(Finding::problem(
                "engine",
                format!("{table} uses {engine}, which takes no change back: a fold that fails would lose counts"),
                format!("ALTER TABLE {} ENGINE = InnoDB;", keyed.parent()),
            ));
        }
        findings.extend(columns(keyed, parent, of_shards));
        findings.extend(rules(keyed, of_shards, conn)?);
        let beside = Beside::of(keyed, conn)?.notes.into_iter();
        findings
            .extend(beside.map(|note| Finding::of(Level::Warning, "triggers and checks", note)));
    }
    findings.extend(index(keyed, conn)?);
    findings.extend(keyed.within(conn, |conn| row_rules(keyed, conn))?);
    findings.extend(privileges(keyed, conn)?);
    findings.extend(match totals(keyed, conn) {
        Err(DieselError::DatabaseError(_, refused)) => vec![Finding::warning(
            "fold",
            format!(
                "the shards of {table} cannot be added up: {}",
                refused.message()
            ),
            "Run this as a role that may read both tables",
        )],
        found => found?,
    });
    Ok(findings)
}

/// As far as few rows tell.
fn totals(keyed: Keyed<'_>, conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    const CHECK: &str = "range";
    let table = keyed.sharded.table();
    let sizes = Sizes::read(keyed, false, conn)?;
    let fields = keyed.fields().iter();
    let ranged = fields.filter(|field| range(keyed.dialect, field).is_some());
    let ranged: Vec<_> = ranged.map(ShardsColumn::name).collect();
    let out_of_range = match sizes.shards.is_exact() {
        true => OutOfRange::note(&OutOfRange::read(keyed, conn)?, table),
        false => None,
    };
    let in_range = match (out_of_range, ranged.join(", ")) {
        (Some(note), _) => Finding::of(Level::Problem, CHECK, note),
        _ if !sizes.shards.is_exact() => {
            let (shards, status) = (sizes.shards.of("shard"), status_exact(table));
            let says =
                format!("{table} has {shards}, too many to look at each total here: `{status}`");
            Finding::ok(CHECK, says)
        }
        (None, ranged) if ranged.is_empty() => {
            Finding::ok(CHECK, format!("every base of {table} is a number"))
        }
        (None, ranged) => Finding::ok(
            CHECK,
            format!("every total of {table} is in the range of {ranged}"),
        ),
    };
    Ok(vec![unfolded(keyed, &sizes), in_range])
}

fn integrity(keyed: Keyed<'_>, conn: &mut AnyConnection) -> QueryResult<Finding> {
    const CHECK: &str = "integrity";
    let integrity = Integrity::read(keyed, conn)?;
    let kept_by = match integrity.kept_by {
        KeptBy::ForeignKey => "a foreign key keeps",
        _ => "triggers keep",
    };
    let shards = keyed.sharded.shards_table();
    let level = match integrity.is_broken() {
        true => Level::Problem,
        false => Level::Warning,
    };
    Ok(match integrity.note(keyed.sharded) {
        Some(note) => Finding::of(level, CHECK, note),
        None => Finding::ok(CHECK, format!("{kept_by} {shards} with its rows")),
    })
}

fn caches(keyed: Keyed<'_>, conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    const CHECK: &str = "counter caches";
    let caches = Cache::read(keyed, None, conn)?.into_iter();
    let finding = caches.map(|cache| match cache.note() {
        Some(note) => Finding::of(Level::Problem, CHECK, note),
        None => Finding::ok(CHECK, format!("{} has all of its triggers", cache.name)),
    });
    Ok(finding.collect())
}

fn index(keyed: Keyed<'_>, conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    const CHECK: &str = "index";
    let (table, shards) = (keyed.sharded.table(), keyed.sharded.shards_table());
    let (sorted, others) = keyed.within(conn, |conn| {
        let sorted = sorted_columns(conn, table.name())?;
        Ok((sorted, other_indexes(conn, shards.name())?))
    })?;
    // Without its primary key it would not have been recognized.
    let key = format!("the key of {shards} leads to its shards");
    let mut findings = vec![Finding::ok(CHECK, key)];
    for name in others {
        let name = quoted(keyed.dialect, &name);
        let drop = match (keyed.dialect, shards.schema()) {
            (Dialect::Mysql, _) => format!("DROP INDEX {name} ON {};", keyed.shards()),
            (dialect, Some(schema)) => format!("DROP INDEX {}.{name};", quoted(dialect, schema)),
            (_, None) => format!("DROP INDEX {name};"),
        };
        findings.push(Finding::warning(
            CHECK,
            format!(
                "{shards} has another index, {name}: each count writes it too, on PostgreSQL none is updated in place (HOT) if it has a \
                 count, and a unique one brings deadlocks on MySQL"
            ),
            drop,
        ));
    }
    if table.as_str() != COUNTERS {
        let fields = names(keyed.fields()).into_iter();
        findings.extend(
            fields.map(|field| match sorted.iter().any(|column| column == field) {
                true => Finding::ok(CHECK, format!("one begins with {table}.{field}, for `top`")),
                false => Finding::of(Level::Warning, CHECK, indexes::note(keyed, field)),
            }),
        );
    }
    Ok(findings)
}

/// The command that looks at every row.
fn status_exact(table: TableName<'_>) -> String {
    shell::command(["status", table.as_str(), "--exact"])
}

fn unfolded(keyed: Keyed<'_>, sizes: &Sizes) -> Finding {
    const CHECK: &str = "fold";
    let table = keyed.sharded.table();
    let shares = keyed.fields().iter().zip(&sizes.sums);
    let shares = shares.filter_map(|(field, sums)| Some((field.name(), sums.share()?)));
    let (mut most, mut texts) = (0.0, vec![]);
    for (field, share) in shares {
        most = f64::max(most, share);
        texts.push(format!("{:.1}% of {field}", share * 100.0));
    }
    let shards = sizes.shards.of("shard");
    if texts.is_empty() {
        let too_many = match sizes.shards.is_exact() {
            true => sizes.rows.of("row"),
            false => shards,
        };
        let status = status_exact(table);
        let says = format!("{table} has {too_many}, too many to add them up here: `{status}`");
        return Finding::ok(CHECK, says);
    }
    let on_shards = format!("{table} has {} on {shards}", texts.join(", "));
    let fold = shell::command(["fold", table.as_str()]);
    match most > 0.5 {
        true => {
            let remedy = format!("{fold}\nor in the application fold(..).every(..)");
            Finding::warning(CHECK, on_shards, remedy)
        }
        false => Finding::ok(CHECK, on_shards),
    }
}

/// Columns that are not as the library would create them now, as after a change of the parent's columns.
fn columns(keyed: Keyed<'_>, parent: &LiveTable, shards: &LiveTable) -> Vec<Finding> {
    let key = keyed.sharded.key().iter().filter_map(|column| {
        let there = shards.column(column.name())?;
        let wanted = parent.column(column.name())?;
        let same = plain(&there.sql_type) == plain(&wanted.sql_type)
            && there.collation == wanted.collation;
        (!same).then(|| drift(keyed, there, &full_type(wanted), ""))
    });
    let fields = keyed.fields().iter().filter_map(|field| {
        let there = shards.column(field.name())?;
        let wanted = declared_type(keyed.dialect, field);
        let same = plain(&there.sql_type) == plain(wanted);
        (!same).then(|| drift(keyed, there, wanted, " DEFAULT 0"))
    });
    let findings: Vec<_> = key.chain(fields).collect();
    let shards = keyed.sharded.shards_table();
    let all_well = format!("those of {shards} have the types that they would be created with");
    match findings.is_empty() {
        true => vec![Finding::ok(COLUMNS, all_well)],
        false => findings,
    }
}

fn drift(keyed: Keyed<'_>, there: &LiveColumn, wanted: &str, default: &str) -> Finding {
    let column = quoted(keyed.dialect, &there.name);
    let how = match keyed.dialect {
        Dialect::Mysql => format!("MODIFY {column} {wanted} NOT NULL{default}"),
        _ => format!("ALTER COLUMN {column} TYPE {wanted}"),
    };
    Finding::warning(
        COLUMNS,
        format!(
            "{}.{} is {}, and would be created as {} now: a count may overflow early, or a fold not fit",
            keyed.sharded.shards_table(),
            there.name,
            full_type(there),
            wanted.to_lowercase()
        ),
        alter(keyed, &how),
    )
}

fn full_type(column: &LiveColumn) -> String {
    match &column.collation {
        Some(collation) => format!("{} {collation}", column.sql_type),
        None => column.sql_type.clone(),
    }
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
    keyed: Keyed<'_>,
    shards: &LiveTable,
    conn: &mut AnyConnection,
) -> QueryResult<Vec<Finding>> {
    let mut findings = defaults(keyed, shards);
    let is_all_seen = keyed.within(conn, |conn| sees_constraints(shards, conn))?;
    if is_all_seen {
        findings.extend(checks(keyed, shards, conn)?);
        findings.extend(foreign_key(keyed, shards, conn)?);
    }
    if findings.is_empty() {
        let name = keyed.sharded.shards_table();
        let says = match is_all_seen {
            true => {
                format!("defaults, checks and foreign key of {name} are as it would be created")
            }
            false => format!(
                "defaults of {name} are as it would be created; its checks and its foreign key this role may not see"
            ),
        };
        findings.push(Finding::ok(RULES, says));
    }
    Ok(findings)
}

/// MySQL and MariaDB hide them from a role that may only read and write the rows.
fn sees_constraints(shards: &LiveTable, conn: &mut AnyConnection) -> QueryResult<bool> {
    if conn.dialect() != Dialect::Mysql {
        return Ok(true);
    }
    let primary_key = "SELECT '1' FROM information_schema.TABLE_CONSTRAINTS \
         WHERE TABLE_SCHEMA = DATABASE() AND CONSTRAINT_TYPE = 'PRIMARY KEY' AND TABLE_NAME = ?";
    Ok(conn.text(primary_key, &[&shards.name])?.is_some())
}

fn checks(
    keyed: Keyed<'_>,
    shards: &LiveTable,
    conn: &mut AnyConnection,
) -> QueryResult<Vec<Finding>> {
    let expected = keyed.sharded.checks_sql(&conn.backend())?;
    let name = keyed.sharded.shards_table();
    let mut findings = vec![];
    for (field, expected) in names(keyed.fields()).into_iter().zip(expected) {
        let Some(expected) = expected else {
            continue;
        };
        let found = keyed.within(conn, |conn| Beside::read(conn, shards, &[field], ""))?;
        if found.checks.is_empty() {
            findings.push(Finding::warning(
                RULES,
                format!("{name}.{field} has no CHECK: a shard that leaves its range may be kept as another number"),
                alter(keyed, &format!("ADD {expected}")),
            ));
        }
    }
    Ok(findings)
}

/// The statement that alters the shards table, or the remedy where a table cannot be altered.
fn alter(keyed: Keyed<'_>, how: &str) -> String {
    match keyed.dialect {
        Dialect::Sqlite => {
            "Revert the migration that created the shards table, which folds, and generate it again"
                .to_owned()
        }
        _ => format!("ALTER TABLE {} {how};", keyed.shards()),
    }
}

/// A shard is inserted by its key and its number alone.
fn defaults(keyed: Keyed<'_>, shards: &LiveTable) -> Vec<Finding> {
    let columns = keyed.fields().iter();
    let columns = columns.filter_map(|field| shards.column(field.name()));
    let wrong = columns.filter(|column| !column.default.as_deref().is_some_and(is_zero));
    let finding = wrong.map(|column| {
        let name = format!("{}.{}", keyed.sharded.shards_table(), column.name);
        let says = match &column.default {
            Some(default) => format!(
                "{name} begins at {default} in place of 0: each new shard changes the total"
            ),
            None => format!("{name} has no default: no new shard can be created"),
        };
        let column = quoted(keyed.dialect, &column.name);
        let remedy = alter(keyed, &format!("ALTER COLUMN {column} SET DEFAULT 0"));
        Finding::problem(RULES, says, remedy)
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
    keyed: Keyed<'_>,
    shards: &LiveTable,
    conn: &AnyConnection,
) -> QueryResult<Vec<Finding>> {
    let expected = keyed.sharded.foreign_key_sql(&conn.backend())?;
    let (Some(expected), false) = (expected, keyed.dialect == Dialect::Sqlite) else {
        return Ok(vec![]);
    };
    let to_parent = shards.foreign_keys.iter();
    let to_parent = to_parent.filter(|key| key.parent == keyed.sharded.table().name());
    let (cascade, wrong): (Vec<_>, Vec<_>) = to_parent.partition(|key| key.deletes && key.renames);
    let findings = wrong.iter().enumerate().map(|(i, key)| {
        let lost = match key.deletes {
            false => "ON DELETE: a row that has shards cannot be deleted",
            true => "ON UPDATE: a row that has shards cannot get another key",
        };
        let name = quoted(keyed.dialect, &key.name);
        let drop = match keyed.dialect {
            Dialect::Mysql => format!("DROP FOREIGN KEY {name}"),
            _ => format!("DROP CONSTRAINT {name}"),
        };
        let remedy = match keyed.dialect {
            // A key that cascades stays, or comes with the first of them.
            _ if i > 0 || !cascade.is_empty() => alter(keyed, &drop),
            Dialect::Mysql => {
                let add = alter(keyed, &format!("ADD {expected}"));
                format!("{}\n{add}", alter(keyed, &drop))
            }
            _ => alter(keyed, &format!("{drop}, ADD {expected}")),
        };
        let (key, shards) = (&key.name, keyed.sharded.shards_table());
        let says = format!("the foreign key {key} of {shards} has no CASCADE {lost}");
        Finding::problem(RULES, says, remedy)
    });
    Ok(findings.collect())
}

/// Rules of PostgreSQL that stand between a count and its rows: row security, triggers that are switched off, triggers on shards. While
/// plain names lead to the table's schema.
fn row_rules(keyed: Keyed<'_>, conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    if keyed.dialect != Dialect::Postgres {
        return Ok(vec![]);
    }
    let (sharded, quoted) = (keyed.sharded, |name: &str| quoted(Dialect::Postgres, name));
    let (table, shards) = (sharded.table().name(), sharded.shards_table().name());
    let mut names = |sql: &str| {
        let visible = "AND pg_table_is_visible(c.oid) AND c.relname IN (?, ?) ORDER BY 1";
        conn.texts(&format!("{sql} {visible}"), &[table, shards])
    };
    let mut findings = vec![];
    let secured = names("SELECT c.relname::text FROM pg_class c WHERE c.relrowsecurity")?;
    if !secured.is_empty() {
        findings.push(Finding::warning(
            "row security",
            format!("policies apply to {}", secured.join(", ")),
            "Run folds, sets and repairs as the table's owner or a role with BYPASSRLS: a row that a policy hides is not folded. Counts \
             are bound by policies of the shards table alone",
        ));
    }
    let off = names(
        "SELECT DISTINCT c.relname::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid WHERE t.tgenabled = 'D'",
    )?;
    let schema = sharded.table().schema();
    let schema = schema
        .map(|schema| quoted(schema) + ".")
        .unwrap_or_default();
    for name in &off {
        findings.push(Finding::problem(
            "triggers",
            format!("triggers of {name} are switched off: a foreign key or triggers that keep shards with their rows may not act"),
            format!("ALTER TABLE {schema}{} ENABLE TRIGGER ALL;", quoted(name)),
        ));
    }
    let own = fitting_name(Dialect::Postgres, format!("{shards}_create"));
    let triggers = "SELECT t.tgname::text FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid \
         WHERE NOT t.tgisinternal AND pg_table_is_visible(c.oid) AND t.tgname <> ? AND c.relname = ?";
    for name in conn.texts(triggers, &[&own, shards])? {
        findings.push(Finding::warning(
            "triggers",
            format!("{shards} has a trigger {name}"),
            "A count does not read back what it wrote: no trigger may change what is written to the shards table",
        ));
    }
    Ok(findings)
}

/// Whether the role that runs the tool may count on a table, and fold it, by the catalogs.
fn privileges(keyed: Keyed<'_>, conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
    if keyed.dialect == Dialect::Sqlite {
        return Ok(vec![]); // it has no roles
    }
    let (sharded, live) = (keyed.sharded, keyed.live);
    let (table, shards) = (sharded.table(), sharded.shards_table());
    let read = Need::to_read(sharded);
    let count = ["INSERT", "UPDATE"].map(|privilege| Need::of(privilege, shards));
    let mut fold = vec![Need::of("UPDATE", shards), Need::of("DELETE", shards)];
    fold.extend(Need::to_update(sharded.fields(), table));
    if live.has_numbers && live.schema().is_none() {
        fold.extend(needs_of_counts());
    }
    let role = current_role(conn)?;
    let read = denied(&read, conn)?;
    let mut missing = |needs: &[Need<'_>]| {
        let missing = [read.clone(), denied(needs, conn)?].concat();
        QueryResult::Ok(lacked(keyed.dialect, &missing, &role).grants)
    };
    let (counts, folds) = (missing(&count)?, missing(&fold)?);
    let enabled = enabled_roles(conn)?;
    let enabled = enabled
        .iter()
        .map(|role| format!("SHOW GRANTS FOR {role};\n"));
    let show: String = enabled.collect();
    let finding = |missing: &[String], to: &str, level| {
        if missing.is_empty() {
            return Finding::ok(PRIVILEGES, format!("{role} may {to} {table}"));
        }
        let says = format!("{role} may not {to} {table}");
        match show.is_empty() {
            true => Finding::of(
                level,
                PRIVILEGES,
                Note::new(says, missing.join(";\n") + ";"),
            ),
            false => Finding::warning(
                PRIVILEGES,
                says + " by itself; what its roles may do the catalogs do not show",
                &*show,
            ),
        }
    };
    Ok(vec![
        finding(&counts, "count on", Level::Problem),
        // Another role may do it.
        finding(&folds, "fold", Level::Warning),
    ])
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
