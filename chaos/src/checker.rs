//! Judges a history.
//!
//! The rule is that of [Jepsen's counter checker](https://jepsen-io.github.io/jepsen/jepsen.checker.html#var-counter), for amounts of
//! either sign. The lower bound of a read is the sum of the operations that must have happened by then, plus the negative amounts of
//! those that may have happened. The upper bound is the same sum plus their positive amounts.
//!
//! - An operation that was acknowledged before the read began must have happened.
//! - An operation that was acknowledged later may have happened from its start on. So may one whose outcome is unknown, and without an
//!   end: a server may still execute it after its client is gone.
//! - An operation that failed never happens.
//!
//! There are more rules:
//!
//! - *Sets.* A set begins an era with its value, the counts that must have come after it, and those that may have. A read has to fit an
//!   era that may hold at its time. The era of an acknowledged set holds until a later set is over: one that began after this set ended,
//!   was acknowledged, and ended before the read. The era of an unknown set may begin at any time and has no certain end.
//! - *Tokens.* A transaction inserts a row that names it, and a count with an idempotency key leaves the key. So the tokens at the end show
//!   which ones happened: every acknowledged one, no failed one, and the unknown ones that have a token. Tokens are unique in the
//!   database. A request that several clients make by one key happens once, between the first start and the first acknowledgement.
//! - *The end.* When all clients have stopped, a total is exactly the sum of the acknowledged amounts, of those with a token, and of some
//!   of the unknown ones. A counter that is only counted with tokens has one right total.
//! - *Teams.* Rows that are always counted together show the same sums in every read.
//! - *No way back.* A total that is only ever incremented does not fall between two reads.
//! - *Errors.* The library's own operations report only the kinds of errors that a fault explains. A bare error of Diesel's would not tell
//!   the outcome, and no client reuses a key for another count or lets a counter overflow.

mod eras;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

pub(crate) use self::eras::{Add, Changes, Eras, Set};
use crate::history::{Done, History, Moment, Outcome};
use crate::operation::{Counter, Operation, Totals};
use crate::store::NO_CONNECTION;

/// A rule that a history may violate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// A read returns a total that some order of the operations explains.
    InBounds,
    /// A total at the end is the sum of the acknowledged amounts and some of the unknown ones.
    RightTotal,
    /// A transaction that was acknowledged has a token.
    NothingLost,
    /// A transaction that changed nothing, as the library reported, has no token.
    FailedChangesNothing,
    /// A token belongs to an operation, and is there once.
    KnownTokens,
    /// Rows that are always counted together are the same.
    Teams,
    /// A total that only grows is never smaller than in an earlier read.
    NoWayBack,
    /// The growth of all lives together is the sum of the acknowledged amounts.
    RightSum,
    /// A row that is there all along is not reported missing, and is returned.
    There,
    /// A row is not reported where it cannot be.
    NotElsewhere,
    /// A total is within the bounds of all counts.
    Bounds,
    /// An error tells the outcome, and something explains it.
    Errors,
}

/// A violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub rule: Rule,
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Adds a violation.
pub(crate) fn find(findings: &mut Vec<Finding>, rule: Rule, text: String) {
    findings.push(Finding { rule, text });
}

/// The checker's findings, and the numbers of operations that it checked.
#[derive(Debug, Clone)]
pub struct Judgement {
    pub findings: Vec<Finding>,
    pub ok: usize,
    pub failed: usize,
    pub unknown: usize,
    /// The number of totals that were compared with their bounds.
    pub reads: usize,
}

impl Judgement {
    /// Counts the operations of a history, with no findings yet.
    pub(crate) fn of<O, A>(history: &History<O, A>) -> Self {
        let mut judgement = Judgement {
            findings: vec![],
            ok: 0,
            failed: 0,
            unknown: 0,
            reads: 0,
        };
        for done in &history.operations {
            *match done.outcome {
                Outcome::Ok(_) => &mut judgement.ok,
                Outcome::Failed(_) => &mut judgement.failed,
                Outcome::Unknown(_) => &mut judgement.unknown,
            } += 1;
        }
        judgement
    }
}

pub(crate) const UNCLASSIFIED: &str =
    "an error that does not tell the outcome, or that nothing explains";

/// The kinds of errors that the library's own operations may report under faults. Each tells the outcome, or that it is unknown.
pub(crate) const TOLD: [&str; 7] = [
    "ConflictPersisted",
    "ConnectionLost",
    "DeadlinePassed",
    "DiskFull",
    "NodeNotReady",
    "OutcomeUnknown",
    NO_CONNECTION,
];

