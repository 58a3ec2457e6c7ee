//! `diesel-sharded`: the command line tool of `diesel_sharded`.
//!
//! The library knows a table from the derive. The tool learns it from the database ([`live`], [`sharded`]) and writes
//! statements with names that are known only at run time ([`statement`], [`key`]). Each command has a file, and similar
//! ones share one. The queries of the catalogs are in `catalog/`, in a file for each query and database; the ends of the help
//! texts are in `help/`.

/// A query of the catalogs of a database. `server` is for a query that SQLite does not need.
macro_rules! catalog {
    (server $dialect:expr, $query:literal) => {
        match $dialect {
            Dialect::Postgres => catalog!("postgres/", $query),
            _ => catalog!("mysql/", $query),
        }
    };
    ($folder:literal, $query:literal) => {
        include_str!(concat!("../catalog/", $folder, $query, ".sql"))
    };
    ($dialect:expr, $query:literal) => {
        match $dialect {
            Dialect::Postgres => catalog!("postgres/", $query),
            Dialect::Mysql => catalog!("mysql/", $query),
            _ => catalog!("sqlite/", $query),
        }
    };
}

mod advise;
mod args;
mod condition;
mod connection;
mod definition;
mod doctor;
mod dot_env;
mod error;
mod finding;
mod fold;
mod generate;
mod interrupt;
mod key;
mod live;
mod migration_files;
mod output;
mod privilege;
mod readers;
mod recount;
mod remove;
mod resize;
mod setup;
mod sharded;
mod shell;
mod statement;
mod status;
mod sums;

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use diesel_sharded::described::guard_transactions;

use crate::args::{Args, Command};
use crate::connection::{Address, AnyConnection};
use crate::error::{Ended, Error};

fn main() -> ExitCode {
    match run() {
        Ok(ended) => (ended as u8).into(),
        Err(error) => {
            // If standard error is closed, there is no one to tell.
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<Ended, Error> {
    let had_address = env::var_os(connection::VARIABLE).is_some();
    let dot_env = dot_env::load();
    let matches = Args::command().get_matches();
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    if let Some((_, Some(warning))) = &dot_env {
        output::note(&format!("warning: {warning}"));
    }
    if let Command::Completions { shell } = args.command {
        let name = env!("CARGO_BIN_NAME");
        let mut script = vec![]; // `generate` panics if it cannot write
        clap_complete::generate(shell, &mut Args::command(), name, &mut script);
        output::line(String::from_utf8_lossy(&script).trim_end())?;
        return Ok(Ended::Done);
    }
    guard_transactions(); // the database may be a cluster
    let file = dot_env.map(|(file, _)| file).filter(|_| !had_address);
    let origin = &connection::origin(&matches, file);
    let Some(text) = args.database_url.as_deref() else {
        let text =
            "no database: set DATABASE_URL, write it to a file `.env`, or give --database-url";
        return Err(Error::refused(text));
    };
    let conn = &mut AnyConnection::establish_at(Address { text, origin })?;
    match &args.command {
        Command::Generate(args) => generate::run(args, conn),
        Command::Readers(args) => readers::run(args, conn),
        Command::Setup(args) => setup::run(args, conn),
        Command::Status(args) => status::run(args, conn),
        Command::Advise(args) => advise::run(args, conn),
        Command::Doctor(args) => doctor::run(args, conn),
        Command::Fold(args) => fold::run(args, conn),
        Command::Resize(args) => resize::run(args, conn),
        Command::Verify(args) => recount::run(args, false, conn),
        Command::Backfill(args) => recount::run(&args.recount, !args.dry_run, conn),
        Command::RemoveOrphans { tables } => remove::orphans(tables, conn),
        Command::RemoveExpired => remove::expired(conn),
        Command::Completions { .. } => Ok(Ended::Done), // done above, without a database
    }
}
