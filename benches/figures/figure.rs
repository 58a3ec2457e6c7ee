//! The figures that a block may name, each with what it is of.

use super::numbers::{grouped, rate, ratio, time, times};
use crate::median;
use crate::names::*;
use crate::report::{Cell, Missing, Part, Report, Sample};

type Figure = fn(&Report, &[&str]) -> Result<String, Missing>;

const DATABASES: [&str; 3] = [POSTGRESQL, MARIADB, SQLITE];
const SERVERS: [&str; 2] = [POSTGRESQL, MARIADB];
const PLACES: [(&str, &str); 4] = [
    (POSTGRESQL, LOCAL_DISK),
    (POSTGRESQL, SLOW_DISK),
    (MARIADB, LOCAL_DISK),
    (SQLITE, LOCAL_DISK),
];
const THREADS: usize = 64;

const FIGURES: [(&str, Figure); 23] = [
    // Of a part: its section and its database; for `measured` one database or more.
    ("fact", fact),
    ("measured", measured),
    ("rough", |report, of| {
        let [section, database] = exactly(of)?;
        let rough = " **A quick run made them, so they are rough.**";
        let is_rough = report.part(section, database)?.pace.quick;
        Ok(if is_rough { rough } else { "" }.to_owned())
    }),
    // Of a cell: its section, database, disk, threads and entrant; for `times` also another entrant there.
    ("rate", |report, of| Ok(rate(cell(report, of)?.per_second))),
    ("range", |report, of| Ok(range(cell(report, of)?))),
    ("times", |report, of| {
        let [section, database, disk, threads, entrant, other] = exactly(of)?;
        let rate = |entrant| cell(report, &[section, database, disk, threads, entrant]);
        Ok(ratio(rate(entrant)?.per_second / rate(other)?.per_second))
    }),
    // Of a section and an entrant on one hot row, in one cell or more of a table.
    ("everywhere", |report, of| {
        let [section, entrant] = exactly(of)?;
        in_cells(PLACES, |(database, disk)| {
            match report.part(section, database)?.cell(disk, THREADS, entrant) {
                Err(_) if database == SQLITE => Ok(String::new()), // not every contender is measured there
                cell => Ok(rate_and_latencies(cell?)),
            }
        })
    }),
    // Of a number of threads, by how long a commit takes: combined by `update` alone; slots, `update` and combined by one row.
    ("combined", |report, of| {
        by_commits(report, of, |rate_of| {
            let (combined, alone) = (rate_of(COMBINED)?, rate_of(DEFAULT)?);
            Ok(format!("{} ({})", ratio(combined / alone), rate(combined)))
        })
    }),
    ("commits", |report, of| {
        by_commits(report, of, |rate_of| {
            let one_row = rate_of(ONE_ROW)?;
            let times = |entrant| Ok(ratio(rate_of(entrant)? / one_row));
            joined("/", [SLOTTED_PREPARED, DEFAULT, COMBINED], times)
        })
    }),
    ("on_servers", |report, of| on(&SERVERS, report, of)),
    ("on_databases", |report, of| on(&DATABASES, report, of)),
    // Of a database and an entrant.
    ("open", |report, of| {
        let [database, entrant] = exactly(of)?;
        let cells = &report.part(OPEN, database)?.cells;
        in_cells(OPEN_RATES, |(shape, _)| {
            let found = cells
                .iter()
                .find(|cell| cell.shape.as_deref() == Some(shape) && cell.entrant == entrant);
            let cell = found.ok_or_else(|| Missing(format!("{entrant} {shape}")))?;
            Ok(rate_and_latencies(cell))
        })
    }),
    // Of a database, the keys and an entrant.
    ("keys", |report, of| {
        let [database, keys, entrant] = exactly(of)?;
        let cells = &report.part(KEYS, database)?.cells;
        let found = cells
            .iter()
            .find(|cell| cell.keys == keys && cell.entrant == entrant);
        Ok(rate(
            found
                .ok_or_else(|| Missing(format!("{entrant}, {keys}")))?
                .per_second,
        ))
    }),
    ("tasks", |report, of| {
        let [entrant] = exactly(of)?;
        in_cells(DATABASES, |database| {
            let part = report.part(TASKS, database)?;
            let cell = |entrant| part.cell(LOCAL_DISK, part.most_threads(), entrant);
            let (of_row, of_way) = (cell(ONE_ROW)?, cell(entrant)?);
            let times = ratio(of_way.per_second / of_row.per_second);
            Ok(format!("{}<br>{times} times", rate_and_latencies(of_way)))
        })
    }),
    // Of a read: its section, its database, its name, its form, and another form of it.
    ("time", |report, of| {
        let [section, database, read, form] = exactly(of)?;
        Ok(time(report.part(section, database)?.reading(read, form)?))
    }),
    ("longer", |report, of| {
        let [section, database, read, form, other] = exactly(of)?;
        let part = report.part(section, database)?;
        Ok(ratio(
            part.reading(read, form)? / part.reading(read, other)?,
        ))
    }),
    ("totals", |report, of| {
        let [read] = exactly(of)?;
        in_cells(DATABASES, |database| {
            let part = report.part(READS, database)?;
            let (total, plain) = (part.reading(read, TOTAL)?, part.reading(read, PLAIN)?);
            Ok(format!(
                "{} times ({} : {})",
                ratio(total / plain),
                time(total),
                time(plain)
            ))
        })
    }),
    ("top", |report, of| {
        let [database, mix] = exactly(of)?;
        let part = report.part(TOP, database)?;
        let of = |form| part.reading(&format!("{mix}, {ALL_ROWS}"), form);
        let (sort, top, plain) = (of(SORT)?, of(TOP_LIST)?, of(INDEXED)?);
        let [sort, top, plain] = [sort, top, plain].map(time);
        Ok(format!("{sort} | {top} | {plain}"))
    }),
    // Of a shape of the update.
    ("shape", |report, of| {
        let [shape] = exactly(of)?;
        let threads = report.part(SHAPES, POSTGRESQL)?.most_threads();
        in_cells(SERVERS, |database| {
            let cells = &report.part(SHAPES, database)?.cells;
            let cell = |entrant| {
                let found = cells.iter().find(|cell| {
                    (cell.shape.as_deref(), cell.threads) == (Some(shape), threads)
                        && cell.entrant == entrant
                });
                found.ok_or_else(|| Missing(format!("shape {shape}, {entrant}")))
            };
            let (diesel, ours) = (cell(ONE_ROW)?, cell(DEFAULT)?);
            let times = ratio(ours.per_second / diesel.per_second);
            Ok(format!(
                "{} | {} | {times}",
                rate_and_latencies(diesel),
                rate_and_latencies(ours)
            ))
        })
    }),
    // Of a section.
    ("threads", |report, of| {
        let [section] = exactly(of)?;
        Ok(grouped(
            report.part(section, POSTGRESQL)?.most_threads() as u64
        ))
    }),
    ("soak", |report, of| {
        let [database] = exactly(of)?;
        soak(report.part(SOAK, database)?)
    }),
    ("spread", |report, _| spread(report)),
    ("ranked", |report, _| {
        let is_quick = report.part(TOP, POSTGRESQL)?.pace.quick;
        Ok(grouped(ranked_rows(is_quick) as u64))
    }),
];

