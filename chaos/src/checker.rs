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
//! - *Sets.* A set begins an era with its value, the increments that must have come after it, and those that may have. A read has to fit an
//!   era that may hold at its time. The era of an acknowledged set holds until a later set is over: one that began after this set ended,
//!   was acknowledged, and ended before the read. The era of an unknown set may begin at any time and has no certain end.
//! - *Tokens.* A transaction inserts a row that names it, and an increment with an idempotency key leaves the key. So the tokens at the end show
//!   which ones happened: every acknowledged one, no failed one, and the unknown ones that have a token. Tokens are unique in the
//!   database. A request that several clients make by one key happens once, between the first start and the first acknowledgement.
//! - *The end.* When all clients have stopped, a total is exactly the sum of the acknowledged amounts, of those with a token, and of some
//!   of the unknown ones. A counter that is only counted with tokens has one right total.
//! - *Teams.* Rows that are always counted together show the same sums in every read.
//! - *No way back.* A total that is only ever incremented does not fall between two reads.
//! - *Errors.* The library's own operations report only the kinds of errors that a fault explains. A bare error of Diesel's would not tell
//!   the outcome, and no client reuses a key for another increment or lets a counter overflow.
//! - *Refusals.* Bounds refuse an increment only if it might have left them, and a repair changes a total only if it was wrong.
//! - *Not there.* A row is always there: an operation that reports it missing is wrong.

mod eras;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;

use serde::Serialize;

use self::eras::{Add, Changes, Eras, Set};
use crate::history::{Done, History, Moment, Outcome};
use crate::operation::{Answer, By, Counter, NO_CONNECTION, On, Operation, Totals};

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
    /// A row is not reported missing.
    There,
    /// Bounds refuse only an increment that might have left them.
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
fn find(findings: &mut Vec<Finding>, rule: Rule, text: String) {
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
    fn of(history: &History) -> Self {
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

/// The kinds of errors that the library's own operations may report under faults. Each tells the outcome, or that it is unknown.
const TOLD: [&str; 9] = [
    "ConflictPersisted",
    "ConnectionLost",
    "DeadlinePassed",
    "FlushPending",
    "DiskFull",
    "MissingShardsTable",
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
    let findings = &mut judgement.findings;
    let tokens = judge_tokens(history, aftermath, findings);
    judge_errors(history, findings);
    judge_absences(history, findings);
    let mut courses = Courses {
        rules,
        plain: BTreeMap::new(),
    };
    courses.change(history, aftermath, &tokens);
    judgement.reads = courses.read(history, aftermath, findings);
    for (counter, course) in &courses.plain {
        course.judge(counter, findings);
    }
    judgement
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
        let error = match &done.outcome {
            Outcome::Ok(_) | Outcome::Unknown(None) => continue,
            Outcome::Failed(refused) | Outcome::Unknown(Some(refused)) => refused,
        };
        let is_told = TOLD.contains(&error.kind.as_str());
        // Reads are Diesel's own queries. In a caller's transaction, statements report Diesel's errors.
        let is_in_transaction = matches!(done.operation, Operation::Transaction { .. });
        let any_is_right = is_in_transaction || done.operation.is_read();
        if !is_told && !any_is_right {
            let at = done.at();
            let what = "an error that does not tell the outcome, or that nothing explains";
            find(findings, Rule::Errors, format!("{at}: {what}: {error}"));
        }
    }
}

/// Reports operations that found too few rows.
fn judge_absences(history: &History, findings: &mut Vec<Finding>) {
    for done in &history.operations {
        if let Outcome::Ok(Answer::Rows(met)) = &done.outcome
            && done.operation.rows().is_some_and(|all| all != *met)
        {
            let text = format!("{}: it met {met} rows, and more are there", done.at());
            find(findings, Rule::There, text);
        }
    }
}

/// The course of one counter.
struct Course<'h> {
    base: i64,
    changes: Changes,
    /// The totals that were read, and by what.
    reads: Vec<(&'h Done, i64)>,
    /// The increments that bounds refused, and the totals at which they would have been within the bounds.
    refusals: Vec<(&'h Done, RangeInclusive<i64>)>,
    /// Its last total, if it is known.
    end: Option<i64>,
}

impl Course<'_> {
    fn of(base: i64) -> Self {
        Course {
            base,
            changes: Changes::default(),
            reads: vec![],
            refusals: vec![],
            end: None,
        }
    }

    fn judge(&self, counter: &dyn fmt::Display, findings: &mut Vec<Finding>) {
        let eras = Eras::of(self.base, &self.changes);
        for (done, value) in &self.reads {
            if !eras.explain(done.span, *value) {
                let (at, bounds) = (done.at(), eras.bounds(done.span));
                let text = format!("{at}: {counter} is {value}, outside of {bounds:?}");
                find(findings, Rule::InBounds, text);
            }
        }
        for (done, within) in &self.refusals {
            let mut totals = eras.bounds(done.span).into_iter();
            let is_within = |total: &i64| within.contains(total);
            if totals.all(|totals| is_within(totals.start()) && is_within(totals.end())) {
                let text = format!("{}: {counter} would stay within the bounds", done.at());
                find(findings, Rule::Bounds, text);
            }
        }
        self.judge_growth(counter, findings);
        if let Some(end) = self.end {
            self.changes.judge_end(counter, self.base, end, findings);
        }
    }

    /// Checks that a total that is only incremented does not fall.
    fn judge_growth(&self, counter: &dyn fmt::Display, findings: &mut Vec<Finding>) {
        let Changes { adds, sets } = &self.changes;
        if !sets.is_empty() || adds.iter().any(|add| add.amount < 0) {
            return;
        }
        // The largest value of all reads that had ended by each moment.
        let ends = self
            .reads
            .iter()
            .map(|(done, value)| (done.span.ended, *value));
        let mut largest: Vec<(Moment, i64)> = ends.collect();
        largest.sort_unstable();
        for n in 1..largest.len() {
            largest[n].1 = largest[n].1.max(largest[n - 1].1);
        }
        for (done, value) in &self.reads {
            let earlier = largest.partition_point(|(ended, _)| *ended < done.span.began);
            if let Some((_, before)) = largest[..earlier].last()
                && value < before
            {
                let text = format!(
                    "{}: {counter} is {value} and was {before} before",
                    done.at()
                );
                find(findings, Rule::NoWayBack, text);
            }
        }
    }
}

/// The courses of all counters of a history and of its end.
struct Courses<'h> {
    rules: &'h Rules,
    plain: BTreeMap<Counter, Course<'h>>,
}

