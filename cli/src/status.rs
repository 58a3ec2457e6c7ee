//! `diesel-sharded status` shows the state of a database's shards tables.

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::Parents;
use serde::Serialize;

use crate::args::StatusArgs;
use crate::condition::Condition;
use crate::connection::AnyConnection;
use crate::error::{Ended, Error};
use crate::finding::Level;
use crate::key::{Key, KeyValues, as_text};
use crate::output::{self, joined, or_dash};
use crate::privilege::{Need, explained};
use crate::resize::{needs_of_counts, shard_counts};
use crate::sharded::{self, COUNTERS, Sharded};
use crate::statement::sql;
use crate::sums::{Count, MOST, Number, Sizes, Total};

/// One shards table.
#[derive(Debug, Serialize)]
struct TableStatus {
    table: String,
    shards_table: String,
    rows: Count,
    rows_with_shards: Count,
    shards: Count,
    /// PostgreSQL's estimate for the shards table.
    dead_tuples: Option<u64>,
    fields: Vec<FieldStatus>,
    #[serde(flatten)]
    condition: Condition,
    /// The keys with the most shards.
    hottest: Vec<Hot>,
    /// The number of shards among which these keys were looked for, the last shards by key; null for all.
    hottest_among: Option<u64>,
}

#[derive(Debug, Serialize)]
struct FieldStatus {
    field: String,
    /// The total over all rows. Null if it would have to be read from too many rows, or is beyond every number of the database.
    total: Option<Number>,
    /// The part of the total that is on shards.
    unfolded: Option<Number>,
    /// The fraction on shards, from 0 to 1, by the absolute values of base and shards.
    unfolded_share: Option<f64>,
    /// The number of shards that `resize` has set.
    shards_set: Option<u16>,
    /// Whether an index begins with the column.
    indexed: bool,
}

#[derive(Debug, Serialize)]
struct Hot {
    key: KeyValues,
    shards: u64,
    /// The total of each field, in the order of `fields`. Null if the base is not a number.
    totals: Vec<Option<Number>>,
}

pub fn run(args: &StatusArgs, conn: &mut AnyConnection) -> Result<Ended, Error> {
    let tables = read(args, conn)?;
    match args.json {
        true => output::json(&tables)?,
        false => show(&tables)?,
    }
    let is_wrong = |table: &TableStatus| {
        let mut findings = table.condition.findings.iter();
        findings.any(|finding| finding.level == Level::Problem)
    };
    Ok(Ended::left_over_if(tables.iter().any(is_wrong)))
}

fn read(args: &StatusArgs, conn: &mut AnyConnection) -> Result<Vec<TableStatus>, Error> {
    let mut tables = vec![];
    for sharded in &sharded::named(&args.tables, output::note, conn)? {
        let table = status(sharded, args, conn).map_err(|error| {
            let mut needs = Need::to_read(sharded).to_vec();
            if sharded.live.has_numbers {
                needs.extend(needs_of_counts());
            }
            explained(error.into(), &needs, conn).of_table(sharded.table())
        });
        tables.push(table?);
    }
    Ok(tables)
}

fn status(
    sharded: &Sharded,
    args: &StatusArgs,
    conn: &mut AnyConnection,
) -> QueryResult<TableStatus> {
    let shards_table = sharded.shards_table();
    let numbers_set = shard_counts(sharded, conn)?;
    let sizes = Sizes::read(sharded, args.exact, conn)?;
    let condition = Condition::read(sharded, conn)?;
    let fields = sharded.fields.iter().zip(sizes.sums);
    let fields = fields.map(|(field, sums)| FieldStatus {
        field: field.name().to_owned(),
        unfolded_share: sums.share(),
        total: sums.sum().map(Number),
        unfolded: sums.shards.clone().map(Number),
        shards_set: numbers_set.get(field.name().as_bytes()).copied(),
        indexed: condition.indexed.iter().any(|name| name == field.name()),
    });
    let fields = fields.collect();
    let all_shards = args.exact || sizes.shards.is_exact();
    Ok(TableStatus {
        table: sharded.table().to_string(),
        shards_table: shards_table.to_string(),
        rows: sizes.rows,
        rows_with_shards: sizes.rows_with_shards,
        shards: sizes.shards,
        dead_tuples: sharded.within(conn, |conn| dead_tuples(shards_table.name(), conn))?,
        fields,
        condition,
        hottest: hottest(sharded, args.hottest, all_shards, conn)?,
        hottest_among: (!all_shards).then_some(MOST),
    })
}

fn dead_tuples(shards_table: &str, conn: &mut AnyConnection) -> QueryResult<Option<u64>> {
    if conn.dialect() != Dialect::Postgres {
        return Ok(None);
    }
    let dead = conn.rows(catalog!("postgres/", "dead_tuples"), &[shards_table])?;
    dead.first().map(|row| row.parse(0)).transpose()
}

