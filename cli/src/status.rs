//! `diesel-sharded status`: how the shards tables of a database are.

use bigdecimal::{BigDecimal, ToPrimitive, Zero};
use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::{DescribedKeys, DescribedTable};
use serde::Serialize;

use crate::args::StatusArgs;
use crate::beside::Beside;
use crate::connection::AnyConnection;
use crate::error::Error;
use crate::exit::Ended;
use crate::indexes::{self, sorted_columns};
use crate::key::{Key, Keyed, as_text};
use crate::live::LiveTables;
use crate::output::Output;
use crate::shard_counts;
use crate::sharded::{self, COUNTERS};
use crate::statement::{Statement, Value};
use crate::sums::numbers;
use crate::within::within;

/// One shards table.
#[derive(Debug, Serialize)]
struct TableStatus {
    table: String,
    shards_table: String,
    rows: u64,
    rows_with_shards: u64,
    shards: u64,
    /// PostgreSQL's estimate for the shards table.
    dead_tuples: Option<u64>,
    fields: Vec<FieldStatus>,
    #[serde(flatten)]
    beside: Beside,
    /// The statements that create the triggers which are not there; SQLite only.
    missing_triggers: Option<String>,
    #[serde(skip)]
    notes: Vec<String>,
    /// The keys with the most shards.
    hottest: Vec<Hot>,
}

#[derive(Debug, Serialize)]
struct FieldStatus {
    field: String,
    /// Over all rows; as text, since it may be beyond what a reader's numbers hold.
    total: String,
    /// The part of it that is on shards.
    unfolded: String,
    /// From 0 to 1; more where base and shards have different signs.
    unfolded_share: f64,
    /// The number of shards that `resize` has set.
    shards_set: Option<u16>,
    /// Whether an index begins with the column.
    indexed: bool,
}

#[derive(Debug, Serialize)]
struct Hot {
    key: Vec<String>,
    shards: u64,
    /// Of each field, in the order of `fields`.
    totals: Vec<String>,
}

pub fn run(args: &StatusArgs, conn: &mut AnyConnection, out: &mut Output) -> Result<Ended, Error> {
    let dialect = conn.dialect();
    let mut tables = vec![];
    let named = sharded::named(&args.tables, conn)?;
    for (live, sharded) in &named.tables {
        let keyed = Keyed { sharded, dialect };
        tables.push(status(keyed, live, args.hottest, conn)?);
    }
    named.note_left_out(out);
    if args.json {
        let json =
            serde_json::to_string_pretty(&tables).map_err(|error| Error::Output(error.into()))?;
        out.line(&json)?;
    } else {
        show(&tables, out)?;
    }
    Ok(
        match tables.iter().any(|table| table.missing_triggers.is_some()) {
            true => Ended::LeftOver,
            false => Ended::Done,
        },
    )
}

