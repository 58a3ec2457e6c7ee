//! `diesel-sharded advise`: columns that are counted on one row, before they are sharded.

mod counting;
mod places;
mod statistics;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel_sharded::backend::Dialect;
use serde::Serialize;

use crate::args::AdviseArgs;
use crate::column_type;
use crate::connection::AnyConnection;
use crate::error::Error;
use crate::exit::Ended;
use crate::interrupt;
use crate::live::LiveTables;
use crate::output::{self, or_dash};
use crate::sharded::{self, names};
use crate::shell;

use self::counting::{Counting, is_one};
use self::places::Places;
use self::statistics::{Digest, Statistics};

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

/// The findings about one column.
#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    counts: u64,
    /// Within the time of looking.
    new_counts: u64,
    new_ms: f64,
    running: u64,
    waiting: u64,
}

impl Seen {
    fn add(&mut self, other: Seen) {
        self.counts += other.counts;
        self.new_counts += other.new_counts;
        self.new_ms += other.new_ms;
        self.running += other.running;
        self.waiting += other.waiting;
    }
}

type Statements = BTreeMap<Counting, Seen>;

/// The columns of a table that statements count on, whatever name of the table they use.
struct Columns {
    live: Arc<LiveTables>,
    table: String,
    columns: Vec<String>,
    seen: Seen,
}

pub fn run(args: &AdviseArgs, conn: &mut AnyConnection) -> Result<Ended, Error> {
    interrupt::handle("showing what was seen so far")?;
    let report = match conn.dialect() {
        Dialect::Sqlite => Report {
            notes: vec![ON_SQLITE.to_owned()],
            ..Report::default()
        },
        _ => look(args, conn)?,
    };
    match args.json {
        true => output::json(&report)?,
        false => show(&report)?,
    }
    Ok(Ended::Done)
}

const ON_SQLITE: &str = "SQLite keeps no statistics of statements, and has one writer for the whole database: shards do not make its writes faster. If \
writers wait there (SQLITE_BUSY, or seconds in busy_timeout), commit many counts at once by the library's Coalescer. To see how often a \
column is counted, count its statements in the application, as the library's feature `metrics` does.";

fn look(args: &AdviseArgs, conn: &mut AnyConnection) -> Result<Report, Error> {
    let mut statements = Statements::new();
    let dialect = conn.dialect();
    let mut report = Report {
        assumption: Some(statistics::assumption(dialect)),
        ..Report::default()
    };
    output::note(&format!(
        "Looking for {} s at the statements of this database…",
        args.seconds
    ));
    let before = or_note(Statistics::read(conn))?;
    let start = Instant::now();
    let end = start + Duration::from_secs(args.seconds.into());
    let mut looks = 0_u32;
    while Instant::now() < end && !interrupt::came() {
        let due = Instant::now() + PAUSE;
        match or_note(statistics::look(conn))? {
            Ok(running) => {
                looks += 1;
                for running in running {
                    if let Some(seen) = seen_by(&running.text, dialect, &mut statements) {
                        seen.running += 1;
                        seen.waiting += u64::from(running.waits);
                    }
                }
            }
            Err(note) => {
                report.notes.push(note);
                interrupt::sleep_until(end);
            }
        }
        interrupt::sleep_until(due.min(end));
    }
    report.seconds = start.elapsed().as_secs_f64();
    let after = or_note(Statistics::read(conn))?;
    if let (Ok(before), Ok(after)) = (&before, &after) {
        add_digests(&before.digests, &after.digests, dialect, &mut statements);
    }
    let mut places = Places::read(conn)?;
    let mut columns = by_column(statements, &mut places, conn)?;
    match (before, after) {
        (Ok(before), Ok(after)) => {
            let time = report.seconds * 1000.0 / f64::from(looks.max(1));
            if add_row_updates(&before, &after, time, &mut columns) {
                report.notes.push(BY_TABLE.to_owned());
            }
        }
        (Err(off), _) | (_, Err(off)) => report.notes.push(off),
    }
    let advices = columns.iter();
    let advices = advices.map(|columns| advice(columns, dialect, report.seconds, looks.max(1)));
    report.columns = advices.collect();
    report.notes.append(&mut places.notes);
    let rate = |advice: &Advice| advice.counts_per_second.unwrap_or(0.0);
    report.columns.sort_by(|a, b| {
        let by_waits = b.waiting_sessions.total_cmp(&a.waiting_sessions);
        by_waits.then(rate(b).total_cmp(&rate(a)))
    });
    Ok(report)
}

/// What was read, or the remedy where the database refused it.
fn or_note<T>(read: Result<T, Error>) -> Result<Result<T, String>, Error> {
    match read {
        Err(Error::Refused(note)) => Ok(Err(note)),
        read => read.map(Ok),
    }
}

/// The findings about the statements that count on the same columns. All of these are one write.
fn seen_by<'s>(
    text: &str,
    dialect: Dialect,
    statements: &'s mut Statements,
) -> Option<&'s mut Seen> {
    let counting = Counting::read(text, dialect)?;
    Some(statements.entry(counting).or_default())
}