type RateOf<'r> = &'r dyn Fn(&str) -> Result<f64, Missing>;

fn by_commits(
    report: &Report,
    of: &[&str],
    show: fn(RateOf<'_>) -> Result<String, Missing>,
) -> Result<String, Missing> {
    let [threads] = exactly(of)?;
    let disks = [LOCAL_DISK, SLOW_DISK, REMOTE];
    let places = SERVERS.map(|server| disks.map(|disk| (server, disk)));
    in_cells(places.as_flattened(), |&(server, disk)| {
        show(&|entrant| Ok(cell(report, &[COMMITS, server, disk, threads, entrant])?.per_second))
    })
}

/// The figure that a brace holds.
pub(super) fn figure(report: &Report, text: &str) -> Result<String, Missing> {
    let (name, of) = text.split_once(' ').unwrap_or((text, ""));
    let of: Vec<&str> = of.split(';').map(str::trim).collect();
    let figure = FIGURES.iter().find(|(figure, _)| *figure == name);
    let (_, figure) = figure.ok_or_else(|| Missing(format!("a figure {name:?}")))?;
    figure(report, &of)
}

fn exactly<'a, const N: usize>(of: &[&'a str]) -> Result<[&'a str; N], Missing> {
    of.try_into()
        .map_err(|_| Missing(format!("a figure of {N}, and not of {of:?}")))
}

/// Joins the cells of a row.
fn in_cells<T>(
    all: impl IntoIterator<Item = T>,
    cell: impl Fn(T) -> Result<String, Missing>,
) -> Result<String, Missing> {
    joined(" | ", all, cell)
}

fn joined<T>(
    separator: &str,
    all: impl IntoIterator<Item = T>,
    show: impl Fn(T) -> Result<String, Missing>,
) -> Result<String, Missing> {
    let shown: Result<Vec<_>, _> = all.into_iter().map(show).collect();
    Ok(shown?.join(separator))
}

/// Of a section, a disk and an entrant: a cell for each of these databases.
fn on(databases: &[&str], report: &Report, of: &[&str]) -> Result<String, Missing> {
    let [section, disk, entrant] = exactly(of)?;
    in_cells(databases, |database| {
        let part = report.part(section, database)?;
        Ok(rate_and_latencies(part.cell(disk, THREADS, entrant)?))
    })
}

