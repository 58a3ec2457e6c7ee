//! Judges a history.
//!
//! The rule is that of [Jepsen's counter checker](https://jepsen-io.github.io/jepsen/jepsen.checker.html#var-counter), for amounts of
//! either sign: a read lies between the sum of what must have happened by then and all negative amounts of what may have, and the same
//! with all positive amounts.
//!
//! - An operation that was acknowledged before the read began must have happened.
//! - One that was acknowledged later, or whose outcome is unknown, may have happened from its start on: if unknown, for ever, since a
//!   server may still be at it when its client is gone.
//! - One that failed never happens.
//!
//! Beyond that rule:
//!
//! - *Sets.* A set begins an era: its value, what must have been counted after it, what may have been. A read has to fit one
//!   of the eras that may hold at its time. The era of an acknowledged set holds until another acknowledged set, which began
//!   after it ended, has ended before the read; that of an unknown one may begin at any time, and never ends for certain.
//! - *Tokens.* A transaction inserts a row that names it, and a count with an idempotency key leaves the key. So it is known at the end which ones happened: every acknowledged one,
//!   none that failed, and of the unknown ones those that have a token. Tokens are unique in the database. What several clients ask
//!   for by one key happened once, from when the first asked to when the first was told.
//! - *The end.* When nobody counts any more, a total is exactly the sum of what was acknowledged, what has a token, and some of what is
//!   unknown. What was only counted with tokens has one right total.
//! - *Teams.* Rows that are only counted all together show the same sums in every read.
//! - *No way back.* A total that is only ever incremented does not fall from one read to a later one.
//! - *Errors.* What the library itself reports is of one of the kinds that a fault explains: a bare error of Diesel's says nothing of the
//!   outcome, and a key that was used for something else, or an overflow, there is none.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use crate::history::{Done, History, Moment, Outcome};
use crate::operation::{Counter, Operation, Totals};

/// What a history began with.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Totals before the first operation; 0 where there is none.
    pub base: BTreeMap<Counter, i64>,
    /// Counters that are only counted all together, by the same amount.
    pub teams: Vec<Vec<Counter>>,
}

impl Rules {
    fn base(&self, counter: &Counter) -> i64 {
        self.base.get(counter).copied().unwrap_or(0)
    }
}

/// What is found when nobody counts any more.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Aftermath {
    pub totals: Totals,
    pub tokens: Vec<String>,
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// A read that no order of the operations explains. The interval is that of the last era.
    ReadOutOfBounds {
        client: String,
        number: u64,
        counter: Counter,
        value: i64,
        lowest: i64,
        highest: i64,
    },
    /// A total at the end that is not the sum of what was acknowledged and some of what is unknown.
    WrongTotal {
        counter: Counter,
        value: i64,
        acknowledged: i64,
        unknown: usize,
    },
    /// A transaction that was acknowledged, and has no token.
    AcknowledgedLost { token: String },
    /// A transaction of which the library said that it changed nothing, and has a token.
    FailedButApplied { token: String, error: String },
    /// A token that no transaction asked for, or one that is there twice.
    StrangeToken { token: String },
    /// Rows that are counted together, apart.
    TeamTorn {
        client: String,
        number: u64,
        totals: Totals,
    },
    /// A total that only grows, smaller than it was read before.
    WentBack {
        client: String,
        number: u64,
        counter: Counter,
        value: i64,
        before: i64,
    },
    /// An error that no fault explains, or none of the library's kinds, where it promises one.
    Unclassified {
        client: String,
        number: u64,
        operation: &'static str,
        error: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::ReadOutOfBounds {
                client,
                number,
                counter,
                value,
                lowest,
                highest,
            } => write!(
                f,
                "read {number} of client {client}: {counter} is {value}, and cannot be but from {lowest} to {highest}"
            ),
            Finding::WrongTotal {
                counter,
                value,
                acknowledged,
                unknown,
            } => write!(
                f,
                "at the end {counter} is {value}, which is not {acknowledged} and some of {unknown} unknown counts"
            ),
            Finding::AcknowledgedLost { token } => {
                write!(f, "transaction {token} was acknowledged, and is lost")
            }
            Finding::FailedButApplied { token, error } => {
                write!(f, "transaction {token} is there, and had failed: {error}")
            }
            Finding::StrangeToken { token } => {
                write!(
                    f,
                    "token {token} is there, and nobody asked for it, or once only"
                )
            }
            Finding::TeamTorn {
                client,
                number,
                totals,
            } => write!(
                f,
                "read {number} of client {client}: rows that are counted together differ: {totals:?}"
            ),
            Finding::WentBack {
                client,
                number,
                counter,
                value,
                before,
            } => write!(
                f,
                "read {number} of client {client}: {counter} is {value}, and was {before} before"
            ),
            Finding::Unclassified {
                client,
                number,
                operation,
                error,
            } => write!(
                f,
                "operation {number} of client {client}, {operation}: an error that does not tell the outcome: {error}"
            ),
        }
    }
}

