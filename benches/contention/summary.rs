//! The summary of a run: everything that was measured, as JSON, as Markdown, and as charts.

use std::fs;
use std::path::Path;

use diesel_sharded_benches::machine::version;
use diesel_sharded_benches::names::INDEXED;
use diesel_sharded_benches::report::Report;

use crate::charts;
use crate::load::Cell;
use crate::reads::{PLAIN, Reading};
use crate::results::Results;
use crate::shapes;
use crate::targets::{self, Bound, Target};
use crate::tasks::{CONNECTIONS, Extent, TASKS};
use crate::text::{line, micros, short};

/// The summary of the measurements.
pub struct Summary<'a>(pub &'a Results);

impl Summary<'_> {
    /// Writes everything into `folder`.
    pub fn write(&self, folder: &Path) {
        fs::create_dir_all(folder).expect("a folder for the report");
        let parts = self.0.parts();
        fs::write(folder.join("contention.json"), Report { parts }.to_json())
            .expect("the report's JSON");
        fs::write(folder.join("contention.md"), self.markdown()).expect("the report's Markdown");
        charts::draw(self.0, folder);
    }

    pub fn markdown(&self) -> String {
        let mut text = String::from("# Counting under contention\n\n");
        text.push_str("Latencies are p50 / p95 / p99 of one count.\n\n");
        if let Some((_, machine)) = self.0.machines.first() {
            let (cpu, cores, kernel) = (&machine.cpu, machine.cores, &machine.kernel);
            line(
                &mut text,
                format_args!("- {cpu}, {cores} cores, Linux {kernel}; {}", machine.redis),
            );
        }
        let servers = self
            .0
            .machines
            .iter()
            .map(|(_, machine)| machine.server.clone());
        for note in servers.chain(notes()) {
            line(&mut text, format_args!("- {note}"));
        }
        for (section, pace, time) in &self.0.sections {
            line(
                &mut text,
                format_args!(
                    "- section {section}: {} rounds of {} ms, {:.0} s",
                    pace.rounds,
                    pace.slice.as_millis(),
                    time.as_secs_f64()
                ),
            );
        }
        self.targets_table(&mut text);
        self.cells_tables(&mut text);
        self.tasks_table(&mut text);
        shapes::write_tables(&mut text, &self.0.cells);
        readings_table(&mut text, "Reads", &self.0.readings, PLAIN);
        readings_table(&mut text, "The first ten by total", &self.0.lists, INDEXED);
        self.courses_table(&mut text);
        if let Some(in_process) = &self.0.in_process {
            text.push_str("\n## In the process\n\n");
            line(
                &mut text,
                format_args!(
                    "- buffered adds per second, 2 threads, one hot key: {:.0}",
                    in_process.hot_adds
                ),
            );
            line(
                &mut text,
                format_args!("- the same, 1000 keys: {:.0}", in_process.uniform_adds),
            );
            line(
                &mut text,
                format_args!(
                    "- bytes that each key keeps after it was counted once: {:.1}",
                    in_process.bytes_of_idle_key
                ),
            );
        }
        text
    }

    fn targets_table(&self, text: &mut String) {
        text.push_str(
            "\n## Targets\n\n| target | wanted | measured | reached |\n|---|---|---|---|\n",
        );
        for target in targets::of(self.0) {
            let measured = target
                .measured
                .map_or("not measured".to_owned(), |measured| match measured {
                    large if large >= 1000.0 => format!("{large:.0}"),
                    small => format!("{small:.2}"),
                });
            let reached = match target.is_reached() {
                Some(true) => "yes",
                Some(false) => "**no**",
                None => "",
            };
            line(
                text,
                format_args!(
                    "| {} | {} | {measured} | {reached} |",
                    target.what,
                    bound(&target)
                ),
            );
        }
    }

    /// A table for each section, database and disk: a row for each entrant, a column for each number of threads.
    fn cells_tables(&self, text: &mut String) {
        let same = |a: &Cell, b: &Cell| {
            (a.scene.section, a.database, a.disk, a.scene.keys)
                == (b.scene.section, b.database, b.disk, b.scene.keys)
        };
        for cells in self.0.cells.chunk_by(same) {
            let scene = cells[0].scene;
            if scene.section == TASKS || scene.shape.is_some() {
                continue;
            }
            let transaction = if scene.in_transaction {
                ", in a transaction of three statements"
            } else {
                ""
            };
            let (database, disk, keys) =
                (cells[0].database, cells[0].disk.name(), scene.keys.name());
            line(
                text,
                format_args!(
                    "\n## {}: {database}, {disk}, {keys}{transaction}\n",
                    scene.section
                ),
            );
            let mut threads: Vec<_> = cells.iter().map(|cell| cell.scene.threads).collect();
            threads.dedup();
            let heads: Vec<_> = threads
                .iter()
                .map(|threads| format!(" {threads} |"))
                .collect();
            line(
                text,
                format_args!("| per second, by threads |{}", heads.concat()),
            );
            line(text, format_args!("|---|{}", "---|".repeat(threads.len())));
            let entrants = cells
                .iter()
                .take_while(|cell| cell.scene.threads == threads[0]);
            for first in entrants {
                let row = cells
                    .iter()
                    .filter(|cell| cell.entrant == first.entrant)
                    .map(entry);
                line(
                    text,
                    format_args!("| {} |{}", first.entrant, row.collect::<String>()),
                );
            }
        }
    }

    /// A row for each way to count on each database, compared with counts on one row.
    fn tasks_table(&self, text: &mut String) {
        let cells = self
            .0
            .cells
            .iter()
            .filter(|cell| cell.scene.section == TASKS);
        let cells: Vec<_> = cells.collect();
        let Some(first) = cells.first() else { return };
        let slice = Extent::of(self.0.quick, 1).slice;
        let (tasks, disk) = (first.scene.threads, first.disk.name());
        line(
            text,
            format_args!(
                "\n## {TASKS}: {tasks} on {CONNECTIONS} connections, one hot key, {disk}\n\n\
                 A round takes as long as two counts of each task, and at least {} ms. Latencies include the wait for a connection; \
                 the first count of each task is left out.\n\n\
                 | database | way | per second | : one row | p50 | p99 | per second of the rounds | failed |\n\
                 |---|---|---|---|---|---|---|---|",
                slice.as_millis()
            ),
        );
        for cells in cells.chunk_by(|a, b| a.database == b.database) {
            for cell in cells {
                let [p50, _, p99] = cell
                    .latencies
                    .map(|latency| latency.map_or(String::new(), short));
                let rounds: Vec<_> = cell.rates.iter().map(|rate| format!("{rate:.0}")).collect();
                line(
                    text,
                    format_args!(
                        "| {} | {} | {:.0} | {:.1} | {p50} | {p99} | {} | {} |",
                        cell.database,
                        cell.entrant,
                        cell.rate,
                        cell.rate / cells[0].rate,
                        rounds.join(", "),
                        cell.failed
                    ),
                );
            }
        }
    }

    fn courses_table(&self, text: &mut String) {
        if self.0.courses.is_empty() {
            return;
        }
        text.push_str(
            "\n## An old snapshot on PostgreSQL\n\nOne hot row, 8 threads; counts per second in each tenth.\n\n\
             | contender | snapshot | counts per second | table | dead versions |\n|---|---|---|---|---|\n",
        );
        for course in &self.0.courses {
            let rates: Vec<_> = course
                .rates
                .iter()
                .map(|rate| format!("{rate:.0}"))
                .collect();
            let snapshot = if course.pinned { "open" } else { "none" };
            let kilobytes = course.table_bytes / 1024;
            line(
                text,
                format_args!(
                    "| {} | {snapshot} | {} | {kilobytes} KiB | {} |",
                    course.contender,
                    rates.join(", "),
                    course.dead_versions
                ),
            );
        }
    }
}

