//! `diesel-sharded advise`: columns that are counted on one row, before they are sharded.

mod counting;
mod measured;
mod statistics;
mod waits;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use diesel::QueryResult;
use diesel_sharded::backend::Dialect;
use serde::Serialize;

use crate::args::AdviseArgs;
use crate::column_type::field_type;
use crate::connection::AnyConnection;
use crate::error::Error;
use crate::exit::Ended;
use crate::interrupt::Interrupt;
use crate::live::{LiveTable, LiveTables};
use crate::output::Output;
use crate::sharded::{self, names};

use self::counting::Counting;
use self::statistics::Digest;

/// The pause between two looks at running statements.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Default, Serialize)]
struct Report {
    seconds: f64,
    /// The remedies where the database shows less than it could.
    notes: Vec<String>,
    columns: Vec<Advice>,
    assumption: Option<&'static str>,
}

/// A column that statements count on.
#[derive(Debug, Serialize)]
struct Advice {
    table: String,
    column: String,
    /// Whether it has shards, so that these statements are those of code without the library.
    sharded: bool,
    /// Since the database's statistics began.
    counts: Option<u64>,
    counts_per_second: Option<f64>,
    mean_ms: Option<f64>,
    /// Of the statements seen running, the part that waited for a lock.
    waiting_share: Option<f64>,
    /// On average at one moment.
    waiting_sessions: f64,
    next: String,
}

/// What was seen of one column.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    counts: u64,
    /// Within the time of looking.
    new_counts: u64,
    new_ms: f64,
    running: u64,
    waiting: u64,
}

/// What the database keeps at one moment.
struct Statistics {
    digests: Vec<Digest>,
    row_updates: BTreeMap<String, u64>,
}

impl Statistics {
    fn read(conn: &mut AnyConnection) -> QueryResult<Result<Self, String>> {
        Ok(match statistics::read(conn)? {
            Ok(digests) => Ok(Statistics {
                digests,
                row_updates: statistics::row_updates(conn)?,
            }),
            Err(off) => Err(off),
        })
    }
}

type Columns = BTreeMap<(String, String), Seen>;

pub fn run(
    args: &AdviseArgs,
    conn: &mut AnyConnection,
    interrupt: &Interrupt,
    out: &mut Output,
) -> Result<Ended, Error> {
    let report = match conn.dialect() {
        Dialect::Sqlite => Report {
            notes: vec![ON_SQLITE.to_owned()],
            ..Report::default()
        },
        _ => look(args, conn, interrupt, out)?,
    };
    match args.json {
        true => out.json(&report)?,
        false => show(&report, out)?,
    }
    Ok(Ended::Done)
}

const ON_SQLITE: &str = "SQLite keeps no statistics of statements, and has one writer for the whole database: shards do not make its writes faster. If \
writers wait there (SQLITE_BUSY, or seconds in busy_timeout), commit many counts at once by the library's Coalescer. To see how often a \
column is counted, count its statements in the application, as the library's feature `metrics` does.";

fn look(
    args: &AdviseArgs,
    conn: &mut AnyConnection,
    interrupt: &Interrupt,
    out: &mut Output,
) -> Result<Report, Error> {
    let mut columns = Columns::new();
    let mut report = Report {
        assumption: Some(measured::assumption(conn.dialect())),
        ..Report::default()
    };
    out.note(&format!(
        "Looking for {} s at the statements of this database…",
        args.seconds
    ));
    let before = Statistics::read(conn)?;
    let start = Instant::now();
    let end = start + Duration::from_secs(args.seconds.into());
    let mut looks = 0_u32;
    while Instant::now() < end && !interrupt.came() {
        let due = Instant::now() + PAUSE;
        match waits::look(conn)? {
            Ok(running) => {
                looks += 1;
                for running in running {
                    for seen in seen_by(&running.text, &mut columns) {
                        seen.running += 1;
                        seen.waiting += u64::from(running.waits);
                    }
                }
            }
            Err(note) => {
                report.notes.push(note);
                interrupt.sleep_until(end);
            }
        }
        interrupt.sleep_until(due.min(end));
    }
    report.seconds = start.elapsed().as_secs_f64();
    match (before, Statistics::read(conn)?) {
        (Ok(before), Ok(after)) => {
            add_digests(&before.digests, &after.digests, &mut columns);
            let time = report.seconds * 1000.0 / f64::from(looks.max(1));
            if add_row_updates(&before, &after, time, &mut columns) {
                report.notes.push(BY_TABLE.to_owned());
            }
        }
        (Err(off), _) | (_, Err(off)) => report.notes.push(off),
    }
    let live = LiveTables::read(conn)?;
    let advice = columns.iter().filter_map(|((table, column), seen)| {
        let table = find(&live, conn.dialect(), table)?;
        let (seconds, looks) = (report.seconds, looks.max(1));
        advice(&live, conn.dialect(), table, column, *seen, seconds, looks)
    });
    report.columns = advice.collect();
    let urgency = |advice: &Advice| {
        (
            advice.waiting_sessions,
            advice.counts_per_second.unwrap_or(0.0),
        )
    };
    report.columns.sort_by(|a, b| {
        urgency(b)
            .partial_cmp(&urgency(a))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    Ok(report)
}

/// The places of the columns that a statement counts on.
fn seen_by<'c>(text: &str, columns: &'c mut Columns) -> Vec<&'c mut Seen> {
    let Some(counting) = Counting::read(text) else {
        return vec![];
    };
    // The first column stands for a statement: all of them are one write.
    let column = counting.columns.join(" ");
    vec![columns.entry((counting.table, column)).or_default()]
}