/// What the checker found, and how much it looked at.
#[derive(Debug, Clone)]
pub struct Judgement<F = Finding> {
    pub findings: Vec<F>,
    pub ok: usize,
    pub failed: usize,
    pub unknown: usize,
    /// Reads that were compared with the bounds.
    pub reads: usize,
}

impl<F> Judgement<F> {
    /// Counts the operations; nothing is found yet.
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

/// Judges a history by what was found at its end.
pub fn judge(rules: &Rules, history: &History, aftermath: &Aftermath) -> Judgement {
    let mut judgement = Judgement::of(history);
    let tokens = judge_tokens(history, aftermath, &mut judgement.findings);
    judge_errors(history, &mut judgement.findings);
    let counters = counters_of(history, aftermath, &tokens);
    let reads = reads_of(history, &counters);
    judgement.reads = reads.len();
    for read in &reads {
        let (client, number) = (&read.done.client, read.done.number);
        judge_teams(rules, client, number, &read.totals, &mut judgement.findings);
    }
    let end = aftermath.totals.iter();
    let end = end.map(|(counter, value)| (counter, *value)).collect();
    judge_teams(rules, "at the end", 0, &end, &mut judgement.findings);
    for (counter, changes) in &counters {
        let base = rules.base(counter);
        judge_reads(counter, base, changes, &reads, &mut judgement.findings);
        let value = aftermath.totals.iter().find(|(other, _)| other == counter);
        let value = value.map_or(0, |(_, value)| *value);
        judge_total(counter, base, changes, value, &mut judgement.findings);
    }
    judgement
}

/// A read that was answered, with zeros for what was not there yet.
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

/// An amount that was, or may have been, added.
pub(crate) struct Add {
    pub(crate) amount: i64,
    pub(crate) began: Moment,
    /// When it had happened for certain; `None`: at any time since it began, if at all.
    pub(crate) ended: Option<Moment>,
    /// Whether it has happened by the end for certain.
    pub(crate) happened: bool,
}

/// A total that was, or may have been, set.
pub(crate) struct Set {
    pub(crate) value: i64,
    pub(crate) began: Moment,
    pub(crate) ended: Option<Moment>,
}

/// What happened, and may have happened, to one counter.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) adds: Vec<Add>,
    pub(crate) sets: Vec<Set>,
}

impl Changes {
    /// Whether a counter that began with `base` may have this total when nobody counts any more.
    pub(crate) fn may_end_with(&self, base: i64, value: i64) -> bool {
        if !self.sets.is_empty() {
            return Eras::of(base, self)
                .explain(Moment::MAX, Moment::MAX, value)
                .is_ok();
        }
        let acknowledged = self.acknowledged(base);
        let unknown = self.adds.iter().filter(|add| !add.happened);
        let unknown: Vec<_> = unknown.map(|add| add.amount).collect();
        is_some_sum_of(&unknown, value - acknowledged)
    }