/// The programs that show a database's limit, and the settings of commits.
fn notes() -> [String; 5] {
    let missing = |program, package| {
        format!("{program}: not installed, not measured: apt-get install {package}")
    };
    [
        version("pgbench").unwrap_or_else(|| missing("pgbench", "postgresql-contrib")),
        version("sysbench").unwrap_or_else(|| missing("sysbench", "sysbench")),
        "no fsync: PostgreSQL fsync=off; MariaDB innodb_flush_log_at_trx_commit=0; SQLite WAL, synchronous=NORMAL".into(),
        "local disk: PostgreSQL fsync=on; MariaDB innodb_flush_log_at_trx_commit=1; SQLite WAL, synchronous=FULL".into(),
        "local disk + 1 ms: PostgreSQL fsync=on, commit_delay=1000, commit_siblings=0".into(),
    ]
}

/// A row for each form of each read, compared with the form `with`.
fn readings_table(text: &mut String, title: &str, readings: &[Reading], with: &str) {
    if readings.is_empty() {
        return;
    }
    line(
        text,
        format_args!(
            "\n## {title}\n\n| database | read | form | µs | : {with} |\n|---|---|---|---|---|"
        ),
    );
    for readings in readings.chunk_by(|a, b| (a.database, &a.read) == (b.database, &b.read)) {
        let compared = readings.iter().find(|reading| reading.form == with);
        for reading in readings {
            let ratio = compared.map_or(String::new(), |compared| {
                let ratio = reading.time.as_secs_f64() / compared.time.as_secs_f64();
                format!("{ratio:.2}")
            });
            let Reading {
                database,
                read,
                form,
                ..
            } = reading;
            let us = micros(reading.time);
            line(
                text,
                format_args!("| {database} | {read} | {form} | {us:.1} | {ratio} |"),
            );
        }
    }
}

fn entry(cell: &Cell) -> String {
    let latencies: Option<Vec<_>> = cell
        .latencies
        .iter()
        .map(|latency| latency.map(short))
        .collect();
    let latencies = latencies.map_or(String::new(), |latencies| {
        format!(" ({})", latencies.join(" / "))
    });
    let failed = if cell.failed > 0 {
        format!(", {} failed", cell.failed)
    } else {
        String::new()
    };
    format!(" {:.0}{latencies}{failed} |", cell.rate)
}

fn bound(target: &Target) -> String {
    match target.bound {
        Bound::AtLeast(least) => format!("≥ {least}"),
        Bound::Below(limit) => format!("≤ {limit}"),
    }
}
