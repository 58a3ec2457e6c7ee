//! The checks of one sharded table.

use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::DescribedTable;
use diesel_sharded::model::{ShardsColumn, TableName};

use super::finding::Finding;
use super::{privileges, row_rules, shard_columns, shard_rules};
use crate::beside::Beside;
use crate::connection::AnyConnection;
use crate::indexes::{self, other_indexes, sorted_columns};
use crate::integrity::{Cache, Integrity, KeptBy};
use crate::key::Keyed;
use crate::live::{Kind, LiveTables};
use crate::out_of_range::OutOfRange;
use crate::sharded::{COUNTERS, names};
use crate::shell;
use crate::size::Sizes;
use crate::statement::{quoted, quoted_table};
use crate::sums::range;
use crate::within::within;

pub fn check(
    live: &LiveTables,
    sharded: &DescribedTable,
    conn: &mut AnyConnection,
) -> QueryResult<Vec<Finding>> {
    let dialect = conn.dialect();
    let (table, shards) = (sharded.table(), sharded.shards_table());
    let mut findings = vec![integrity(live, sharded, conn)?];
    findings.extend(caches(live, sharded, conn)?);
    if let (Some(parent), Some(of_shards)) = (
        live.tables.get(table.name()),
        live.tables.get(shards.name()),
    ) {
        if let Kind::Engine(engine) = &parent.kind {
            findings.push(Finding::problem(
                "engine",
                format!("{table} uses {engine}, which takes no change back: a fold that fails would lose counts"),
                format!("ALTER TABLE {} ENGINE = InnoDB;", quoted_table(dialect, table)),
            ));
        }
        findings.extend(shard_columns::check(dialect, sharded, parent, of_shards));
        findings.extend(shard_rules::check(live, sharded, of_shards, conn)?);
        let fields = names(sharded.fields());
        let beside = within(live.schema(), conn, |conn| {
            Beside::read(conn, parent, &fields, shards.name())
        })?;
        let notes = beside.notes(dialect, parent, &fields).into_iter();
        findings.extend(notes.map(|note| {
            let (says, remedy) = note.split_once(". ").unwrap_or((&note, ""));
            Finding::warning("triggers and checks", says, remedy)
        }));
    }
    findings.extend(index(live, sharded, conn)?);
    findings.extend(within(live.schema(), conn, |conn| {
        row_rules::check(sharded, conn)
    })?);
    findings.extend(privileges::check(live, sharded, conn)?);
    findings.extend(match totals(Keyed { sharded, dialect }, conn) {
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
    let fields = keyed.sharded.fields().iter();
    let ranged = fields.filter(|field| range(keyed.dialect, field).is_some());
    let ranged: Vec<_> = ranged.map(ShardsColumn::name).collect();
    let in_range = match sizes.shards.is_exact() {
        true => match OutOfRange::note(&OutOfRange::read(keyed, conn)?, table) {
            Some((says, remedy)) => Finding::problem(CHECK, says, remedy),
            None if ranged.is_empty() => {
                Finding::ok(CHECK, format!("every base of {table} is a number"))
            }
            None => Finding::ok(
                CHECK,
                format!(
                    "every total of {table} is in the range of {}",
                    ranged.join(", ")
                ),
            ),
        },
        false => Finding::ok(
            CHECK,
            format!(
                "{table} has {}, too many to look at each total here: `{}`",
                sizes.shards.of("shard"),
                status_exact(table)
            ),
        ),
    };
    Ok(vec![unfolded(keyed, &sizes), in_range])
}

fn integrity(
    live: &LiveTables,
    sharded: &DescribedTable,
    conn: &mut AnyConnection,
) -> QueryResult<Finding> {
    let integrity = Integrity::read(sharded, live.schema(), conn)?;
    let kept_by = match integrity.kept_by {
        KeptBy::ForeignKey => "a foreign key keeps",
        _ => "triggers keep",
    };
    let shards = sharded.shards_table();
    Ok(match integrity.note(sharded) {
        Some((says, sql)) if integrity.is_broken() => Finding::problem("integrity", says, sql),
        Some((says, sql)) => Finding::warning("integrity", says, sql),
        None => Finding::ok("integrity", format!("{kept_by} {shards} with its rows")),
    })
}

fn caches(
    live: &LiveTables,
    sharded: &DescribedTable,
    conn: &mut AnyConnection,
) -> QueryResult<Vec<Finding>> {
    const CHECK: &str = "counter caches";
    let caches = Cache::read(sharded, None, live.schema(), conn)?.into_iter();
    let finding = caches.map(|cache| match cache.note() {
        Some((says, remedy)) => Finding::problem(CHECK, says, remedy),
        None => Finding::ok(CHECK, format!("{} has all of its triggers", cache.name)),
    });
    Ok(finding.collect())
}

fn index(
    live: &LiveTables,
    sharded: &DescribedTable,
    conn: &mut AnyConnection,
) -> QueryResult<Vec<Finding>> {
    const CHECK: &str = "index";
    let dialect = conn.dialect();
    let (table, shards) = (sharded.table(), sharded.shards_table());
    let (sorted, others) = within(live.schema(), conn, |conn| {
        let sorted = sorted_columns(conn, table.name())?;
        Ok((sorted, other_indexes(conn, shards.name())?))
    })?;
    // Without its primary key it would not have been recognized.
    let mut findings = vec![Finding::ok(
        CHECK,
        format!("the key of {shards} leads to its shards"),
    )];
    for name in others {
        let name = quoted(dialect, &name);
        findings.push(Finding::warning(
            CHECK,
            format!(
                "{shards} has another index, {name}: each count writes it too, on PostgreSQL none is updated in place (HOT) if it has a \
                 count, and a unique one brings deadlocks on MySQL"
            ),
            match dialect {
                Dialect::Mysql => format!("DROP INDEX {name} ON {};", quoted_table(dialect, shards)),
                _ => match shards.schema() {
                    Some(schema) => format!("DROP INDEX {}.{name};", quoted(dialect, schema)),
                    None => format!("DROP INDEX {name};"),
                },
            },
        ));
    }
    if table.as_str() != COUNTERS {
        for field in names(sharded.fields()) {
            findings.push(match sorted.iter().any(|column| column == field) {
                true => Finding::ok(CHECK, format!("one begins with {table}.{field}, for `top`")),
                false => {
                    let note = indexes::note(dialect, table, field);
                    let (says, sql) = note.split_once('\n').unwrap_or((&note, ""));
                    Finding::warning(CHECK, says, sql)
                }
            });
        }
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
    let shares = keyed.sharded.fields().iter().zip(&sizes.sums);
    let shares = shares.filter_map(|(field, sums)| Some((field.name(), sums.share()?)));
    let (mut most, mut texts) = (0.0, vec![]);
    for (field, share) in shares {
        most = f64::max(most, share);
        texts.push(format!("{:.1}% of {field}", share * 100.0));
    }
    let too_many = match sizes.shards.is_exact() {
        true => sizes.rows.of("row"),
        false => sizes.shards.of("shard"),
    };
    let on_shards = match texts.is_empty() {
        true => format!(
            "{table} has {too_many}, too many to add them up here: `{}`",
            status_exact(table)
        ),
        false => format!(
            "{table} has {} on {}",
            texts.join(", "),
            sizes.shards.of("shard")
        ),
    };
    match most > 0.5 {
        true => Finding::warning(
            CHECK,
            on_shards,
            format!(
                "{}\nor in the application fold(..).every(..)",
                shell::command(["fold", table.as_str()])
            ),
        ),
        false => Finding::ok(CHECK, on_shards),
    }
}