    /// `base`, and what was added for certain.
    pub(crate) fn acknowledged(&self, base: i64) -> i64 {
        let certain = self.adds.iter().filter(|add| add.happened);
        base + certain.map(|add| add.amount).sum::<i64>()
    }

    /// How many amounts may have been added.
    pub(crate) fn unknown(&self) -> usize {
        self.adds.iter().filter(|add| !add.happened).count()
    }
}

/// The tokens that are there. Reports those that must not be, and those that must.
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
        // Whoever else asked for the same may have done it.
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

/// The kinds of errors by which the library may tell under faults what became of an operation of its own.
pub(crate) const TOLD: [&str; 6] = [
    "ConflictPersisted",
    "ConnectionLost",
    "DeadlinePassed",
    "DiskFull",
    "OutcomeUnknown",
    crate::store::NO_CONNECTION,
];

fn judge_errors(history: &History, findings: &mut Vec<Finding>) {
    for done in &history.operations {
        let (Outcome::Failed(refused) | Outcome::Unknown(Some(refused))) = &done.outcome else {
            continue;
        };
        // Reads are Diesel's own queries; in a caller's transaction its statements' errors are told as they are.
        let any_is_right = matches!(
            done.operation,
            Operation::ReadRows { .. }
                | Operation::ReadNamed { .. }
                | Operation::Transaction { .. }
        );
        if !TOLD.contains(&refused.kind.as_str()) && !any_is_right {
            findings.push(Finding::Unclassified {
                client: done.client.clone(),
                number: done.number,
                operation: done.operation.name(),
                error: format!("{}: {}", refused.kind, refused.text),
            });
        }
    }
}