impl<'h> Courses<'h> {
    fn of(&mut self, counter: &Counter) -> &mut Course<'h> {
        let course = || Course::of(self.rules.base(counter));
        self.plain.entry(counter.clone()).or_insert_with(course)
    }

    /// Adds all changes.
    fn change(&mut self, history: &History, aftermath: &Aftermath, tokens: &BTreeSet<&str>) {
        for (counter, _) in &aftermath.totals {
            self.of(counter);
        }
        // The moment by which a request that was made more than once had certainly happened.
        let mut acknowledged: BTreeMap<&str, Moment> = BTreeMap::new();
        for done in history.operations.iter().filter(|done| done.is_ok()) {
            if let Some(token) = done.operation.token() {
                let first = acknowledged.entry(token).or_insert(done.span.ended);
                *first = done.span.ended.min(*first);
            }
        }
        let mut begun = BTreeSet::new();
        for done in &history.operations {
            let (operation, token) = (&done.operation, done.operation.token());
            let met_nothing = matches!(
                done.outcome,
                Outcome::Ok(Answer::Rows(0) | Answer::Unchanged)
            );
            // A token proves that the operation happened once, whatever the client was told. The first request counts as the operation.
            let happened = match token {
                Some(token) => tokens.contains(token) && begun.insert(token),
                None => done.may_have_happened() && !met_nothing,
            };
            let ended = match token {
                Some(token) => acknowledged.get(token).copied(),
                None => done.is_ok().then_some(done.span.ended),
            };
            let began = done.span.began;
            if !happened {
                continue;
            }
            for (counter, amount) in operation.adds() {
                self.of(&counter).changes.adds.push(Add {
                    amount,
                    began,
                    ended,
                    happened: ended.is_some() || token.is_some(),
                });
            }
            if let Some((counter, value)) = operation.sets() {
                self.of(&counter).changes.sets.push(Set {
                    value,
                    began,
                    ended,
                });
            }
        }
    }

    /// Adds all reads, and returns their number.
    fn read(
        &mut self,
        history: &'h History,
        aftermath: &Aftermath,
        findings: &mut Vec<Finding>,
    ) -> usize {
        let mut reads = 0;
        for done in &history.operations {
            match (&done.outcome, &done.operation) {
                (Outcome::Ok(Answer::Totals(totals)), operation) => {
                    let rows = match operation {
                        Operation::ReadRows { first, last } => Some(*first..=*last),
                        _ => None,
                    };
                    self.look(Some(done), totals, rows, findings);
                    reads += 1;
                }
                (Outcome::Ok(Answer::Unchanged), Operation::Count(count)) => {
                    let (On::Row(row), By::Bounded(lowest, highest)) = (&count.on, count.by) else {
                        continue;
                    };
                    let course = self.of(&Counter::Views(*row));
                    let within = lowest - count.n..=highest - count.n;
                    course.refusals.push((done, within));
                }
                (Outcome::Ok(Answer::Unchanged), Operation::Repair { row, total }) => {
                    let course = self.of(&Counter::Views(*row));
                    course.reads.push((done, *total)); // it was right already
                }
                _ => {}
            }
        }
        let everywhere = Some(i64::MIN..=i64::MAX);
        self.look(None, &aftermath.totals, everywhere, findings);
        for course in self.plain.values_mut() {
            course.end.get_or_insert(0);
        }
        reads
    }

    /// Adds the totals that an operation returned, or those at the end; `rows` are the ids of all rows that were read.
    fn look(
        &mut self,
        done: Option<&'h Done>,
        totals: &Totals,
        rows: Option<RangeInclusive<i64>>,
        findings: &mut Vec<Finding>,
    ) {
        let at = done.map_or_else(|| "at the end".to_owned(), Done::at);
        let is_read = |row: &i64| rows.as_ref().is_some_and(|rows| rows.contains(row));
        // A row that is not there yet counts as 0.
        let absent = self.plain.keys().filter(|counter| match counter {
            Counter::Views(row) | Counter::Likes(row) => done.is_some() && is_read(row),
            Counter::Named(_) => false,
        });
        let mut seen: BTreeMap<Counter, i64> = absent.map(|absent| (absent.clone(), 0)).collect();
        seen.extend(totals.iter().cloned());
        judge_teams(self.rules, &at, &seen, findings);
        for (counter, value) in &seen {
            let course = self.of(counter);
            match done {
                Some(done) => course.reads.push((done, *value)),
                None => course.end = course.end.or(Some(*value)),
            }
        }
    }
}

fn judge_teams(
    rules: &Rules,
    at: &str,
    totals: &BTreeMap<Counter, i64>,
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