fn add_digests(before: &[Digest], after: &[Digest], dialect: Dialect, statements: &mut Statements) {
    for digest in after {
        let earlier = before.iter().find(|earlier| earlier.text == digest.text);
        let (calls, total) = earlier.map_or((0, 0.0), |earlier| (earlier.calls, earlier.total_ms));
        if let Some(seen) = seen_by(&digest.text, dialect, statements) {
            seen.counts += digest.calls;
            // Statistics that were reset meanwhile begin again.
            seen.new_counts += digest.calls.saturating_sub(calls);
            seen.new_ms += (digest.total_ms - total).max(0.0);
        }
    }
}

/// The columns to which the statements' names lead.
fn by_column(
    statements: Statements,
    places: &mut Places,
    conn: &mut AnyConnection,
) -> QueryResult<Vec<Columns>> {
    let mut columns = BTreeMap::<(String, Vec<String>), Columns>::new();
    for (counting, seen) in statements {
        let Some((live, name)) = places.find(&counting, conn)? else {
            continue;
        };
        let table = &live.tables[&name];
        let countable = table.columns.iter().filter(|column| {
            column_type::field(conn.dialect(), column).is_some() && column.key.is_none()
        });
        let counted = countable.filter(|column| {
            let mut counted = counting.columns.iter();
            counted.any(|name| is_one(name, &column.name, conn.dialect()))
        });
        let counted: Vec<_> = counted.map(|column| column.name.clone()).collect();
        // A shards table is counted on too, by those whose statements name it.
        let is_shards = table.name.ends_with("_shards") && table.column("shard").is_some();
        if counted.is_empty() || is_shards {
            continue;
        }
        let key = (live.full(&name), counted.clone());
        let of_columns = columns.entry(key).or_insert_with(|| Columns {
            live,
            table: name,
            columns: counted,
            seen: Seen::default(),
        });
        of_columns.seen.add(seen);
    }
    Ok(columns.into_values().collect())
}

/// Where no digest has a column whose statements were seen running, the updates of its table are counted, and `time` in milliseconds
/// stands for each time that one was seen. Tells whether there was such a column.
fn add_row_updates(
    before: &Statistics,
    after: &Statistics,
    time: f64,
    columns: &mut [Columns],
) -> bool {
    let mut added = false;
    for Columns {
        live, table, seen, ..
    } in columns
    {
        // Those of this database alone are known.
        let is_left_out = seen.new_counts == 0 && seen.running > 0 && live.schema().is_none();
        let updates = |statistics: &Statistics| statistics.row_updates.get(table.as_str()).copied();
        if let Some(updates_after) = updates(after).filter(|_| is_left_out) {
            seen.counts = updates_after;
            seen.new_counts = updates_after.saturating_sub(updates(before).unwrap_or(0));
            seen.new_ms = seen.running as f64 * time;
            added = true;
        }
    }
    added
}

const BY_TABLE: &str = "The server's digests leave out statements that the client prepared, as Diesel does on MariaDB. Their counts are the row \
updates of the whole table, and their times those of the statements that were seen running.";

fn advice(columns: &Columns, dialect: Dialect, seconds: f64, looks: u32) -> Advice {
    let Columns {
        live,
        table: name,
        columns: counted,
        seen,
    } = columns;
    let table = live.full(name);
    let all = sharded::all(dialect, live);
    let sharded = all.iter().any(|sharded| {
        let fields = names(sharded.fields());
        let mut counted = counted.iter();
        sharded.table().name() == name && counted.all(|name| fields.contains(&name.as_str()))
    });
    let next = match sharded {
        true => format!(
            "{table} has shards already: the code that sends this needs `use diesel_sharded::update`"
        ),
        false => {
            let columns = counted.iter().map(String::as_str);
            shell::command(["generate", &*table].into_iter().chain(columns))
        }
    };
    let waiting_share = (seen.running > 0).then(|| seen.waiting as f64 / seen.running as f64);
    let new = (seen.new_counts > 0).then_some(seen.new_counts as f64);
    Advice {
        table,
        column: counted.join(", "),
        sharded,
        counts: (seen.counts > 0).then_some(seen.counts),
        counts_per_second: (seen.counts > 0).then_some(seen.new_counts as f64 / seconds),
        mean_ms: new.map(|new| seen.new_ms / new),
        waiting_share,
        waiting_sessions: seen.waiting as f64 / f64::from(looks),
        next,
    }
}

fn show(report: &Report) -> Result<(), Error> {
    for note in &report.notes {
        output::line(&format!("{note}\n"))?;
    }
    let Some(assumption) = report.assumption else {
        return Ok(());
    };
    if report.columns.is_empty() {
        return output::line(
            "No statement counts on a row: none of the form UPDATE t SET c = c + n was seen.",
        );
    }
    let rows = report.columns.iter().map(|advice| {
        vec![
            advice.table.clone(),
            advice.column.clone(),
            or_dash(advice.counts),
            or_dash(advice.counts_per_second.map(|n| format!("{n:.1}"))),
            or_dash(advice.mean_ms.map(|n| format!("{n:.2}"))),
            or_dash(advice.waiting_share.map(|n| format!("{:.0}%", n * 100.0))),
            format!("{:.1}", advice.waiting_sessions),
        ]
    });
    output::table(
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
        output::line(&format!(
            "\n{}.{}: {verdict}.\n  {}",
            advice.table, advice.column, advice.next
        ))?;
    }
    output::line(&format!("\n{assumption}"))
}