fn status(
    keyed: Keyed<'_>,
    live: &LiveTables,
    hottest: u32,
    conn: &mut AnyConnection,
) -> QueryResult<TableStatus> {
    let sharded = keyed.sharded;
    let numbers_set = shard_counts::of_table(conn, live, sharded)?;
    let rows = sums(keyed).rows(conn)?;
    let counted = match rows.first() {
        Some(row) => numbers(row, 0, 3 + 2 * sharded.fields().len())?,
        None => vec![],
    };
    let count = |i: usize| counted.get(i).and_then(BigDecimal::to_u64).unwrap_or(0);
    let amount = |i: usize| counted.get(i).cloned().unwrap_or_default();
    let names = sharded::names(sharded.fields());
    let (beside, mut notes) = match live.tables.get(sharded.table().name()) {
        Some(table) => {
            let beside = within(live.schema(), conn, |conn| {
                Beside::read(conn, table, &names, sharded.shards_table().name())
            })?;
            let notes = beside.notes(conn.dialect(), table, &names);
            (beside, notes)
        }
        None => Default::default(),
    };
    let sorted = within(live.schema(), conn, |conn| {
        sorted_columns(conn, sharded.table().name())
    })?;
    let is_indexed = |field: &str| sorted.iter().any(|column| column == field);
    if sharded.table().as_str() != COUNTERS {
        let slow = names.iter().filter(|field| !is_indexed(field));
        notes.extend(slow.map(|field| indexes::note(keyed.dialect, sharded.table(), field)));
    }
    let fields = sharded.fields().iter().enumerate().map(|(i, field)| {
        let (base, unfolded) = (amount(3 + 2 * i), amount(4 + 2 * i));
        let total = &base + &unfolded;
        FieldStatus {
            field: field.name().to_owned(),
            unfolded_share: share(&unfolded, &total),
            total: total.normalized().to_plain_string(),
            unfolded: unfolded.normalized().to_plain_string(),
            shards_set: numbers_set.get(field.name().as_bytes()).copied(),
            indexed: is_indexed(field.name()),
        }
    });
    Ok(TableStatus {
        table: sharded.table().to_string(),
        shards_table: sharded.shards_table().to_string(),
        rows: count(0),
        rows_with_shards: count(1),
        shards: count(2),
        fields: fields.collect(),
        dead_tuples: within(live.schema(), conn, |conn| dead_tuples(sharded, conn))?,
        beside,
        missing_triggers: missing_triggers(sharded, conn)?,
        notes,
        hottest: self::hottest(keyed, hottest, conn)?,
    })
}

fn share(unfolded: &BigDecimal, total: &BigDecimal) -> f64 {
    match (unfolded.is_zero(), total.is_zero()) {
        (true, _) => 0.0,
        (_, true) => 1.0,
        _ => (unfolded / total).abs().to_f64().unwrap_or(1.0),
    }
}

/// Rows, rows with shards, shards; of each field the sum of the bases and that of the shards: one statement, one instant.
fn sums(keyed: Keyed<'_>) -> Statement {
    let (table, shards) = (keyed.sharded.table(), keyed.sharded.shards_table());
    let text = as_text(keyed.dialect);
    let sums = Statement::default().sql("SELECT CAST((SELECT COUNT(*) FROM ");
    let sums = sums.table(table).sql(")").sql(text);
    let sums = sums
        .sql(", CAST((SELECT COUNT(*) FROM (SELECT 1 AS one FROM ")
        .table(shards);
    let sums = keyed
        .key(sums.sql(" GROUP BY "), shards)
        .sql(") AS keyed)")
        .sql(text);
    let sums = sums
        .sql(", CAST((SELECT COUNT(*) FROM ")
        .table(shards)
        .sql(")")
        .sql(text);
    let sum = |sums: Statement, of, field| {
        let sums = sums.sql(", CAST(COALESCE((SELECT SUM(").column(of, field);
        sums.sql(") FROM ").table(of).sql("), 0)").sql(text)
    };
    keyed.sharded.fields().iter().fold(sums, |sums, field| {
        sum(sum(sums, table, field.name()), shards, field.name())
    })
}

fn dead_tuples(sharded: &DescribedTable, conn: &mut AnyConnection) -> QueryResult<Option<u64>> {
    if conn.dialect() != Dialect::Postgres {
        return Ok(None);
    }
    let dead = Statement::default().sql(
        "SELECT CAST(n_dead_tup AS TEXT) FROM pg_stat_all_tables WHERE pg_table_is_visible(relid) AND relname = ",
    );
    let dead = dead.bind(Value::Text(sharded.shards_table().name().to_owned()));
    let rows = dead.rows(conn)?;
    rows.first().map(|row| row.parse(0)).transpose()
}

/// As the library's fold looks for them.
fn missing_triggers(
    sharded: &DescribedTable,
    conn: &mut AnyConnection,
) -> QueryResult<Option<String>> {
    if conn.dialect() != Dialect::Sqlite {
        return Ok(None);
    }
    let rows = Statement::default()
        .sql("SELECT name FROM sqlite_master WHERE type = 'trigger'")
        .rows(conn)?;
    let found: Vec<_> = rows
        .iter()
        .filter_map(|row| row.get(0))
        .map(str::to_owned)
        .collect();
    let backend = conn.backend();
    sharded.missing_triggers(&backend, &found)
}

