//! Blocks on one hot row.

use super::numbers::{rate, ratio, times};
use super::text::paragraph;
use crate::median;
use crate::names::*;
use crate::report::{Cell, Missing, Report};

const THREADS: usize = 64;

/// A database, on a disk that its commits wait for.
type Place = (&'static str, &'static str);

const ON_POSTGRESQL: Place = (POSTGRESQL, LOCAL_DISK);
const ON_SLOW_POSTGRESQL: Place = (POSTGRESQL, SLOW_DISK);
const ON_MARIADB: Place = (MARIADB, LOCAL_DISK);
const ON_SQLITE: Place = (SQLITE, LOCAL_DISK);
const PLACES: [Place; 4] = [ON_POSTGRESQL, ON_SLOW_POSTGRESQL, ON_MARIADB, ON_SQLITE];

fn cell<'a>(report: &'a Report, place: Place, entrant: &str) -> Result<&'a Cell, Missing> {
    report.part(DISKS, place.0)?.cell(place.1, THREADS, entrant)
}

fn per_second(report: &Report, place: Place, entrant: &str) -> Result<f64, Missing> {
    Ok(cell(report, place, entrant)?.per_second)
}

/// The rate with the latencies below it. On SQLite not every contender is measured.
fn entry(report: &Report, place: Place, entrant: &str) -> Result<String, Missing> {
    let cell = match cell(report, place, entrant) {
        Ok(cell) => cell,
        Err(_) if place == ON_SQLITE => return Ok(String::new()),
        Err(missing) => return Err(missing),
    };
    Ok(rate_and_latencies(cell))
}

/// The rate with p50 and p99 below it.
pub fn rate_and_latencies(cell: &Cell) -> String {
    let latencies = cell.p50_us.zip(cell.p99_us);
    let latencies = latencies.map_or(String::new(), |(p50, p99)| {
        format!("<br>{}", times(p50, p99))
    });
    let failed = match cell.failed {
        0 => String::new(),
        failed => format!("<br>{failed} failed"),
    };
    format!("{}{latencies}{failed}", rate(cell.per_second))
}

/// Fills a table: `{}` in its head stands for the names of the places, and `{ENTRANT}` below for its cells there.
fn fill(report: &Report, places: &[Place], table: &str) -> Result<String, Missing> {
    let cell = |&place: &Place, entrant: &str| match (entrant, place) {
        ("", (database, SLOW_DISK)) => Ok(format!("{database}, commits slowed to 1 ms")),
        ("", (database, _)) => Ok(database.to_owned()),
        _ => entry(report, place, entrant),
    };
    let lines = table.lines().map(|line| {
        let (before, rest) = line.split_once('{').expect("cells to fill");
        let (entrant, after) = rest.split_once('}').expect("a brace is closed");
        let cells = places.iter().map(|place| cell(place, entrant));
        let cells: Vec<String> = cells.collect::<Result<_, Missing>>()?;
        Ok(format!("{before}{}{after}", cells.join(" | ")))
    });
    let mut lines: Vec<String> = lines.collect::<Result<_, Missing>>()?;
    let columns = lines[0].matches('|').count() - 1;
    lines.insert(1, format!("|{}", "---|".repeat(columns)));
    Ok(lines.join("\n"))
}

pub fn lead(report: &Report) -> Result<String, Missing> {
    let line = |database, place| -> Result<String, Missing> {
        let of = |entrant| Ok(rate(per_second(report, place, entrant)?));
        let (row, prepared) = (of(ONE_ROW)?, of(PREPARED)?);
        let (sharded, coalesced) = (of(DEFAULT)?, of(COALESCED)?);
        Ok(format!(
            "| {database} | {row} ({prepared} prepared by hand) | **{sharded}** | {coalesced} |"
        ))
    };
    let conditions = paragraph(&format!(
        "Counts a second on one hot row, by 64 threads. A count returns after its commit, a commit waits for the disk, and clients and servers \
         share {} cores. A coalescer commits the counts of many threads together.",
        report.part(DISKS, POSTGRESQL)?.machine.cores
    ));
    Ok([
        &conditions,
        "",
        "| | one row | sharded | through a [coalescer](https://docs.rs/diesel_sharded/latest/diesel_sharded/coalescer/) |",
        "|---|---|---|---|",
        &line("PostgreSQL", ON_POSTGRESQL)?,
        &line("MariaDB", ON_MARIADB)?,
    ]
    .join("\n"))
}

pub fn why(report: &Report) -> Result<String, Missing> {
    const TABLE: &str = "\
| counts a second<br>p50 / p99 | {} |
| `diesel::update`, one row | {one row, diesel::update} |
| the same, prepared by hand | {one row, prepared by hand} |
| [`update`](crate::update()) of this crate | {sharded, default} |
| [`Coalescer`](crate::coalescer), each count acknowledged | {coalesced, acknowledged} |";
    fill(report, &PLACES, TABLE)
}

