//! The output: a line of progress after each round, and a table at the end.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::time::{Duration, Instant};

use crate::backend::Backend;
use crate::checker::Judgement;
use crate::extent::Extent;
use crate::history::{History, Outcome};

/// The results of one fault on one database: a line of the table.
#[derive(Debug, Clone)]
pub struct Line {
    pub fault: &'static str,
    pub backend: Backend,
    pub rounds: u32,
    pub ok: usize,
    pub failed: usize,
    pub unknown: usize,
    pub reads: usize,
    /// The number of errors of each kind.
    pub errors: BTreeMap<String, usize>,
    /// The violations that the checker or the fault itself found.
    pub findings: Vec<String>,
    /// Other measurements.
    pub remarks: Vec<String>,
    began: Instant,
    took: Duration,
}

impl Line {
    pub fn new(fault: &'static str, backend: Backend) -> Self {
        Line {
            fault,
            backend,
            rounds: 0,
            ok: 0,
            failed: 0,
            unknown: 0,
            reads: 0,
            errors: BTreeMap::new(),
            findings: vec![],
            remarks: vec![],
            began: Instant::now(),
            took: Duration::ZERO,
        }
    }

    /// Adds a round.
    pub fn add<O, A, F: fmt::Display>(
        &mut self,
        history: &History<O, A>,
        judgement: &Judgement<F>,
    ) {
        for done in &history.operations {
            let error = match &done.outcome {
                Outcome::Ok(_) | Outcome::Unknown(None) => continue,
                Outcome::Failed(refused) | Outcome::Unknown(Some(refused)) => &refused.kind,
            };
            *self.errors.entry(error.clone()).or_default() += 1;
        }
        self.rounds += 1;
        self.ok += judgement.ok;
        self.failed += judgement.failed;
        self.unknown += judgement.unknown;
        self.reads += judgement.reads;
        for finding in &judgement.findings {
            self.find(format!("round {}: {finding}", self.rounds));
        }
    }

    /// Adds a violation.
    pub fn find(&mut self, finding: String) {
        eprintln!("{} on {}: {finding}", self.fault, self.backend);
        self.findings.push(finding);
    }

    /// Prints the progress.
    pub fn progress(&self, extent: &Extent) {
        let of = match extent.until {
            Some(_) => String::new(),
            None => format!(" of {}", extent.rounds),
        };
        eprintln!(
            "{} on {}: round {}{of}, {} ok, {} failed, {} unknown, {} findings, {:.0} s",
            self.fault,
            self.backend,
            self.rounds,
            self.ok,
            self.failed,
            self.unknown,
            self.findings.len(),
            self.began.elapsed().as_secs_f64()
        );
    }

    /// Stops the clock.
    pub fn finish(mut self) -> Self {
        self.took = self.began.elapsed();
        self
    }

    pub fn is_good(&self) -> bool {
        self.findings.is_empty() && self.rounds > 0
    }
}

/// Formats the table of all lines, followed by their errors, measurements and findings.
pub fn table(lines: &[Line]) -> String {
    let mut rows = vec![
        [
            "fault", "database", "rounds", "ok", "failed", "unknown", "reads", "drift", "verdict",
            "seconds",
        ]
        .map(str::to_owned),
    ];
    rows.extend(lines.iter().map(|line| {
        [
            line.fault.to_owned(),
            line.backend.to_string(),
            line.rounds.to_string(),
            line.ok.to_string(),
            line.failed.to_string(),
            line.unknown.to_string(),
            line.reads.to_string(),
            line.findings.len().to_string(),
            (if line.is_good() { "good" } else { "BAD" }).to_owned(),
            format!("{:.0}", line.took.as_secs_f64()),
        ]
    }));
    let mut widths = [0; 10];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.len().max(*width);
        }
    }
    let mut text = String::new();
    for (n, row) in rows.iter().enumerate() {
        for (column, (width, cell)) in widths.iter().zip(row).enumerate() {
            let is_text = column < 2 || column == 8;
            let _ = match is_text {
                true => write!(text, "| {cell:width$} "),
                false => write!(text, "| {cell:>width$} "),
            };
        }
        text.push_str("|\n");
        if n == 0 {
            let rule: Vec<_> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
            let _ = writeln!(text, "|{}|", rule.join("|"));
        }
    }
    for line in lines {
        let findings = counted(&line.findings);
        let errors = (!line.errors.is_empty()).then(|| format!("errors: {}", tally(&line.errors)));
        for remark in errors.iter().chain(&line.remarks).chain(&findings) {
            let _ = writeln!(text, "{} on {}: {remark}", line.fault, line.backend);
        }
    }
    text
}

/// Returns the first ten findings, and how many there are if that is more.
fn counted(findings: &[String]) -> Vec<String> {
    let mut counted: Vec<_> = findings.iter().take(10).cloned().collect();
    if findings.len() > 10 {
        counted.push(format!("… {} findings in all", findings.len()));
    }
    counted
}

/// Formats counts, the most frequent first.
pub fn tally<N: Copy + Ord + fmt::Display>(counts: &BTreeMap<String, N>) -> String {
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by_key(|(_, count)| Reverse(**count));
    let counts = counts.iter().map(|(text, count)| format!("{count} {text}"));
    counts.collect::<Vec<_>>().join(", ")
}
