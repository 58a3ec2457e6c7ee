//! The report on the measurements, as JSON and as Markdown, with the charts beside it.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::charts;
use crate::load::Cell;
use crate::reads::{PLAIN, Reading};
use crate::results::Results;
use crate::shapes;
use crate::targets::{self, Bound, Target};
use crate::tasks::{CONNECTIONS, Extent, TASKS};
use crate::text::{line, micros, short};

/// The report on measurements.
pub struct Report<'a>(pub &'a Results);

impl Report<'_> {
    /// Writes everything into `folder`.
    pub fn write(&self, folder: &Path) {
        fs::create_dir_all(folder).expect("a folder for the report");
        let json = serde_json::to_string_pretty(&self.json()).expect("numbers and texts");
        fs::write(folder.join("contention.json"), json).expect("the report's JSON");
        fs::write(folder.join("contention.md"), self.markdown()).expect("the report's Markdown");
        charts::draw(self.0, folder);
    }

    fn json(&self) -> Value {
        let cells = self.0.cells.iter().map(|cell| {
            let [p50, p95, p99] = cell.latencies.map(|latency| latency.map(micros));
            json!({
                "section": cell.scene.section,
                "database": cell.database,
                "disk": cell.disk.name(),
                "keys": cell.scene.keys.name(),
                "in_transaction": cell.scene.in_transaction,
                "shape": cell.scene.shape,
                "threads": cell.scene.threads,
                "entrant": cell.entrant,
                "per_second": cell.rate,
                "per_second_of_rounds": cell.rates,
                "p50_us": p50,
                "p95_us": p95,
                "p99_us": p99,
                "failed": cell.failed,
            })
        });
        let readings = self.0.readings.iter().map(|reading| {
            json!({
                "database": reading.database,
                "read": reading.read,
                "form": reading.form,
                "us": micros(reading.time),
            })
        });
        let courses = self.0.courses.iter().map(|course| {
            json!({
                "contender": course.contender,
                "pinned": course.pinned,
                "per_second_of_tenths": course.rates,
                "table_bytes": course.table_bytes,
                "dead_versions": course.dead_versions,
            })
        });
        let durations = self.0.durations.iter();
        let durations =
            durations.map(|(section, time)| (section.to_string(), time.as_secs_f64().into()));
        let targets = targets::of(self.0);
        let targets = targets.iter().map(|target| {
            json!({
                "target": target.what,
                "bound": bound(target),
                "measured": target.measured,
                "reached": target.is_reached(),
            })
        });
        json!({
            "machine": self.0.machine,
            "quick": self.0.quick,
            "rounds": self.0.pace.rounds,
            "slice_seconds": self.0.pace.slice.as_secs_f64(),
            "cells": cells.collect::<Vec<_>>(),
            "shapes": shapes::json(&self.0.cells),
            "reads": readings.collect::<Vec<_>>(),
            "old_snapshot": courses.collect::<Vec<_>>(),
            "in_process": self.0.in_process.as_ref().map(|in_process| json!({
                "buffered_adds_per_second_hot": in_process.hot_adds,
                "buffered_adds_per_second_uniform": in_process.uniform_adds,
                "bytes_of_idle_key": in_process.bytes_of_idle_key,
            })),
            "seconds_of_sections": durations.collect::<serde_json::Map<_, _>>(),
            "targets": targets.collect::<Vec<_>>(),
        })
    }

    pub fn markdown(&self) -> String {
        let mut text = String::from("# Counting under contention\n\n");
        let rounds = self.0.pace.rounds;
        let slice = self.0.pace.slice.as_millis();
        line(
            &mut text,
            format_args!(
                "Medians of {rounds} rounds, {slice} ms each; latencies are p50 / p95 / p99 of one count."
            ),
        );
        for (name, value) in self.0.machine.as_object().into_iter().flatten() {
            line(
                &mut text,
                format_args!(
                    "- {name}: {}",
                    value.as_str().map_or(value.to_string(), str::to_owned)
                ),
            );
        }
        for (section, time) in &self.0.durations {
            line(
                &mut text,
                format_args!("- section {section}: {:.0} s", time.as_secs_f64()),
            );
        }
        self.targets_table(&mut text);
        self.cells_tables(&mut text);
        self.tasks_table(&mut text);
        shapes::write_tables(&mut text, &self.0.cells);
        self.readings_table(&mut text);
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
        let (tasks, disk) = (first.scene.threads, first.disk.name());
        line(
            text,
            format_args!(
                "\n## {TASKS}: {tasks} on {CONNECTIONS} connections, one hot key, {disk}\n\n\
                 A round takes as long as two counts of each task, and at least {} ms. Latencies include the wait for a connection; \
                 the first count of each task is left out.\n\n\
                 | database | way | per second | : one row | p50 | p99 | per second of the rounds | failed |\n\
                 |---|---|---|---|---|---|---|---|",
                Extent::of(self.0.quick, self.0.pace).slice.as_millis()
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

    fn readings_table(&self, text: &mut String) {
        if self.0.readings.is_empty() {
            return;
        }
        text.push_str("\n## Reads\n\n| database | read | form | µs | : plain column |\n|---|---|---|---|---|\n");
        for readings in self
            .0
            .readings
            .chunk_by(|a, b| (a.database, &a.read) == (b.database, &b.read))
        {
            let plain = readings.iter().find(|reading| reading.form == PLAIN);
            for reading in readings {
                let ratio = plain.map_or(String::new(), |plain| {
                    format!(
                        "{:.2}",
                        reading.time.as_secs_f64() / plain.time.as_secs_f64()
                    )
                });
                let (
                    Reading {
                        database,
                        read,
                        form,
                        ..
                    },
                    us,
                ) = (reading, micros(reading.time));
                line(
                    text,
                    format_args!("| {database} | {read} | {form} | {us:.1} | {ratio} |"),
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
