//! The checks of a history.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::eras::{Add, Changes, Eras, Set};
use super::finding::Finding;
use super::judgement::{Judgement, TOLD};
use crate::history::{Done, History, Moment, Outcome};
use crate::operation::{Counter, Operation, Totals};

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
        let at = || read.done.at(read.done.operation.name());
        judge_teams(rules, at, &read.totals, &mut judgement.findings);
    }
    let end = aftermath.totals.iter();
    let end = end.map(|(counter, value)| (counter, *value)).collect();
    judge_teams(rules, || "at the end".into(), &end, &mut judgement.findings);
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
            findings.push(Finding::StrangeToken {
                token: token.clone(),
            });
        }
    }
    let mut asked: BTreeMap<&str, Vec<&Outcome>> = BTreeMap::new();
    for done in &history.operations {
        let Some(token) = done.operation.token() else {
            continue;
        };
        let asked: &mut Vec<_> = asked.entry(token).or_default();
        asked.push(&done.outcome);
    }
    for (token, outcomes) in &asked {
        let token = || (*token).to_owned();
        let mut outcomes = outcomes.iter();
        if !tokens.contains(token().as_str()) {
            if outcomes.any(|outcome| matches!(outcome, Outcome::Ok(_))) {
                findings.push(Finding::AcknowledgedLost { token: token() });
            }
            continue;
        }
        // Another client's request with the same token may have succeeded.
        let errors = outcomes.map(|outcome| match outcome {
            Outcome::Failed(refused) => Some(format!("{}: {}", refused.kind, refused.text)),
            Outcome::Ok(_) | Outcome::Unknown(_) => None,
        });
        if let Some(errors) = errors.collect::<Option<Vec<_>>>() {
            findings.push(Finding::FailedButApplied {
                token: token(),
                error: errors.join(", "),
            });
        }
    }
    let asked = asked.keys().copied().collect();
    let strange = tokens.difference(&asked).map(|token| (*token).to_owned());
    findings.extend(strange.map(|token| Finding::StrangeToken { token }));
    tokens
}

fn judge_errors(history: &History, findings: &mut Vec<Finding>) {
    for done in &history.operations {
        let (Outcome::Failed(refused) | Outcome::Unknown(Some(refused))) = &done.outcome else {
            continue;
        };
        // Reads are Diesel's own queries. In a caller's transaction, statements report Diesel's errors.
        let any_is_right = matches!(
            done.operation,
            Operation::ReadRows { .. }
                | Operation::ReadNamed { .. }
                | Operation::Transaction { .. }
        );
        if !TOLD.contains(&refused.kind.as_str()) && !any_is_right {
            findings.push(Finding::Unclassified {
                at: done.at(done.operation.name()),
                error: format!("{}: {}", refused.kind, refused.text),
            });
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
    at: impl Fn() -> String,
    totals: &BTreeMap<&Counter, i64>,
    findings: &mut Vec<Finding>,
) {
    for team in &rules.teams {
        let counted: BTreeSet<_> = team
            .iter()
            .filter_map(|counter| Some(totals.get(counter)? - rules.base(counter)))
            .collect();
        if counted.len() > 1 {
            let totals = team.iter().filter_map(|counter| {
                let (counter, value) = totals.get_key_value(counter)?;
                Some(((*counter).clone(), *value))
            });
            findings.push(Finding::TeamTorn {
                at: at(),
                totals: totals.collect(),
            });
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
        let at = || done.at(done.operation.name());
        eras.judge(at, counter, (done.began, done.ended), value, findings);
        let earlier = largest.partition_point(|(ended, _)| *ended < done.began);
        if let (true, Some((_, before))) = (only_grows, largest[..earlier].last())
            && value < *before
        {
            findings.push(Finding::WentBack {
                at: at(),
                counter: counter.to_string(),
                value,
                before: *before,
            });
        }
    }
}