pub fn machine(report: &Report) -> Result<String, Missing> {
    let parts = [POSTGRESQL, MARIADB, SQLITE].map(|database| report.part(DISKS, database));
    let [postgresql, mariadb, sqlite] = parts;
    let (postgresql, mariadb, sqlite) = (postgresql?, mariadb?, sqlite?);
    let machine = &postgresql.machine;
    let spread = spread(report)?;
    let rough = if postgresql.pace.quick {
        " **A quick run made them, so they are rough.**"
    } else {
        ""
    };
    Ok(paragraph(&format!(
        "The figures are medians of {} interleaved rounds of {} ms, measured on {}. At the median, a way's slowest round is \
         {spread:.0} % slower than its fastest.{rough} Clients and servers share {} cores of an {} ({:.0} GB, Linux {}). The servers are {}, {}, {} and {}, and commits wait \
         for the local disk (fsync).",
        postgresql.pace.rounds,
        postgresql.pace.slice_ms,
        postgresql.date,
        machine.cores,
        machine.cpu,
        machine.memory_gb,
        machine.kernel,
        postgresql.machine.server,
        mariadb.machine.server,
        sqlite.machine.server,
        machine.redis,
    )))
}

/// The median of how much slower the slowest round of a cell is than the fastest, in percent.
fn spread(report: &Report) -> Result<f64, Missing> {
    let mut spreads = vec![];
    for (database, disk) in PLACES {
        let cells = report.part(DISKS, database)?.cells.iter();
        for cell in cells.filter(|cell| cell.disk == disk && cell.threads == THREADS) {
            let (slowest, fastest) = cell.slowest_and_fastest();
            spreads.push((fastest - slowest) / fastest * 100.0);
        }
    }
    let missing = || Missing(format!("{THREADS} threads in section {DISKS}"));
    median(spreads).ok_or_else(missing)
}

pub fn table(report: &Report) -> Result<String, Missing> {
    const TABLE: &str = "\
| 64 threads: counts a second<br>p50 / p99 of one call | {} |
| one row, `diesel::update` | {one row, diesel::update} |
| one row, prepared by hand | {one row, prepared by hand} |
| 100 slots, Diesel's upsert | {slotted counters, Diesel's upsert} |
| 100 slots, prepared by hand | {slotted counters, prepared by hand} |
| append-only `INSERT` by Diesel | {append-only INSERT} |
| append-only `INSERT`, prepared by hand | {append-only INSERT, prepared by hand} |
| **`diesel_sharded::update`** | {sharded, default} |
| **`Coalescer::add`** | {coalesced, acknowledged} |
| without waiting: Redis `INCR`, in memory | {Redis INCR, written behind} |
| without waiting: Redis `INCR`, `appendfsync everysec` | {Redis INCR with appendfsync everysec, written behind} |
| without waiting: **`Coalescer::add_later`** | {coalesced, buffered} |";
    fill(report, &PLACES, TABLE)
}

pub fn more_and_fewer_threads(report: &Report) -> Result<String, Missing> {
    let times = |section, (database, disk): Place, threads, other| -> Result<String, Missing> {
        let part = report.part(section, database)?;
        let cell = |entrant| part.cell(disk, threads, entrant);
        Ok(ratio(cell(DEFAULT)?.per_second / cell(other)?.per_second))
    };
    let alone = |database| times(HOT, (database, NO_DISK), 1, ONE_ROW);
    let alone_prepared = |database| times(HOT, (database, NO_DISK), 1, PREPARED);
    Ok(paragraph(&format!(
        "With 32 threads, `update` makes {} times the counts of one row on PostgreSQL, {} times with commits slowed to 1 ms, and {} \
         times on MariaDB; compared with one row prepared by hand, {}, {} and {} times. Compared with 100 slots prepared by hand it \
         makes {} times as many with 64 threads on PostgreSQL and {} times on MariaDB, and compared with appending, {} and {} \
         times. With one thread and without fsync, where a difference shows the most, it makes {} (PostgreSQL), {} (MariaDB) and {} \
         (SQLite) times as many as `diesel::update`, and {}, {} and {} times as many as the statement prepared by hand.",
        times(DISKS, ON_POSTGRESQL, 32, ONE_ROW)?,
        times(DISKS, ON_SLOW_POSTGRESQL, 32, ONE_ROW)?,
        times(DISKS, ON_MARIADB, 32, ONE_ROW)?,
        times(DISKS, ON_POSTGRESQL, 32, PREPARED)?,
        times(DISKS, ON_SLOW_POSTGRESQL, 32, PREPARED)?,
        times(DISKS, ON_MARIADB, 32, PREPARED)?,
        times(DISKS, ON_POSTGRESQL, 64, SLOTTED_PREPARED)?,
        times(DISKS, ON_MARIADB, 64, SLOTTED_PREPARED)?,
        times(DISKS, ON_POSTGRESQL, 64, APPEND_ONLY_PREPARED)?,
        times(DISKS, ON_MARIADB, 64, APPEND_ONLY_PREPARED)?,
        alone(POSTGRESQL)?,
        alone(MARIADB)?,
        alone(SQLITE)?,
        alone_prepared(POSTGRESQL)?,
        alone_prepared(MARIADB)?,
        alone_prepared(SQLITE)?,
    )))
}