/// The state before a history, and its rules.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// The totals before the first operation; 0 for counters without an entry.
    pub base: BTreeMap<Counter, i64>,
    /// The groups of counters that are always counted together, by the same amount.
    pub teams: Vec<Vec<Counter>>,
}

impl Rules {
    fn base(&self, counter: &Counter) -> i64 {
        self.base.get(counter).copied().unwrap_or(0)
    }
}

/// The state of the database after all clients have stopped.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Aftermath {
    pub totals: Totals,
    pub tokens: Vec<String>,
}

/// Judges a history, with the state at its end.
pub fn judge(rules: &Rules, history: &History, aftermath: &Aftermath) -> Judgement {
    let mut judgement = Judgement::of(history);
    let tokens = judge_tokens(history, aftermath, &mut judgement.findings);
    judge_errors(history, &mut judgement.findings);
    let counters = counters_of(history, aftermath, &tokens);
    let reads = reads_of(history, &counters);
    judgement.reads = reads.len();
    for read in &reads {
        judge_teams(
            rules,
            &read.done.at(),
            &read.totals,
            &mut judgement.findings,
        );
    }
    let end = aftermath.totals.iter();
    let end = end.map(|(counter, value)| (counter, *value)).collect();
    judge_teams(rules, "at the end", &end, &mut judgement.findings);
    for (counter, changes) in &counters {
        let base = rules.base(counter);
        judge_reads(counter, base, changes, &reads, &mut judgement.findings);
        let value = aftermath.totals.iter().find(|(other, _)| other == counter);
        let value = value.map_or(0, |(_, value)| *value);
        changes.judge_end(counter, base, value, &mut judgement.findings);
    }
    judgement
}

/// A read that returned totals, with zeros for rows that were not there yet.
struct Read<'a> {
    done: &'a Done,
    totals: BTreeMap<&'a Counter, i64>,
}

fn reads_of<'a>(history: &'a History, counters: &'a BTreeMap<Counter, Changes>) -> Vec<Read<'a>> {
    let reads = history.operations.iter().filter_map(|done| {
        let Outcome::Ok(totals) = &done.outcome else {
            return None;
        };
        let mut read: BTreeMap<_, _> = match done.operation {
            Operation::ReadRows { first, last } => counters
                .keys()
                .filter(|counter| match counter {
                    Counter::Views(row) | Counter::Likes(row) => (first..=last).contains(row),
                    Counter::Named(_) => false,
                })
                .map(|counter| (counter, 0))
                .collect(),
            Operation::ReadNamed { .. } => BTreeMap::new(),
            _ => return None,
        };
        read.extend(totals.iter().map(|(counter, value)| (counter, *value)));
        Some(Read { done, totals: read })
    });
    reads.collect()
}

/// Returns the tokens at the end. Reports tokens that must not be there, and those that are missing.
fn judge_tokens<'a>(
    history: &History,
    aftermath: &'a Aftermath,
    findings: &mut Vec<Finding>,
) -> BTreeSet<&'a str> {
    let mut tokens = BTreeSet::new();
    for token in &aftermath.tokens {
        if !tokens.insert(token.as_str()) {
            find(
                findings,
                Rule::KnownTokens,
                format!("token {token} is there twice"),
            );
        }
    }
    let mut asked: BTreeMap<&str, Vec<&Outcome>> = BTreeMap::new();
    for done in &history.operations {
        if let Some(token) = done.operation.token() {
            asked.entry(token).or_default().push(&done.outcome);
        }
    }
    for (token, outcomes) in &asked {
        let mut outcomes = outcomes.iter();
        if !tokens.contains(token) {
            if outcomes.any(|outcome| matches!(outcome, Outcome::Ok(_))) {
                let text = format!("transaction {token} was acknowledged and is lost");
                find(findings, Rule::NothingLost, text);
            }
            continue;
        }
        // Another client's request with the same token may have succeeded.
        let errors = outcomes.map(|outcome| match outcome {
            Outcome::Failed(refused) => Some(refused.to_string()),
            Outcome::Ok(_) | Outcome::Unknown(_) => None,
        });
        if let Some(errors) = errors.collect::<Option<Vec<_>>>() {
            let errors = errors.join(", ");
            let text = format!("transaction {token} failed and was applied: {errors}");
            find(findings, Rule::FailedChangesNothing, text);
        }
    }
    for token in tokens.iter().filter(|token| !asked.contains_key(*token)) {
        find(
            findings,
            Rule::KnownTokens,
            format!("token {token} belongs to no operation"),
        );
    }
    tokens
}

