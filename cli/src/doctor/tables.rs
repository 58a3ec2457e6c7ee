//! The checks of one sharded table.

use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::{declared_type, fitting_name};
use diesel_sharded::model::{ShardsColumn, TableName};

use super::{Finding, Level, or_ok};
use crate::beside::Beside;
use crate::connection::AnyConnection;
use crate::indexes::{self, sorted_columns};
use crate::integrity::{Cache, Integrity, KeptBy};
use crate::live::{Kind, LiveTable};
use crate::out_of_range::OutOfRange;
use crate::output::Note;
use crate::privilege::{Need, current_role, denied, enabled_roles, lacked};
use crate::resize::needs_of_counts;
use crate::sharded::{COUNTERS, Sharded, names};
use crate::shell;
use crate::size::Sizes;
use crate::statement::quoted;
use crate::sums::range;

const RULES: &str = "rules";

pub fn check(sharded: &Sharded, conn: &mut AnyConnection) -> QueryResult<Vec<Finding>> {
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
        let beside = Beside::of(sharded, conn)?.notes.into_iter();
        all.extend(beside.map(|note| Finding::of(Level::Warning, "triggers and checks", note)));
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
    let ranged: Vec<_> = ranged.map(ShardsColumn::name).collect();
    let is_exact = sizes.shards.is_exact();
    let well = match (is_exact, &*ranged.join(", ")) {
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
    const CHECK: &str = "index";
    let (table, shards) = (sharded.table(), sharded.shards_table());
    let (sorted, others) = sharded.within(conn, |conn| {
        let others = catalog!(sharded.dialect, "other_indexes");
        let others = conn.texts(others, &[shards.name()])?;
        Ok((sorted_columns(conn, table.name())?, others))
    })?;
    // Without its primary key it would not have been recognized.
    let key = format!("the key of {shards} leads to its shards");
    let mut all = vec![Finding::ok(CHECK, key)];
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
            let note = (!is_sorted).then(|| indexes::note(sharded, field));
            let well = format!("one begins with {table}.{field}, for `top`");
            Finding::of_note(Level::Warning, CHECK, note, well)
        }));
    }
    Ok(all)
}

fn unfolded(sharded: &Sharded, sizes: &Sizes) -> Finding {
    const CHECK: &str = "fold";
    let table = sharded.table();
    let shares = sharded.fields().iter().zip(&sizes.sums);
    let shares = shares.filter_map(|(field, sums)| Some((field.name(), sums.share()?)));
    let (mut most, mut texts) = (0.0, vec![]);
    for (field, share) in shares {
        most = f64::max(most, share);
        texts.push(format!("{:.1}% of {field}", share * 100.0));
    }
    if texts.is_empty() {
        return Finding::ok(CHECK, too_many(sharded, sizes, "add them up"));
    }
    let (texts, shards) = (texts.join(", "), sizes.shards.of("shard"));
    let on_shards = format!("{table} has {texts} on {shards}");
    let fold = shell::command(["fold", table.as_str()]);
    let remedy = format!("{fold}\nor in the application fold(..).every(..)");
    let note = (most > 0.5).then(|| Note::new(&*on_shards, remedy));
    Finding::of_note(Level::Warning, CHECK, note, on_shards)
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
    Ok(or_ok(all, RULES, well))
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
    sharded: &Sharded,
    shards: &LiveTable,
    conn: &mut AnyConnection,
) -> QueryResult<Vec<Finding>> {
    let expected = sharded.described.quoted(&conn.backend())?.checks_sql();
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
        Finding::of(Level::Problem, RULES, Note::new(says, remedy))
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
    let expected = sharded.described.quoted(&conn.backend())?.foreign_key_sql();
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
        Finding::of(Level::Problem, RULES, Note::new(says, remedy))
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
