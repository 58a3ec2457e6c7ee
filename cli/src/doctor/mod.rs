//! `diesel-sharded doctor`: looks at all that the library depends on, and changes nothing.
//!
//! A file for each kind of checks; each gives findings.

mod finding;
mod library_tables;
mod pooler;
mod privileges;
mod row_rules;
mod settings;
mod shard_columns;
mod shard_rules;
mod tables;

use crate::args::DoctorArgs;
use crate::connection::AnyConnection;
use crate::error::Error;
use crate::exit::Ended;
use crate::output::Output;
use crate::sharded;

use self::finding::{Finding, Level};

pub fn run(
    args: &DoctorArgs,
    url: Option<&str>,
    conn: &mut AnyConnection,
    out: &mut Output,
) -> Result<Ended, Error> {
    let pooler = pooler::check(url, conn)?; // first: the session is still as it came
    let named = sharded::named(&args.tables, conn)?;
    let mut findings = library_tables::check(conn)?;
    if named.tables.is_empty() {
        let remedy = "diesel-sharded generate TABLE COLUMN";
        findings.push(Finding::warning(
            "tables",
            "there is no sharded table that this role may see",
            remedy,
        ));
    }
    for (live, sharded) in &named.tables {
        findings.extend(tables::check(live, sharded, conn)?);
    }
    findings.extend(settings::check(&named.tables, conn)?);
    findings.extend(pooler);
    named.note_left_out(out);
    match args.json {
        true => out.json(&findings)?,
        false => show(&findings, out)?,
    }
    Ok(
        match findings
            .iter()
            .any(|finding| finding.level == Level::Problem)
        {
            true => Ended::LeftOver,
            false => Ended::Done,
        },
    )
}

fn show(findings: &[Finding], out: &mut Output) -> Result<(), Error> {
    for finding in findings {
        out.line(&finding.to_string())?;
    }
    let number = |level| findings.iter().filter(|f| f.level == level).count();
    out.line(&format!(
        "\n{} ok, {} to be looked at, {} wrong",
        number(Level::Ok),
        number(Level::Warning),
        number(Level::Problem)
    ))
}