pub fn comparison(report: &Report) -> Result<String, Missing> {
    const TABLE: &str = "\
|  | exact | a crash loses | reading | {} |
| a plain column, `diesel::update` | yes | nothing | a column, with an index | {one row, diesel::update} |
| a plain column, prepared by hand | yes | nothing | the same | {one row, prepared by hand} |
| slotted counters, 100 slots, Diesel's upsert | yes | nothing | a sum of up to 100 rows | {slotted counters, Diesel's upsert} |
| slotted counters, prepared by hand | yes | nothing | the same | {slotted counters, prepared by hand} |
| event rows, `INSERT` by Diesel | yes | nothing | a count over all events, or a roll-up | {append-only INSERT} |
| event rows, prepared by hand | yes | nothing | the same | {append-only INSERT, prepared by hand} |
| **[`update`](crate::update())** | yes | nothing | a sum of as many rows as writers met | {sharded, default} |
| **[`Coalescer::add`](crate::coalescer::Coalescer::add)** | yes | nothing | the same, one row for a cold key | {coalesced, acknowledged} |
| Redis `INCR` in memory, written behind | until something crashes | everything not yet written | Redis | {Redis INCR, written behind} |
| Redis `INCR` with `appendfsync everysec`, written behind | until something crashes | about a second, and the sums of an interrupted job | Redis | {Redis INCR with appendfsync everysec, written behind} |
| **[`Coalescer::add_later`](crate::coalescer::Coalescer::add_later)** | until the process crashes | about 100 ms | the same as `add` | {coalesced, buffered} |";
    fill(report, &[ON_POSTGRESQL, ON_MARIADB], TABLE)
}

pub fn coalescer(report: &Report) -> Result<String, Missing> {
    let times = |place, other| -> Result<String, Missing> {
        let coalesced = per_second(report, place, COALESCED)?;
        Ok(ratio(coalesced / per_second(report, place, other)?))
    };
    Ok(paragraph(&format!(
        "64 threads that each wait for their count made {} times the counts of one row on PostgreSQL, {} times on MariaDB and {} \
         times on SQLite, where commits wait for the disk. Compared with one row prepared by hand it was {}, {} and {} times.",
        times(ON_POSTGRESQL, ONE_ROW)?,
        times(ON_MARIADB, ONE_ROW)?,
        times(ON_SQLITE, ONE_ROW)?,
        times(ON_POSTGRESQL, PREPARED)?,
        times(ON_MARIADB, PREPARED)?,
        times(ON_SQLITE, PREPARED)?,
    )))
}

pub fn one_coalescer(report: &Report) -> Result<String, Missing> {
    let of = |place| Ok(rate(per_second(report, place, COALESCED)?));
    let cores = report.part(DISKS, POSTGRESQL)?.machine.cores;
    Ok(paragraph(&format!(
        "One coalescer makes {} acknowledged counts a second on PostgreSQL and {} on MariaDB, on {cores} cores that it shares with the \
         server, with commits that wait for a local disk.",
        of(ON_POSTGRESQL)?,
        of(ON_MARIADB)?,
    )))
}

pub fn several_processes(report: &Report) -> Result<String, Missing> {
    let rates = |database| -> Result<[f64; 4], Missing> {
        let part = report.part(PROCESSES, database)?;
        let rate = |entrant| Ok(part.cell(LOCAL_DISK, THREADS, entrant)?.per_second);
        Ok([
            rate(ONE_ROW)?,
            rate(RANDOM)?,
            rate(STRIPED)?,
            rate(DEFAULT)?,
        ])
    };
    let sentence = |database| -> Result<String, Missing> {
        let [one_row, random, striped, default] = rates(database)?;
        Ok(format!(
            "On {database} they made {} counts a second by the default, {} with `Striped`, {} with `Random` and {} on one row.",
            rate(default),
            rate(striped),
            rate(random),
            rate(one_row),
        ))
    };
    Ok(paragraph(&format!(
        "8 processes of 8 threads counted on one row. {} {} (`--bench processes`)",
        sentence(POSTGRESQL)?,
        sentence(MARIADB)?,
    )))
}
