//! `diesel-sharded status`: how the shards tables of a database are.

use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use diesel_sharded::described::DescribedKeys;
use serde::Serialize;

use crate::args::StatusArgs;
use crate::condition::{Beside, Cache, Integrity, OutOfRange, missing_index, sorted_columns};
use crate::connection::AnyConnection;
use crate::error::{Ended, Error};
use crate::interrupt;
use crate::key::{Key, KeyValues, as_text};
use crate::output::{self, Note, joined, or_dash};
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
    beside: Beside,
    #[serde(flatten)]
    integrity: Integrity,
    counter_caches: Vec<Cache>,
    /// The totals that their columns do not hold, the first ones of each field.
    out_of_range: Vec<OutOfRange>,
    #[serde(skip)]
    notes: Vec<String>,
    /// The keys with the most shards.
    hottest: Vec<Hot>,
    /// So many shards, the last ones by key, were looked at for them; null for all.
    hottest_among: Option<u64>,
}

#[derive(Debug, Serialize)]
struct FieldStatus {
    field: String,
    /// Over all rows. Null where it would be read from too many rows, or is beyond every number of the database.
    total: Option<Number>,
    /// The part of it that is on shards.
    unfolded: Option<Number>,
    /// From 0 to 1, of base and shards without their signs.
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
    /// Of each field, in the order of `fields`. Null where the base is no number.
    totals: Vec<Option<Number>>,
}

/// Once, or in intervals.
pub fn run(args: &StatusArgs, conn: &mut AnyConnection) -> Result<Ended, Error> {
    let Some(seconds) = args.watch else {
        let tables = read(args, conn)?;
        match args.json {
            true => output::json(&tables)?,
            false => show(&tables)?,
        }
        let is_wrong = |table: &TableStatus| {
            let mut caches = table.counter_caches.iter();
            let lacks = caches.any(|cache| !cache.missing_triggers.is_empty());
            lacks || table.integrity.is_broken() || !table.out_of_range.is_empty()
        };
        return Ok(Ended::left_over_if(tables.iter().any(is_wrong)));
    };
    interrupt::handle("ending the watch")?;
    while !interrupt::came() && !output::is_closed() {
        let due = Instant::now() + Duration::from_secs(seconds.into());
        let tables = read(args, conn)?;
        if args.json {
            output::json_line(&tables)?;
        } else {
            let now = chrono::Utc::now().format("%Y-%m-%d %H:%M:%S UTC");
            output::block(&format!("{now}, every {seconds} s\n"))?;
            show(&tables)?;
            output::line("")?;
        }
        interrupt::sleep_until(due);
    }
    Ok(Ended::Done)
}

fn read(args: &StatusArgs, conn: &mut AnyConnection) -> Result<Vec<TableStatus>, Error> {
    let named = sharded::named(&args.tables, conn)?;
    let mut tables = vec![];
    for sharded in &named.tables {
        let table = status(sharded, args, conn).map_err(|error| {
            let mut needs = Need::to_read(sharded).to_vec();
            if sharded.live.has_numbers {
                needs.extend(needs_of_counts());
            }
            explained(error.into(), &needs, conn).of_table(sharded.table())
        });
        tables.push(table?);
    }
    named.note_left_out();
    Ok(tables)
}

