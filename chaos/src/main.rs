//! Runs faults while clients count: see the README.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;

use clap::Parser;
use diesel_sharded_chaos::backend::Backend;
use diesel_sharded_chaos::client;
use diesel_sharded_chaos::faults::{self, Fault, fold_killed};
use diesel_sharded_chaos::report::{self, Extent, Line};

/// Runs faults while client processes count on real servers, and checks the outcome of every increment.
#[derive(Debug, Parser)]
#[command(after_help = list())]
struct Arguments {
    /// The faults; all of them if none is named
    #[arg(value_parser = fault)]
    faults: Vec<&'static Fault>,
    /// The databases; all of them if none is named
    #[arg(long, value_delimiter = ',')]
    database: Vec<Backend>,
    /// The number of rounds of each fault on each database, instead of the fault's own number
    #[arg(long)]
    rounds: Option<u32>,
    /// A few rounds of each, for CI
    #[arg(long)]
    short: bool,
    /// The seed of the clients' operations; random by default. It does not fix the moments of faults.
    #[arg(long)]
    seed: Option<u64>,
}

fn fault(name: &str) -> Result<&'static Fault, String> {
    let fault = faults::ALL.iter().find(|fault| fault.name == name);
    fault.ok_or_else(|| format!("no such fault; there are:\n{}", list()))
}

fn list() -> String {
    let lines = faults::ALL.iter();
    let lines = lines.map(|fault| format!("  {:20} {}", fault.name, fault.about));
    format!("Faults:\n{}", lines.collect::<Vec<_>>().join("\n"))
}

type Process = fn(&str) -> io::Result<()>;

/// The processes that this program starts of itself, by subcommand.
const PROCESSES: [(&str, Process); 2] = [
    (client::SUBCOMMAND, client::run),
    (fold_killed::SUBCOMMAND, fold_killed::step),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, subcommand, orders] = &arguments[..]
        && let Some((_, run)) = PROCESSES.iter().find(|(name, _)| name == subcommand)
    {
        return match run(orders) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{subcommand}: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let arguments = Arguments::parse();
    let seed = arguments.seed.unwrap_or_else(rand::random);
    eprintln!("--seed {seed}");
    let mut lines = vec![];
    for fault in chosen(arguments.faults, faults::ALL.iter().collect()) {
        for backend in chosen(arguments.database.clone(), Backend::ALL.to_vec()) {
            if !fault.backends.contains(&backend) {
                continue;
            }
            let (full, short) = fault.rounds;
            let own = if arguments.short { short } else { full };
            let extent = Extent {
                short: arguments.short,
                rounds: arguments.rounds.unwrap_or(own),
                seed,
            };
            // A panic in one fault must not lose the results of the others.
            let mut line = Line::new(fault.name, backend, extent);
            let run = AssertUnwindSafe(|| (fault.run)(&mut line));
            if let Err(reason) = panic::catch_unwind(run) {
                let reason = reason.downcast_ref::<String>().cloned();
                let reason = reason.unwrap_or_default();
                line.find(format!("the fault panicked: {reason}"));
            }
            lines.push(line.finish());
        }
    }
    println!("{}", report::table(&lines));
    match !lines.is_empty() && lines.iter().all(Line::is_good) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// Returns what the user named, or everything if that is nothing.
fn chosen<T>(named: Vec<T>, all: Vec<T>) -> Vec<T> {
    if named.is_empty() { all } else { named }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
        let arguments = "chaos client-killed --database sqlite --short";
        let parsed = Arguments::try_parse_from(arguments.split(' ')).unwrap();
        assert_eq!(parsed.faults[0].name, "client-killed");
        assert_eq!(parsed.database, [Backend::Sqlite]);
        assert!(parsed.short);
        assert!(Arguments::try_parse_from(["chaos", "sabotage"]).is_err());
    }
}
