//! Blocks on rates that were not measured but follow from those that were.

use super::numbers::{grouped, rate, time};
use super::text::{paragraph, row, table as render_table};
use crate::names::*;
use crate::report::{Missing, Report};
use crate::simulated::{
    Choice, LARGE_CORES, Load, Server, check, error_at_median, greatest_error, simulate,
};

const MILLION: f64 = 1e6;

/// How many coalescers make a million counts a second, and how many transactions the database sees.
pub fn a_million_a_second(report: &Report) -> Result<String, Missing> {
    let mut rows = vec![row![
        "",
        "one coalescer: counts a second",
        "p50",
        "coalescers for a million a second",
        "transactions a second of all of them"
    ]];
    for database in [POSTGRESQL, MARIADB] {
        let disks = report.part(DISKS, database)?;
        let tasks = report.part(TASKS, database)?;
        let most_tasks = tasks.cells.iter().map(|cell| cell.threads).max();
        let most_tasks = most_tasks.unwrap_or_default();
        let cells = [
            ("threads", disks.cell(LOCAL_DISK, 64, COALESCED)?),
            ("tasks", tasks.cell(LOCAL_DISK, most_tasks, COALESCED)?),
        ];
        for (of, cell) in cells {
            let missing = || Missing(format!("the latencies of {COALESCED}"));
            let p50 = cell.p50_us.ok_or_else(missing)?;
            let coalescers = (MILLION / cell.per_second).ceil();
            // A caller waits for two batches at most, and for one at least.
            let [least, most] = [1.0, 2.0].map(|batches| coalescers * batches * 1e6 / p50);
            let threads = grouped(cell.threads as u64);
            rows.push(row![
                format!("{database}, {threads} {of}"),
                rate(cell.per_second),
                time(p50),
                coalescers,
                format!("{} to {}", rate(least), rate(most)),
            ]);
        }
    }
    Ok(render_table(&rows))
}

/// A coalescer and `update` on a thousand keys.
pub fn many_keys(report: &Report) -> Result<String, Missing> {
    let mut sentences = vec![];
    for database in [POSTGRESQL, MARIADB] {
        let cells = &report.part(KEYS, database)?.cells;
        let rate_of = |entrant| {
            let mut of_entrant = cells.iter().filter(|cell| cell.entrant == entrant);
            let uniform = of_entrant.find(|cell| cell.keys.contains("uniform"));
            let missing = || Missing(format!("{entrant} in section {KEYS} on {database}"));
            Ok(rate(uniform.ok_or_else(missing)?.per_second))
        };
        sentences.push(format!(
            "On {database} they made {} counts a second through one coalescer and {} by `update`.",
            rate_of(COALESCED)?,
            rate_of(DEFAULT)?
        ));
    }
    Ok(paragraph(&format!(
        "32 threads counted on 1,000 keys, each as often as any other, and commits did not wait for the disk. {} (`--only keys`)",
        sentences.join(" ")
    )))
}

/// The time of one total of many shards, and of one.
pub fn read_fan_out(report: &Report) -> Result<String, Missing> {
    let times = |shards: u32| -> Result<String, Missing> {
        let read = format!("growth: one row, {shards} shards");
        let mut times = vec![];
        for database in [POSTGRESQL, MARIADB, SQLITE] {
            let total = report.part(READS, database)?.reading(&read, TOTAL)?;
            times.push(format!("{} on {database}", time(total)));
        }
        Ok(times.join(", "))
    };
    Ok(paragraph(&format!(
        "One total of 256 shards takes {}. One total of 1 shard takes {}.",
        times(256)?,
        times(1)?
    )))
}