/// The keys with the most shards.
fn hottest(
    sharded: &Sharded,
    number: u32,
    all_shards: bool,
    conn: &mut AnyConnection,
) -> QueryResult<Vec<Hot>> {
    let (fields, columns) = (&sharded.fields, sharded.key.len());
    let (parent, shards) = (sharded.parent(), sharded.shards());
    let last = sharded.key.iter();
    let last = last.map(|column| sharded.column(&shards, column.name()) + " DESC");
    let among = match all_shards {
        true => shards.clone(),
        // From the end of their index.
        false => format!(
            "(SELECT {} FROM {shards} ORDER BY {} LIMIT {MOST})",
            sharded.key_of(&shards),
            joined(", ", last)
        ),
    };
    let key = sharded.key_of("some_shards");
    let count = as_text(sharded.dialect, "COUNT(*)");
    let texts = sharded.key_as_texts("some_shards");
    let hot = sql!(format!(
        "SELECT {texts}, {count} FROM {among} AS some_shards GROUP BY {key} ORDER BY COUNT(*) DESC, {key} LIMIT {number}"
    ));
    let totals = joined(", ", fields.iter().map(|field| sharded.total(field)));
    let totals = format!("SELECT {totals} FROM {parent} WHERE ");
    let mut hottest = vec![];
    for row in hot.rows(conn)? {
        let key = Key::read(columns, &row)?;
        let totals = sql!(&*totals, sharded.is(&key)).rows(conn)?;
        // A row that was deleted meanwhile has no total.
        let Some(of_row) = totals.first() else {
            continue;
        };
        let totals = (0..fields.len()).map(|i| Total::read(of_row, 2 * i));
        let totals: Vec<_> = totals.collect::<QueryResult<_>>()?;
        hottest.push(Hot {
            key: key.values(sharded),
            shards: row.parse(columns)?,
            totals: totals.iter().map(|total| total.sum().map(Number)).collect(),
        });
    }
    Ok(hottest)
}

fn show(tables: &[TableStatus]) -> Result<(), Error> {
    if tables.is_empty() {
        return output::line(
            "There is no sharded table for this tool in this database: `diesel-sharded generate TABLE COLUMN` begins one.",
        );
    }
    let rows = tables.iter().flat_map(|table| {
        let row = |field: &FieldStatus| {
            let share = field.unfolded_share.map(|n| format!("{:.1}%", n * 100.0));
            vec![
                ("table", table.table.clone()),
                ("field", field.field.clone()),
                ("rows", table.rows.to_string()),
                ("with shards", table.rows_with_shards.to_string()),
                ("shards", table.shards.to_string()),
                ("total", or_dash(field.total.as_ref())),
                ("unfolded", or_dash(field.unfolded.as_ref())),
                ("share", or_dash(share)),
                ("set to", or_dash(field.shards_set)),
                ("dead tuples", or_dash(table.dead_tuples)),
            ]
        };
        table.fields.iter().map(row).collect::<Vec<_>>()
    });
    output::table(&rows.collect::<Vec<_>>())?;
    let is_short = |table: &TableStatus| {
        let sizes = [table.rows, table.rows_with_shards, table.shards];
        !sizes.iter().all(|size| size.is_exact())
    };
    if tables.iter().any(is_short) {
        output::line(&format!(
            "\nOf larger tables, ~ is the database's estimate, >= {MOST} rows were read, and sums are left out. --exact reads every row and \
             every shard."
        ))?;
    }
    let findings = tables.iter().flat_map(|table| &table.condition.findings);
    for finding in findings.filter(|finding| !finding.is_ok()) {
        output::line(&format!("\n{}", finding.note()))?;
    }
    for table in tables.iter().filter(|table| !table.hottest.is_empty()) {
        let what = match &*table.table {
            COUNTERS => "named counters".to_owned(),
            table => format!("keys of {table}"),
        };
        let among = match table.hottest_among {
            Some(shards) => format!(", among the last {shards} shards by key"),
            None => String::new(),
        };
        output::line(&format!("\nHottest {what}{among}"))?;
        let rows = table.hottest.iter().map(|hot| {
            let fields = table.fields.iter().zip(&hot.totals);
            let totals = fields.map(|(field, total)| (&*field.field, or_dash(total.as_ref())));
            let (key, shards) = (hot.key.to_string(), hot.shards.to_string());
            let cells = [("key", key), ("shards", shards)];
            cells.into_iter().chain(totals).collect()
        });
        output::table(&rows.collect::<Vec<_>>())?;
    }
    Ok(())
}