/// Any value of a part, by its path there.
fn fact(report: &Report, of: &[&str]) -> Result<String, Missing> {
    let [section, database, path] = exactly(of)?;
    let part = report.part(section, database)?;
    let value = serde_json::to_value(part).expect("numbers and texts");
    let value = value.pointer(path);
    let text = value.and_then(|value| match value.as_str() {
        Some(text) => Some(text.to_owned()),
        None => Some(format!("{:.0}", value.as_f64()?)),
    });
    text.ok_or_else(|| Missing(format!("{path} in section {section} on {database}")))
}

/// Where and when a section was measured, for each of these databases.
fn measured(report: &Report, of: &[&str]) -> Result<String, Missing> {
    let (section, databases) = of
        .split_first()
        .ok_or_else(|| Missing("a section".into()))?;
    let on = databases.iter().map(|database| {
        let Part {
            date,
            machine,
            pace,
            ..
        } = report.part(section, database)?;
        let server = match machine.server.split_once(", binary log") {
            Some((server, _)) => format!("{server} with its binary log"),
            None if *database == MARIADB => format!("{} without its binary log", machine.server),
            None => machine.server.clone(),
        };
        let quick = match pace.quick {
            true => ", quick, so the figures are rough",
            false => "",
        };
        let slice = time(pace.slice_ms as f64 * 1e3);
        let rounds = match (pace.slice_ms, pace.rounds) {
            (0, _) => String::new(),
            (_, 1) => format!(", one round of {slice}"),
            (_, rounds) => format!(", {rounds} rounds of {slice}"),
        };
        Ok((server, format!(" ({date}{rounds}{quick})")))
    });
    let on: Vec<_> = on.collect::<Result<_, _>>()?;
    let text = match &on[..] {
        [(_, pace), others @ ..] if others.iter().all(|(_, other)| other == pace) => {
            let servers: Vec<_> = on.iter().map(|(server, _)| &**server).collect();
            servers.join(", ") + pace
        }
        _ => {
            let each: Vec<_> = on
                .iter()
                .map(|(server, pace)| server.clone() + pace)
                .collect();
            each.join(", ")
        }
    };
    Ok(format!("Measured on {text}."))
}

/// The rates of a cell's slowest and fastest round.
fn range(cell: &Cell) -> String {
    let (slowest, fastest) = cell.slowest_and_fastest();
    format!("{} to {}", rate(slowest), rate(fastest))
}

fn cell<'r>(report: &'r Report, of: &[&str]) -> Result<&'r Cell, Missing> {
    let [section, database, disk, threads, entrant] = exactly(of)?;
    let number = threads.parse();
    let number = number.map_err(|_| Missing(format!("a number of threads {threads:?}")))?;
    report.part(section, database)?.cell(disk, number, entrant)
}

/// The rate with p50 and p99 below it.
fn rate_and_latencies(cell: &Cell) -> String {
    let latencies = cell.p50_us.zip(cell.p99_us);
    let latencies = latencies.map(|(p50, p99)| format!("<br>{}", times(p50, p99)));
    let failed = (cell.failed > 0).then(|| format!("<br>{} failed", cell.failed));
    let below = [latencies, failed].map(Option::unwrap_or_default);
    format!("{}{}", rate(cell.per_second), below.concat())
}

/// The median of how much slower the slowest round of a cell is than the fastest, in percent.
fn spread(report: &Report) -> Result<String, Missing> {
    let mut spreads = vec![];
    for (database, disk) in PLACES {
        let cells = report.part(DISKS, database)?.cells.iter();
        for cell in cells.filter(|cell| cell.disk == disk && cell.threads == THREADS) {
            let (slowest, fastest) = cell.slowest_and_fastest();
            spreads.push((fastest - slowest) / fastest * 100.0);
        }
    }
    let missing = || Missing(format!("{THREADS} threads in section {DISKS}"));
    Ok(format!("{:.0}", median(spreads).ok_or_else(missing)?))
}

fn soak(part: &Part) -> Result<String, Missing> {
    let missing = || Missing(format!("the soak of {}", part.database));
    let soak = part.soak.as_ref().ok_or_else(missing)?;
    let samples = &soak.samples;
    let tenth = samples.len().div_ceil(10);
    let tenths = [&samples[..tenth], &samples[samples.len() - tenth..]];
    let means = |value: fn(&Sample) -> f64, text: fn(f64) -> String| {
        let means = tenths.map(|of| of.iter().map(value).sum::<f64>() / of.len() as f64);
        means.map(text).join(", ")
    };
    let bytes = || samples.iter().map(|sample| sample.table_bytes);
    let sizes = [bytes().max(), bytes().next_back()];
    let sizes = sizes.map(|bytes| format!("{} KiB", grouped((bytes.unwrap_or(0) / 1024) as u64)));
    let cells = [
        soak.minutes.to_string(),
        grouped(soak.requests),
        means(|sample| sample.per_second, rate),
        means(|sample| sample.p99_us, time),
        sizes.join(", "),
        samples.last().map_or(0, |sample| sample.shards).to_string(),
        grouped(soak.acknowledged),
        grouped(soak.rose_by),
        grouped(soak.failed),
    ];
    Ok(cells.join(" | "))
}