pub fn simulation_errors(report: &Report) -> Result<String, Missing> {
    let checked = check(report)?;
    let missing = || Missing("measurements to check the simulation by".into());
    let median = error_at_median(&checked).ok_or_else(missing)?;
    let (coalesced, direct): (Vec<_>, Vec<_>) = checked
        .iter()
        .partition(|one| one.load.choice == Choice::Coalesced);
    let of_direct = error_at_median(direct.iter().copied()).ok_or_else(missing)?;
    let of_coalesced = error_at_median(coalesced.iter().copied()).ok_or_else(missing)?;
    let too_slow = coalesced.iter().filter(|one| one.error() < 0.0).count();
    Ok(paragraph(&format!(
        "Beside {} measured rates that no time was taken from, the simulation is {:.0} % off at the median and {:.0} % at most. At the \
         median it is {:.0} % off for counts that writers send themselves, and {:.0} % for those that coalescers send, {too_slow} of {} of \
         them too slow.",
        checked.len(),
        median * 100.0,
        greatest_error(&checked) * 100.0,
        of_direct * 100.0,
        of_coalesced * 100.0,
        coalesced.len(),
    )))
}

pub fn simulation(report: &Report) -> Result<String, Missing> {
    let load = |processes, writers, choice| Load {
        processes,
        writers,
        shards: 128,
        choice,
    };
    let columns = [
        ("one row, 64 writers", load(8, 8, Choice::OneRow)),
        (
            "default, 8 processes of 8 writers",
            load(8, 8, Choice::Adaptive),
        ),
        (
            "default, 32 processes of 8 writers",
            load(32, 8, Choice::Adaptive),
        ),
        (
            "32 coalescers of 256 writers",
            load(32, 256, Choice::Coalesced),
        ),
    ];
    let mut rows = vec![row!["counts a second, p99<br>bottleneck"]];
    rows[0].extend(columns.iter().map(|(title, _)| (*title).to_owned()));
    for (database, disk) in [
        (POSTGRESQL, LOCAL_DISK),
        (POSTGRESQL, SLOW_DISK),
        (MARIADB, LOCAL_DISK),
    ] {
        let measured = Server::measured(report, database, disk)?;
        for server in [measured, measured.with_cores(LARGE_CORES)] {
            let slowed = match disk {
                SLOW_DISK => ", commits slowed to 1 ms",
                _ => "",
            };
            let mut row = row![format!("{database}, {} cores{slowed}", server.cores)];
            for (_, load) in &columns {
                let counts = 4_000.max(4 * load.all_writers());
                let outcome = simulate(&server, load, counts);
                row.push(format!(
                    "{}, {}<br>{}",
                    rate(outcome.per_second),
                    time(outcome.p99_us),
                    outcome.bottleneck.name()
                ));
            }
            rows.push(row);
        }
    }
    Ok(render_table(&rows))
}

/// The shards with which the default counts nearly as fast as with twice as many, in processes that cannot see each other.
pub fn enough_shards(report: &Report) -> Result<String, Missing> {
    const NEARLY: f64 = 0.95;
    let enough = |server: Server| {
        let rate = |shards| {
            let load = Load {
                processes: 8,
                writers: 32,
                shards,
                choice: Choice::Adaptive,
            };
            simulate(&server, &load, 4_000).per_second
        };
        let mut shards = (0..12).map(|power| 1 << power);
        shards.find(|&shards| rate(shards) > NEARLY * rate(2 * shards))
    };
    let sentence = |database, disk, slowed| -> Result<String, Missing> {
        let measured = Server::measured(report, database, disk)?;
        let of = |server| {
            let missing = || Missing(format!("shards that are enough on {database}"));
            enough(server).ok_or_else(missing)
        };
        Ok(format!(
            "On {database}{slowed} {} shards are enough with {} cores and {} with {LARGE_CORES}.",
            of(measured)?,
            measured.cores,
            of(measured.with_cores(LARGE_CORES))?,
        ))
    };
    Ok(paragraph(&format!(
        "256 writers in 8 processes count by the default. {} {} {}",
        sentence(POSTGRESQL, LOCAL_DISK, "")?,
        sentence(POSTGRESQL, SLOW_DISK, ", commits slowed to 1 ms,")?,
        sentence(MARIADB, LOCAL_DISK, "")?,
    )))
}
