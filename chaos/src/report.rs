//! The extent of a run, and its output: a line of progress after each round, and a table at the end.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::time::{Duration, Instant};

use crate::backend::Backend;
use crate::checker::Judgement;
use crate::history::{History, Outcome};

/// The extent of a run of one fault on one database.
#[derive(Debug, Clone)]
pub struct Extent {
    pub short: bool,
    pub rounds: u32,
    pub seed: u64,
}

/// The extent and the results of one fault on one database: a line of the table.
#[derive(Debug, Clone)]
pub struct Line {
    pub fault: &'static str,
    pub backend: Backend,
    pub extent: Extent,
    pub rounds: u32,
    pub ok: usize,
    pub failed: usize,
    pub unknown: usize,
    pub reads: usize,
    /// The number of errors of each kind.
    pub errors: BTreeMap<String, usize>,
    /// The longest call of each kind of operation.
    pub longest: BTreeMap<String, Duration>,
    /// The violations that the checker or the fault itself found.
    pub findings: Vec<String>,
    /// Other measurements.
    pub remarks: Vec<String>,
    began: Instant,
    took: Duration,
}

impl Line {
    pub fn new(fault: &'static str, backend: Backend, extent: Extent) -> Self {
        Line {
            fault,
            backend,
            extent,
            rounds: 0,
            ok: 0,
            failed: 0,
            unknown: 0,
            reads: 0,
            errors: BTreeMap::new(),
            longest: BTreeMap::new(),
            findings: vec![],
            remarks: vec![],
            began: Instant::now(),
            took: Duration::ZERO,
        }
    }

    /// Prints the progress, and returns whether another round is played.
    pub fn goes_on(&self) -> bool {
        if self.rounds > 0 {
            self.progress();
        }
        self.rounds < self.extent.rounds
    }

    /// Returns `full` or `short`, as the run is.
    pub fn choose<T>(&self, full: T, short: T) -> T {
        if self.extent.short { short } else { full }
    }

    /// Adds a measurement.
    pub fn remark(&mut self, remark: String) {
        self.remarks.push(remark);
    }

    /// Adds a round.
    pub fn add(&mut self, history: &History, judgement: &Judgement) {
        for done in &history.operations {
            let longest = self.longest.entry(done.operation.kind()).or_default();
            *longest = done.took.max(*longest);
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
    fn progress(&self) {
        eprintln!(
            "{} on {}: round {} of {}, {} ok, {} failed, {} unknown, {} findings, {:.0} s",
            self.fault,
            self.backend,
            self.rounds,
            self.extent.rounds,
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
    let mut text = String::from(
        "| fault               | database   |  rounds |       ok |  failed | unknown |    reads |  drift | verdict | seconds |\n\
         |---------------------|------------|---------|----------|---------|---------|----------|--------|---------|---------|\n",
    );
    for line in lines {
        let _ = writeln!(
            text,
            "| {:19} | {:10} | {:7} | {:8} | {:7} | {:7} | {:8} | {:6} | {:7} | {:7.0} |",
            line.fault,
            line.backend,
            line.rounds,
            line.ok,
            line.failed,
            line.unknown,
            line.reads,
            line.findings.len(),
            if line.is_good() { "good" } else { "BAD" },
            line.took.as_secs_f64(),
        );
    }
    for line in lines {
        let findings = counted(&line.findings);
        let errors = (!line.errors.is_empty()).then(|| format!("errors: {}", tally(&line.errors)));
        let longest = line.longest.iter();
        let longest = longest.map(|(kind, took)| format!("{kind} {took:.2?}"));
        let longest = longest.collect::<Vec<_>>().join(", ");
        let longest = (!longest.is_empty()).then(|| format!("longest calls: {longest}"));
        let remarks = errors.iter().chain(&line.remarks).chain(&longest);
        for remark in remarks.chain(&findings) {
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