fn hottest(keyed: Keyed<'_>, number: u32, conn: &mut AnyConnection) -> QueryResult<Vec<Hot>> {
    let (sharded, shards) = (keyed.sharded, keyed.sharded.shards_table());
    let columns = sharded.key().len();
    let hot = keyed.select_key(Statement::default().sql("SELECT "), shards);
    let hot = hot.sql(", CAST(COUNT(*)").sql(as_text(keyed.dialect));
    let hot = hot.sql(" FROM ").table(shards).sql(" GROUP BY ");
    let hot = keyed.key(hot, shards).sql(" ORDER BY COUNT(*) DESC, ");
    let hot = keyed.key(hot, shards).sql(" LIMIT ");
    let rows = hot.bind(Value::Integer(number.into())).rows(conn)?;
    let mut hottest = vec![];
    for row in rows {
        let key = Key::read(columns, &row)?;
        let totals = Statement::default().sql("SELECT ");
        let totals = totals.each(", ", sharded.fields(), |totals, field| {
            totals
                .sql("CAST(")
                .total(sharded, field)
                .sql(as_text(keyed.dialect))
        });
        let totals = totals.sql(" FROM ").table(sharded.table()).sql(" WHERE ");
        let totals = totals.then(keyed.is(&key));
        // A row that was deleted meanwhile has no total.
        if let Some(of_row) = totals.rows(conn)?.first() {
            let amounts = numbers(of_row, 0, sharded.fields().len())?;
            let amounts = amounts.iter().map(|n| n.normalized().to_plain_string());
            hottest.push(Hot {
                key: key.shown(sharded),
                shards: row.parse(columns)?,
                totals: amounts.collect(),
            });
        }
    }
    Ok(hottest)
}

fn show(tables: &[TableStatus], out: &mut Output) -> Result<(), Error> {
    if tables.is_empty() {
        return out.line(
            "There is no sharded table in this database: `diesel-sharded generate TABLE COLUMN` begins one.",
        );
    }
    let optional = |n: Option<String>| n.unwrap_or_else(|| "-".to_owned());
    let rows: Vec<_> = tables
        .iter()
        .flat_map(|table| {
            table.fields.iter().map(move |field| {
                vec![
                    table.table.clone(),
                    field.field.clone(),
                    table.rows.to_string(),
                    table.rows_with_shards.to_string(),
                    table.shards.to_string(),
                    field.total.clone(),
                    field.unfolded.clone(),
                    format!("{:.1}%", field.unfolded_share * 100.0),
                    optional(field.shards_set.map(|n| n.to_string())),
                    optional(table.dead_tuples.map(|n| n.to_string())),
                ]
            })
        })
        .collect();
    out.table(
        &[
            "table",
            "field",
            "rows",
            "with shards",
            "shards",
            "total",
            "unfolded",
            "share",
            "set to",
            "dead tuples",
        ],
        &rows,
    )?;
    for table in tables {
        for note in &table.notes {
            out.line(&format!("\n{note}"))?;
        }
        if let Some(sql) = &table.missing_triggers {
            out.line(&format!(
                "\nTriggers of {} are missing, as after a rebuild of {}: a new row may inherit the shards of one that was deleted. \
                 Create them again:\n{sql}",
                table.shards_table, table.table
            ))?;
        }
    }
    for table in tables.iter().filter(|table| !table.hottest.is_empty()) {
        let what = match &*table.table {
            COUNTERS => "named counters".to_owned(),
            table => format!("keys of {table}"),
        };
        out.line(&format!("\nHottest {what}"))?;
        let fields = table.fields.iter().map(|field| &*field.field);
        let names: Vec<_> = ["key", "shards"].into_iter().chain(fields).collect();
        let rows: Vec<_> = table
            .hottest
            .iter()
            .map(|hot| {
                let cells = [hot.key.join(", "), hot.shards.to_string()];
                cells.into_iter().chain(hot.totals.clone()).collect()
            })
            .collect();
        out.table(&names, &rows)?;
    }
    Ok(())
}