fn judge_errors(history: &History, findings: &mut Vec<Finding>) {
    for done in &history.operations {
        let (Outcome::Failed(refused) | Outcome::Unknown(Some(refused))) = &done.outcome else {
            continue;
        };
        // Reads are Diesel's own queries. In a caller's transaction, statements report Diesel's errors.
        let is_in_transaction = matches!(done.operation, Operation::Transaction { .. });
        let any_is_right = is_in_transaction || done.operation.is_read();
        if !TOLD.contains(&refused.kind.as_str()) && !any_is_right {
            find(
                findings,
                Rule::Errors,
                format!("{}: {UNCLASSIFIED}: {refused}", done.at()),
            );
        }
    }
}

/// Collects the changes of every counter of the history and of its end.
fn counters_of(
    history: &History,
    aftermath: &Aftermath,
    tokens: &BTreeSet<&str>,
) -> BTreeMap<Counter, Changes> {
    let mut counters: BTreeMap<Counter, Changes> = BTreeMap::new();
    for (counter, _) in &aftermath.totals {
        counters.entry(counter.clone()).or_default();
    }
    // The moment by which a request that was made more than once had certainly happened.
    let mut acknowledged: BTreeMap<&str, Moment> = BTreeMap::new();
    for done in history.operations.iter().filter(|done| done.is_ok()) {
        if let Some(token) = done.operation.token() {
            let first = acknowledged.entry(token).or_insert(done.ended);
            *first = done.ended.min(*first);
        }
    }
    let mut begun = BTreeSet::new();
    for done in &history.operations {
        // A token proves that the operation happened once, whatever the client was told. The first request counts as the operation.
        let happened = match done.operation.token() {
            Some(token) => tokens.contains(token) && begun.insert(token),
            None => done.may_have_happened(),
        };
        let ended = match done.operation.token() {
            Some(token) => acknowledged.get(token).copied(),
            None => done.is_ok().then_some(done.ended),
        };
        for (counter, amount) in done.operation.adds() {
            let changes = counters.entry(counter).or_default();
            if happened {
                changes.adds.push(Add {
                    amount,
                    began: done.began,
                    ended,
                    happened: ended.is_some() || done.operation.token().is_some(),
                });
            }
        }
        if let (Some((counter, value)), true) = (done.operation.sets(), happened) {
            let changes = counters.entry(counter).or_default();
            changes.sets.push(Set {
                value,
                began: done.began,
                ended,
            });
        }
    }
    counters
}

fn judge_teams(
    rules: &Rules,
    at: &str,
    totals: &BTreeMap<&Counter, i64>,
    findings: &mut Vec<Finding>,
) {
    for team in &rules.teams {
        let counted: BTreeSet<_> = team
            .iter()
            .filter_map(|counter| Some(totals.get(counter)? - rules.base(counter)))
            .collect();
        if counted.len() > 1 {
            let totals = team
                .iter()
                .filter_map(|counter| totals.get_key_value(counter));
            let totals: Vec<_> = totals.collect();
            let text = format!("{at}: rows that are always counted together differ: {totals:?}");
            find(findings, Rule::Teams, text);
        }
    }
}

fn judge_reads(
    counter: &Counter,
    base: i64,
    changes: &Changes,
    reads: &[Read<'_>],
    findings: &mut Vec<Finding>,
) {
    let eras = Eras::of(base, changes);
    let only_grows = changes.sets.is_empty() && changes.adds.iter().all(|add| add.amount >= 0);
    let values: Vec<_> = reads
        .iter()
        .filter_map(|read| Some((read.done, *read.totals.get(counter)?)))
        .collect();
    // The largest value of all reads that had ended by each moment.
    let mut largest: Vec<(Moment, i64)> =
        values.iter().map(|(d, value)| (d.ended, *value)).collect();
    largest.sort_unstable();
    for n in 1..largest.len() {
        largest[n].1 = largest[n].1.max(largest[n - 1].1);
    }
    for (done, value) in values {
        let at = || done.at();
        eras.judge(at, counter, (done.began, done.ended), value, findings);
        let earlier = largest.partition_point(|(ended, _)| *ended < done.began);
        if let (true, Some((_, before))) = (only_grows, largest[..earlier].last())
            && value < *before
        {
            let text = format!("{}: {counter} is {value} and was {before} before", at());
            find(findings, Rule::NoWayBack, text);
        }
    }
}