fn status(
    sharded: &Sharded,
    args: &StatusArgs,
    conn: &mut AnyConnection,
) -> QueryResult<TableStatus> {
    let (table, shards_table) = (sharded.table(), sharded.shards_table());
    let numbers_set = shard_counts(sharded, conn)?;
    let sizes = Sizes::read(sharded, args.exact, conn)?;
    let (beside, notes) = Beside::of(sharded, conn)?;
    let mut notes: Vec<_> = notes.iter().map(Note::sentences).collect();
    let sorted = sharded.within(conn, |conn| sorted_columns(conn, table.name()))?;
    let is_indexed = |field: &str| sorted.iter().any(|column| column == field);
    if table.as_str() != COUNTERS {
        let fields = sharded::names(sharded.fields()).into_iter();
        let slow = fields.filter(|field| !is_indexed(field));
        notes.extend(slow.map(|field| missing_index(sharded, field).lines()));
    }
    let integrity = Integrity::read(sharded, conn)?;
    notes.extend(integrity.note(sharded).map(|note| note.lines()));
    let counter_caches = Cache::read(sharded, None, conn)?;
    let of_caches = counter_caches.iter().filter_map(Cache::note);
    notes.extend(of_caches.map(|note| format!("On {table}, {}.", note.sentences())));
    let fields = sharded
        .fields()
        .iter()
        .zip(sizes.sums)
        .map(|(field, sums)| FieldStatus {
            field: field.name().to_owned(),
            unfolded_share: sums.share(),
            total: sums.sum().map(Number),
            unfolded: sums.shards.clone().map(Number),
            shards_set: numbers_set.get(field.name().as_bytes()).copied(),
            indexed: is_indexed(field.name()),
        });
    let all_shards = args.exact || sizes.shards.is_exact();
    let mut out_of_range = match all_shards {
        true => OutOfRange::read(sharded, conn)?,
        false => vec![],
    };
    let hottest = hottest(sharded, args.hottest, all_shards, &mut out_of_range, conn)?;
    let of_totals = OutOfRange::note(&out_of_range, table);
    notes.extend(of_totals.map(|note| format!("There are {}.", note.sentences())));
    Ok(TableStatus {
        table: table.to_string(),
        shards_table: shards_table.to_string(),
        rows: sizes.rows,
        rows_with_shards: sizes.rows_with_shards,
        shards: sizes.shards,
        dead_tuples: sharded.within(conn, |conn| dead_tuples(shards_table.name(), conn))?,
        fields: fields.collect(),
        beside,
        integrity,
        counter_caches,
        out_of_range,
        notes,
        hottest,
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

/// The keys with the most shards. Their totals that are out of range are added to those that were found before.
fn hottest(
    sharded: &Sharded,
    number: u32,
    all_shards: bool,
    out_of_range: &mut Vec<OutOfRange>,
    conn: &mut AnyConnection,
) -> QueryResult<Vec<Hot>> {
    let (fields, columns) = (sharded.fields(), sharded.key().len());
    let (parent, shards) = (sharded.parent(), sharded.shards());
    let among = match all_shards {
        true => shards,
        false => format!("({})", last_shards(sharded)),
    };
    let (key, count) = (
        sharded.key_of("some_shards"),
        as_text(sharded.dialect, "COUNT(*)"),
    );
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
        for (field, total) in fields.iter().zip(&totals) {
            let found = OutOfRange::of(sharded, &key, field, total);
            let found = found.filter(|found| !out_of_range.contains(found));
            out_of_range.extend(found);
        }
        hottest.push(Hot {
            key: key.values(sharded),
            shards: row.parse(columns)?,
            totals: totals.iter().map(|total| total.sum().map(Number)).collect(),
        });
    }
    Ok(hottest)
}

/// The keys of the last shards, from the end of their index.
fn last_shards(sharded: &Sharded) -> String {
    let shards = sharded.shards();
    let key = sharded.key_of(&shards);
    let columns = sharded.key().iter();
    let last = columns.map(|column| sharded.column(&shards, column.name()) + " DESC");
    let last = joined(", ", last);
    format!("SELECT {key} FROM {shards} ORDER BY {last} LIMIT {MOST}")
}

fn show(tables: &[TableStatus]) -> Result<(), Error> {
    if tables.is_empty() {
        return output::line(
            "There is no sharded table in this database: `diesel-sharded generate TABLE COLUMN` begins one.",
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
            "\nOf larger tables, ~ is the database's estimate, >= {} rows were read, and sums are left out. --exact reads every row and \
             every shard.",
            MOST
        ))?;
    }
    for note in tables.iter().flat_map(|table| &table.notes) {
        output::line(&format!("\n{note}"))?;
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