/// The changes of every counter that appears anywhere.
fn counters_of(
    history: &History,
    aftermath: &Aftermath,
    tokens: &BTreeSet<&str>,
) -> BTreeMap<Counter, Changes> {
    let mut counters: BTreeMap<Counter, Changes> = BTreeMap::new();
    for (counter, _) in &aftermath.totals {
        counters.entry(counter.clone()).or_default();
    }
    // When what was asked for more than once had happened for certain.
    let mut acknowledged: BTreeMap<&str, Moment> = BTreeMap::new();
    for done in history.operations.iter().filter(|done| done.is_ok()) {
        if let Some(token) = done.operation.token() {
            let first = acknowledged.entry(token).or_insert(done.ended);
            *first = done.ended.min(*first);
        }
    }
    let mut begun = BTreeSet::new();
    for done in &history.operations {
        // A token is the truth, whatever was said to the client; what has it happened once, whoever asked for it first.
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
    client: &str,
    number: u64,
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
                client: client.to_owned(),
                number,
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
    // The largest value by the time at which its read had ended.
    let mut largest: Vec<(Moment, i64)> =
        values.iter().map(|(d, value)| (d.ended, *value)).collect();
    largest.sort_unstable();
    for n in 1..largest.len() {
        largest[n].1 = largest[n].1.max(largest[n - 1].1);
    }
    for (done, value) in values {
        if let Err((lowest, highest)) = eras.explain(done.began, done.ended, value) {
            findings.push(Finding::ReadOutOfBounds {
                client: done.client.clone(),
                number: done.number,
                counter: counter.clone(),
                value,
                lowest,
                highest,
            });
        }
        let earlier = largest.partition_point(|(ended, _)| *ended < done.began);
        if let (true, Some((_, before))) = (only_grows, largest[..earlier].last())
            && value < *before
        {
            findings.push(Finding::WentBack {
                client: done.client.clone(),
                number: done.number,
                counter: counter.clone(),
                value,
                before: *before,
            });
        }
    }
}

/// The beginning of a counter and all its sets, each with what is counted after it.
pub(crate) struct Eras(Vec<Era>);

impl Eras {
    pub(crate) fn of(base: i64, changes: &Changes) -> Self {
        let beginning = Set {
            value: base,
            began: 0,
            ended: Some(0),
        };
        let eras = std::iter::once(&beginning)
            .chain(&changes.sets)
            .map(|set| Era::new(set, changes));
        Eras(eras.collect())
    }

    /// Whether a read between two moments may see this value; else the bounds in the last era that may hold then.
    pub(crate) fn explain(
        &self,
        began: Moment,
        ended: Moment,
        value: i64,
    ) -> Result<(), (i64, i64)> {
        let intervals = self.0.iter();
        let intervals = intervals.filter_map(|era| era.bounds(began, ended));
        let intervals: Vec<_> = intervals.collect();
        let explained = intervals
            .iter()
            .any(|(lowest, highest)| (*lowest..=*highest).contains(&value));
        match explained {
            true => Ok(()),
            false => Err(intervals.last().copied().unwrap_or_default()),
        }
    }
}

/// The time from a set on, or from the beginning.
struct Era {
    value: i64,
    began: Moment,
    /// When a later set had happened for certain, if there is one.
    over: Option<Moment>,
    /// What was added after it for certain, by the time at which it was acknowledged.
    definite: Sums,
    /// That, and what may have been added after it, by the time at which it began.
    possible: Sums,
}

impl Era {
    fn new(set: &Set, Changes { adds, sets }: &Changes) -> Self {
        let later = sets
            .iter()
            .filter(|later| set.ended.is_some_and(|ended| later.began > ended));
        let definite = adds.iter().filter_map(|add| {
            let after = set.ended.is_some_and(|ended| add.began > ended);
            after.then_some((add.ended?, add.amount))
        });
        let possible = adds.iter().filter_map(|add| {
            let gone = add.ended.is_some_and(|ended| ended < set.began);
            (!gone).then_some((add.began, add.amount))
        });
        Era {
            value: set.value,
            began: set.began,
            over: later.filter_map(|later| later.ended).min(),
            definite: Sums::new(definite.collect()),
            possible: Sums::new(possible.collect()),
        }
    }

    /// The lowest and the highest value that a read between two moments may see in this era; `None` if it cannot hold then.
    fn bounds(&self, began: Moment, ended: Moment) -> Option<(i64, i64)> {
        let over = self.over.is_some_and(|over| over < began);
        if over || self.began > ended {
            return None;
        }
        let definite = self.definite.before(began);
        let possible = self.possible.before(ended);
        Some((
            self.value + definite.sum + (possible.down - definite.down),
            self.value + definite.sum + (possible.up - definite.up),
        ))
    }
}

/// Amounts in the order of some moments, added up from the first on.
struct Sums(Vec<(Moment, Sum)>);

#[derive(Clone, Copy, Default)]
struct Sum {
    sum: i64,
    up: i64,
    down: i64,
}

impl Sums {
    fn new(mut amounts: Vec<(Moment, i64)>) -> Self {
        amounts.sort_unstable();
        let mut so_far = Sum::default();
        let sums = amounts.into_iter().map(|(moment, amount)| {
            so_far.sum += amount;
            so_far.up += amount.max(0);
            so_far.down += amount.min(0);
            (moment, so_far)
        });
        Sums(sums.collect())
    }

    fn before(&self, moment: Moment) -> Sum {
        let number = self.0.partition_point(|(other, _)| *other < moment);
        number
            .checked_sub(1)
            .map_or_else(Sum::default, |last| self.0[last].1)
    }
}

fn judge_total(
    counter: &Counter,
    base: i64,
    changes: &Changes,
    value: i64,
    findings: &mut Vec<Finding>,
) {
    if !changes.may_end_with(base, value) {
        findings.push(Finding::WrongTotal {
            counter: counter.clone(),
            value,
            acknowledged: changes.acknowledged(base),
            unknown: changes.unknown(),
        });
    }
}

/// Whether some of `amounts`, or none, add up to `sum`.
fn is_some_sum_of(amounts: &[i64], sum: i64) -> bool {
    let lowest: i64 = amounts.iter().map(|amount| amount.min(&0)).sum();
    let highest: i64 = amounts.iter().map(|amount| amount.max(&0)).sum();
    if !(lowest..=highest).contains(&sum) {
        return false;
    }
    let place = |sum: i64| usize::try_from(sum - lowest).expect("not below the lowest");
    let mut reached = vec![false; place(highest) + 1];
    reached[place(0)] = true;
    for amount in amounts {
        let before = reached.clone();
        for (n, _) in before.iter().enumerate().filter(|(_, reached)| **reached) {
            let next = i64::try_from(n).expect("a few unknown counts") + amount;
            reached[usize::try_from(next).expect("no sum of some is below the lowest")] = true;
        }
    }
    reached[place(sum)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operation::Refused;
    use std::time::Duration;

    const ROW: Counter = Counter::Views(1);

    fn done(operation: Operation, began: Moment, ended: Moment, outcome: Outcome) -> Done {
        Done {
            client: "0".into(),
            number: began,
            operation,
            began,
            ended,
            took: Duration::ZERO,
            outcome,
        }
    }

    fn count(n: i64) -> Operation {
        Operation::Count {
            row: 1,
            views: n,
            likes: None,
        }
    }

    fn set(total: i64) -> Operation {
        Operation::SetTotal { row: 1, total }
    }

    fn ok(operation: Operation, began: Moment, ended: Moment) -> Done {
        done(operation, began, ended, Outcome::Ok(vec![]))
    }

    fn unknown(operation: Operation, began: Moment) -> Done {
        done(operation, began, Moment::MAX, Outcome::Unknown(None))
    }

    fn failed(operation: Operation, began: Moment, kind: &str) -> Done {
        let refused = Refused {
            unknown: false,
            kind: kind.into(),
            text: String::new(),
        };
        done(operation, began, began + 1, Outcome::Failed(refused))
    }

    fn transaction(token: &str, n: i64) -> Operation {
        Operation::Transaction {
            token: token.into(),
            counts: vec![(ROW, n)],
            begin: crate::operation::Begin::Plainly,
            reads_first: false,
        }
    }

    fn findings(mut operations: Vec<Done>, total: i64, tokens: &[&str]) -> Vec<Finding> {
        operations.sort_by_key(|done| done.began);
        let rules = Rules {
            base: [(ROW, 100)].into(),
            teams: vec![],
        };
        let aftermath = Aftermath {
            totals: vec![(ROW, total)],
            tokens: tokens.iter().map(|token| (*token).to_owned()).collect(),
        };
        judge(&rules, &History { operations }, &aftermath).findings
    }

    /// The values from 0 to 199 that a read at that time may show after `operations`.
    fn readable(operations: &[Done], began: Moment, ended: Moment) -> Vec<i64> {
        readable_with(operations, &[], began, ended)
    }

    fn readable_with(
        operations: &[Done],
        tokens: &[&str],
        began: Moment,
        ended: Moment,
    ) -> Vec<i64> {
        let is_explained = |value: &i64| {
            let read = Operation::ReadRows { first: 1, last: 1 };
            let read = done(read, began, ended, Outcome::Ok(vec![(ROW, *value)]));
            let all = operations.iter().cloned().chain([read]).collect();
            let found = findings(all, 100, tokens);
            let strange = |finding: &Finding| matches!(finding, Finding::ReadOutOfBounds { .. });
            !found.iter().any(strange)
        };
        (0..200).filter(is_explained).collect()
    }

    #[test]
    fn a_read_sees_what_ended_before_it_and_maybe_what_goes_on() {
        let operations = [
            ok(count(5), 10, 20),
            failed(count(50), 12, "ConnectionLost"),
        ];
        assert_eq!(readable(&operations, 1, 5), [100]);
        assert_eq!(readable(&operations, 1, 15), [100, 101, 102, 103, 104, 105]);
        assert_eq!(
            readable(&operations, 15, 25),
            [100, 101, 102, 103, 104, 105]
        );
        assert_eq!(readable(&operations, 21, 25), [105]);
    }

    #[test]
    fn what_is_unknown_may_have_happened_for_ever() {
        let operations = [unknown(count(-2), 10), unknown(count(1), 30)];
        assert_eq!(readable(&operations, 1, 5), [100]);
        assert_eq!(readable(&operations, 15, 25), [98, 99, 100]);
        assert_eq!(readable(&operations, 1000, 1001), [98, 99, 100, 101]);
    }

    #[test]
    fn a_set_ends_what_was_before() {
        let operations = [ok(count(9), 1, 5), ok(set(7), 10, 20), ok(count(2), 30, 40)];
        assert_eq!(readable(&operations, 6, 8), [109]);
        assert_eq!(readable(&operations, 15, 18), [7, 109]);
        assert_eq!(readable(&operations, 21, 25), [7]);
        assert_eq!(readable(&operations, 50, 60), [9]);
    }

    #[test]
    fn a_count_beside_a_set_is_before_or_after_it() {
        let operations = [ok(set(7), 10, 20), ok(count(2), 15, 25)];
        assert_eq!(readable(&operations, 30, 40), [7, 8, 9]);
    }

    #[test]
    fn an_unknown_set_may_come_at_any_time() {
        let operations = [
            unknown(set(50), 10),
            ok(count(2), 30, 40),
            ok(set(7), 50, 60),
        ];
        assert_eq!(readable(&operations, 1, 5), [100]);
        assert_eq!(readable(&operations, 20, 25), [50, 100]);
        assert_eq!(readable(&operations, 45, 46), [50, 51, 52, 102]);
        // The acknowledged set is over what was before, but not over what may still come.
        assert_eq!(readable(&operations, 70, 80), [7, 50, 51, 52]);
    }

    #[test]
    fn an_unknown_count_may_come_after_a_set() {
        let operations = [unknown(count(3), 5), ok(set(7), 10, 20)];
        assert_eq!(readable(&operations, 30, 40), [7, 8, 9, 10]);
    }

    #[test]
    fn the_end_is_some_of_what_is_unknown() {
        let operations = || {
            vec![
                ok(count(5), 1, 2),
                unknown(count(30), 3),
                unknown(count(-10), 4),
            ]
        };
        let right: Vec<_> = (0..200)
            .filter(|total| findings(operations(), *total, &[]).is_empty())
            .collect();
        assert_eq!(right, [95, 105, 125, 135]);
    }

    #[test]
    fn tokens_tell_what_became_of_the_unknown() {
        let operations = || {
            vec![
                ok(transaction("a", 1), 1, 2),
                unknown(transaction("b", 10), 3),
                unknown(transaction("c", 20), 4),
                failed(transaction("d", 40), 5, "ConnectionLost"),
            ]
        };
        assert_eq!(findings(operations(), 111, &["a", "b"]), []);
        assert_eq!(findings(operations(), 101, &["a"]), []);
        let wrong_total = |finding: &Finding| matches!(finding, Finding::WrongTotal { .. });
        for total in [101, 121, 131] {
            let found = findings(operations(), total, &["a", "b"]);
            assert!(
                found.iter().all(wrong_total) && found.len() == 1,
                "{found:?}"
            );
        }
        let token = |token: &str| token.to_owned();
        assert_eq!(
            findings(operations(), 100, &[]),
            [Finding::AcknowledgedLost { token: token("a") }]
        );
        assert_eq!(
            findings(operations(), 141, &["a", "d"]),
            [Finding::FailedButApplied {
                token: token("d"),
                error: "ConnectionLost: ".into()
            }]
        );
        for strange in ["e", "a"] {
            assert_eq!(
                findings(operations(), 101, &["a", strange]),
                [Finding::StrangeToken {
                    token: token(strange)
                }]
            );
        }
    }

    fn request(n: i64) -> Operation {
        Operation::CountOnce {
            request: "r".into(),
            row: 1,
            n,
            coalesced: false,
        }
    }

    #[test]
    fn what_is_asked_for_more_than_once_happens_once() {
        let operations = || {
            vec![
                failed(request(5), 10, "ConnectionLost"),
                unknown(request(5), 20),
                ok(request(5), 30, 40),
                ok(request(5), 35, 50),
            ]
        };
        assert_eq!(findings(operations(), 105, &["r"]), []);
        assert_eq!(readable_with(&operations(), &["r"], 1, 5), [100]);
        let maybe = [100, 101, 102, 103, 104, 105];
        assert_eq!(readable_with(&operations(), &["r"], 25, 32), maybe);
        assert_eq!(readable_with(&operations(), &["r"], 41, 45), [105]);
        let wrong_total = |finding: &Finding| matches!(finding, Finding::WrongTotal { .. });
        for total in [100, 110, 115] {
            let found = findings(operations(), total, &["r"]);
            assert!(found.len() == 1 && wrong_total(&found[0]), "{found:?}");
        }
        let lost = findings(operations(), 100, &[]);
        assert_eq!(lost, [Finding::AcknowledgedLost { token: "r".into() }]);
    }

    #[test]
    fn rows_of_a_team_show_the_same_everywhere() {
        let rules = Rules {
            base: [(ROW, 100)].into(),
            teams: vec![vec![ROW, Counter::Views(2)]],
        };
        let torn = |first, second| {
            let totals = vec![(ROW, first), (Counter::Views(2), second)];
            let team = Operation::CountTeam {
                team: 1,
                rows: vec![1, 2],
                n: 1,
            };
            let read = Operation::ReadRows { first: 1, last: 2 };
            let read = done(read, 10, 20, Outcome::Ok(totals));
            let history = History {
                operations: vec![unknown(team, 1), read],
            };
            judge(&rules, &history, &Aftermath::default()).findings
        };
        let is_torn = |finding: &Finding| matches!(finding, Finding::TeamTorn { .. });
        assert!(!torn(100, 0).iter().any(is_torn) && !torn(101, 1).iter().any(is_torn));
        assert!(torn(101, 0).iter().any(is_torn));
    }

    #[test]
    fn a_total_that_grows_does_not_fall() {
        let read = |began, ended, value| {
            let read = Operation::ReadRows { first: 1, last: 1 };
            done(read, began, ended, Outcome::Ok(vec![(ROW, value)]))
        };
        // The count goes on all the while: each read may see it or not.
        let fell = |n, reads: [Done; 2]| {
            let operations = reads.into_iter().chain([ok(count(n), 1, 90)]).collect();
            let fell = |finding: &Finding| matches!(finding, Finding::WentBack { .. });
            findings(operations, 100 + n, &[]).iter().any(fell)
        };
        assert!(fell(5, [read(10, 20, 105), read(30, 40, 100)]));
        assert!(!fell(5, [read(10, 20, 100), read(30, 40, 105)]));
        assert!(!fell(5, [read(10, 35, 105), read(30, 40, 100)])); // at once
        assert!(!fell(-5, [read(10, 20, 100), read(30, 40, 95)]));
    }

    #[test]
    fn only_an_error_of_the_librarys_own_tells_an_outcome() {
        for (operation, kind, is_wrong) in [
            (count(1), "Diesel", true),
            (count(1), crate::store::NOT_THERE, true),
            (count(1), "Overflow", true),
            (count(1), "ConnectionLost", false),
            (transaction("a", 1), "Diesel", false),
        ] {
            let found = findings(vec![failed(operation.clone(), 1, kind)], 100, &[]);
            let unclassified = |finding: &Finding| matches!(finding, Finding::Unclassified { .. });
            assert_eq!(
                found.iter().any(unclassified),
                is_wrong,
                "{operation:?}, {kind}"
            );
        }
    }
}
