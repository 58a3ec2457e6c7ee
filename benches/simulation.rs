//! Simulates counts on one hot row with the times that were measured, and checks them against other measurements.
//!
//!     cargo bench -p diesel_sharded_benches --bench simulation
//!
//! Prints the times and their errors, then series in which writers, shards or processes grow, on the server that was measured and on one
//! with more cores, each with the next bottleneck. Nothing is measured here: `docs/benchmarks/report.json` has the measurements.

use diesel_sharded_benches::names::{LOCAL_DISK, MARIADB, POSTGRESQL, SLOW_DISK};
use diesel_sharded_benches::report::{Missing, Report};
use diesel_sharded_benches::simulated::{
    Choice, LARGE_CORES, Load, Outcome, Server, by_processes, by_shards, by_writers, check,
    error_at_median, greatest_error,
};

fn main() {
    if let Err(Missing(what)) = print(&Report::read()) {
        panic!("the report lacks {what}");
    }
}

fn print(report: &Report) -> Result<(), Missing> {
    println!("errors: simulated rates beside measured ones that no time was taken from\n");
    let checked = check(report)?;
    for one in &checked {
        println!(
            "{:<10} {:<17} {:>2} × {:<3} {:<9} measured {:>8.0}, simulated {:>8.0}: {:+.0} %",
            one.database,
            one.disk,
            one.load.processes,
            one.load.writers,
            one.load.choice.name(),
            one.measured,
            one.simulated,
            one.error() * 100.0
        );
    }
    println!(
        "\nat the median {:.0} %, at most {:.0} %",
        error_at_median(&checked).unwrap_or_default() * 100.0,
        greatest_error(&checked) * 100.0
    );
    for (database, disk) in [
        (POSTGRESQL, LOCAL_DISK),
        (POSTGRESQL, SLOW_DISK),
        (MARIADB, LOCAL_DISK),
    ] {
        let measured = Server::measured(report, database, disk)?;
        for server in [measured, measured.with_cores(LARGE_CORES)] {
            println!("\n{database}, {disk}: {server:?}");
            let choices = [
                Choice::OneRow,
                Choice::Random,
                Choice::Adaptive,
                Choice::Coalesced,
            ];
            for choice in choices {
                series("writers", &by_writers(&server, choice), Load::all_writers);
            }
            for choice in [Choice::Random, Choice::Adaptive] {
                series("shards", &by_shards(&server, choice), |load| load.shards);
            }
            for choice in [
                Choice::Random,
                Choice::Striped,
                Choice::Adaptive,
                Choice::Coalesced,
            ] {
                series("processes", &by_processes(&server, choice), |load| {
                    load.processes
                });
            }
        }
    }
    Ok(())
}

fn series(grows: &str, points: &[(Load, Outcome)], value: fn(&Load) -> usize) {
    for (load, outcome) in points {
        println!(
            "  {:<9} {:>3} {grows:<9} {:>9.0}/s, p50 {:>9.0} µs, p99 {:>9.0} µs, cores {:>3.0} %, next: {}",
            load.choice.name(),
            value(load),
            outcome.per_second,
            outcome.p50_us,
            outcome.p99_us,
            outcome.cores_busy * 100.0,
            outcome.bottleneck.name()
        );
    }
}