fn add_digests(before: &[Digest], after: &[Digest], columns: &mut Columns) {
    for digest in after {
        let earlier = before.iter().find(|earlier| earlier.text == digest.text);
        let (calls, total) = earlier.map_or((0, 0.0), |earlier| (earlier.calls, earlier.total_ms));
        for seen in seen_by(&digest.text, columns) {
            seen.counts += digest.calls;
            // Statistics that were reset meanwhile begin again.
            seen.new_counts += digest.calls.saturating_sub(calls);
            seen.new_ms += (digest.total_ms - total).max(0.0);
        }
    }
}

/// Where no digest has a column whose statements were seen running, the updates of its table are counted, and `time` in milliseconds
/// stands for each time that one was seen. Tells whether there was such a column.
fn add_row_updates(
    before: &Statistics,
    after: &Statistics,
    time: f64,
    columns: &mut Columns,
) -> bool {
    let mut added = false;
    for ((table, _), seen) in columns {
        let is_left_out = seen.new_counts == 0 && seen.running > 0;
        if let Some(updates) = after.row_updates.get(table).filter(|_| is_left_out) {
            let earlier = before.row_updates.get(table).copied().unwrap_or(0);
            seen.counts = *updates;
            seen.new_counts = updates.saturating_sub(earlier);
            seen.new_ms = seen.running as f64 * time;
            added = true;
        }
    }
    added
}

const BY_TABLE: &str = "The server's digests leave out statements that the client prepared, as Diesel does on MariaDB. Their counts are the row \
updates of the whole table, and their times those of the statements that were seen running.";

/// The table of this name, written as in a statement.
fn find<'l>(live: &'l LiveTables, dialect: Dialect, name: &str) -> Option<&'l LiveTable> {
    let exact = live.tables.get(name);
    let folded = || live.tables.get(&name.to_lowercase());
    match dialect {
        Dialect::Postgres => exact.or_else(folded),
        _ => exact,
    }
}

fn advice(
    live: &LiveTables,
    dialect: Dialect,
    table: &LiveTable,
    columns: &str,
    seen: Seen,
    seconds: f64,
    looks: u32,
) -> Option<Advice> {
    let columns: Vec<_> = columns.split(' ').collect();
    let live_column = |name: &str| {
        let mut all = table.columns.iter();
        all.find(|column| column.name.eq_ignore_ascii_case(name))
    };
    let countable: Vec<_> = columns
        .iter()
        .filter_map(|name| live_column(name))
        .filter(|column| field_type(dialect, column).is_some() && column.key.is_none())
        .collect();
    // A shards table is counted on too, by those whose statements name it.
    let is_shards = table.name.ends_with("_shards") && table.column("shard").is_some();
    if countable.is_empty() || is_shards {
        return None;
    }
    let counted: Vec<_> = countable
        .iter()
        .map(|column| column.name.as_str())
        .collect();
    let all = sharded::all(dialect, live);
    let sharded = all.iter().any(|sharded| {
        let fields = names(sharded.fields());
        sharded.table().name() == table.name && counted.iter().all(|name| fields.contains(name))
    });
    let next = match sharded {
        true => format!(
            "{} has shards already: the code that sends this needs `use diesel_sharded::update`",
            table.name
        ),
        false => format!(
            "diesel-sharded generate {} {}",
            table.name,
            counted.join(" ")
        ),
    };
    let waiting_share = (seen.running > 0).then(|| seen.waiting as f64 / seen.running as f64);
    let new = (seen.new_counts > 0).then_some(seen.new_counts as f64);
    Some(Advice {
        table: table.name.clone(),
        column: counted.join(", "),
        sharded,
        counts: (seen.counts > 0).then_some(seen.counts),
        counts_per_second: (seen.counts > 0).then_some(seen.new_counts as f64 / seconds),
        mean_ms: new.map(|new| seen.new_ms / new),
        waiting_share,
        waiting_sessions: seen.waiting as f64 / f64::from(looks),
        next,
    })
}

fn show(report: &Report, out: &mut Output) -> Result<(), Error> {
    for note in &report.notes {
        out.line(&format!("{note}\n"))?;
    }
    let Some(assumption) = report.assumption else {
        return Ok(());
    };
    if report.columns.is_empty() {
        return out.line(
            "No statement counts on a row: none of the form UPDATE t SET c = c + n was seen.",
        );
    }
    let optional = |n: Option<String>| n.unwrap_or_else(|| "-".to_owned());
    let rows = report.columns.iter().map(|advice| {
        vec![
            advice.table.clone(),
            advice.column.clone(),
            optional(advice.counts.map(|n| n.to_string())),
            optional(advice.counts_per_second.map(|n| format!("{n:.1}"))),
            optional(advice.mean_ms.map(|n| format!("{n:.2}"))),
            optional(advice.waiting_share.map(|n| format!("{:.0}%", n * 100.0))),
            format!("{:.1}", advice.waiting_sessions),
        ]
    });
    out.table(
        &[
            "table",
            "column",
            "counts",
            "a second",
            "mean ms",
            "wait",
            "waiting sessions",
        ],
        &rows.collect::<Vec<_>>(),
    )?;
    for advice in &report.columns {
        let verdict = match advice.waiting_share {
            Some(share) if share >= 0.2 => {
                "sessions wait for its rows, and shards would let them go on"
            }
            Some(_) => "few wait for its rows: shards would give little now",
            None => "none was running when it was looked at: shards would give little now",
        };
        out.line(&format!(
            "\n{}.{}: {verdict}.\n  {}",
            advice.table, advice.column, advice.next
        ))?;
    }
    out.line(&format!("\n{assumption}"))
}
