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
//! - *Refusals.* Bounds refuse a count only if it might have left them, and a repair changes a total only if it was wrong.
//!
//! Where rows are inserted, deleted and renamed, nothing is killed or cut, so every operation tells its outcome. Only one thing can be
//! unknown: the life on which a count fell, if the count overlapped the end of one life and the beginning of another; [`lives`] tells
//! where each life is.
//!
//! - *Counts.* An acknowledged count fell on a life that may have been at its id meanwhile. If there is only one such life, the count is in
//!   that life's total from then on, whatever its id. If there are several, it may be in any of them. If there is none, the
//!   acknowledgement was wrong. Sets and repairs begin eras by the same rule. A life ends with the total that its delete returned.
//! - *The sum.* Where nothing is set, all lives together have grown by the acknowledged amounts: each count fell on exactly one life. So
//!   no count is lost or doubled between two lives.
//! - *Not there.* An operation reports a missing row only if the row was missing at some moment meanwhile. A read returns every life that
//!   is certainly there, and none that cannot be there. A row without a life is always there.
//! - *Bounds* hold in every read of a life.

mod eras;
mod lives;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::RangeInclusive;

use serde::Serialize;

use self::eras::{Add, Changes, Eras, Set};
use self::lives::{Lives, is_there, not_elsewhere};
use crate::history::{Done, History, Moment, Outcome, Span};
use crate::operation::{Answer, By, Count, Counter, NO_CONNECTION, On, Operation, Totals};

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
    /// The ids whose rows are inserted, deleted and renamed, if there are any. Then each operation has to tell its outcome.
    pub lives: Option<RangeInclusive<i64>>,
    /// The bounds of all counts on these rows.
    pub bounds: Option<RangeInclusive<i64>>,
}

impl Rules {
    fn base(&self, counter: &Counter) -> i64 {
        self.base.get(counter).copied().unwrap_or(0)
    }

    fn is_of_lives(&self, row: i64) -> bool {
        let lives = self.lives.as_ref();
        lives.is_some_and(|rows| rows.contains(&row))
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
    judge_errors(rules, history, findings);
    let mut courses = Courses {
        rules,
        plain: BTreeMap::new(),
        lives: Lives::of(history, findings),
    };
    let counted = courses.change(history, aftermath, &tokens, findings);
    judge_absences(rules, history, &courses.lives, findings);
    judgement.reads = courses.read(history, aftermath, findings);
    for (counter, course) in &courses.plain {
        course.judge(counter, None, findings);
    }
    for life in &courses.lives.0 {
        let name = format!("life {}", life.number);
        life.course.judge(&name, rules.bounds.as_ref(), findings);
    }
    judge_sum(&courses.lives, counted, findings);
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

fn judge_errors(rules: &Rules, history: &History, findings: &mut Vec<Finding>) {
    let has_to_tell = rules.lives.is_some();
    for done in &history.operations {
        let (is_told, error) = match &done.outcome {
            Outcome::Unknown(None) if has_to_tell => (false, "it did not end".to_owned()),
            Outcome::Ok(_) | Outcome::Unknown(None) => continue,
            Outcome::Failed(refused) | Outcome::Unknown(Some(refused)) => {
                let is_told = TOLD.contains(&refused.kind.as_str());
                let is_told = is_told && !(has_to_tell && refused.unknown);
                (is_told, refused.to_string())
            }
        };
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

/// Reports operations that wrongly found no row.
fn judge_absences(
    rules: &Rules,
    history: &History,
    lives: &Lives<'_>,
    findings: &mut Vec<Finding>,
) {
    for done in &history.operations {
        let Outcome::Ok(answer) = &done.outcome else {
            continue;
        };
        let row = match (&done.operation, answer) {
            (Operation::Delete { row }, Answer::Totals(seen)) if seen.is_empty() => *row,
            (Operation::Rename { from, to }, Answer::Totals(seen)) if seen.is_empty() => {
                if lives.may_be_at(*to, done.span) {
                    continue; // the new id may be taken
                }
                *from
            }
            (operation, Answer::Rows(met)) if operation.rows().is_some_and(|all| all != *met) => {
                let mut changed = operation.adds().into_iter().chain(operation.sets());
                match changed.next() {
                    Some((Counter::Views(row), _)) if rules.is_of_lives(row) => row,
                    _ => {
                        let text = format!("{}: it met {met} rows, and more are there", done.at());
                        find(findings, Rule::There, text);
                        continue;
                    }
                }
            }
            _ => continue,
        };
        if lives.is_at(row, done.span) {
            is_there(findings, &done.at(), row);
        }
    }
}

/// Checks that every count fell on exactly one life.
fn judge_sum(lives: &Lives<'_>, acknowledged: i64, findings: &mut Vec<Finding>) {
    let courses = || lives.0.iter().map(|life| &life.course);
    if courses().any(|course| !course.changes.sets.is_empty()) {
        return;
    }
    let grown = courses().map(|course| Some(course.end? - course.base));
    // Another check reports a life without an end.
    if let Some(grown) = grown.sum::<Option<i64>>()
        && grown != acknowledged
    {
        let acknowledged = format!("where {acknowledged} was acknowledged");
        let text = format!("all lives together have grown by {grown}, {acknowledged}");
        find(findings, Rule::RightSum, text);
    }
}

/// The course of one counter: of one that is there all the time, or of one life of a row.
struct Course<'h> {
    base: i64,
    changes: Changes,
    /// The totals that were read, and by what.
    reads: Vec<(&'h Done, i64)>,
    /// The counts that bounds refused, and the totals at which they would have been within the bounds.
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

    fn judge(
        &self,
        counter: &dyn fmt::Display,
        bounds: Option<&RangeInclusive<i64>>,
        findings: &mut Vec<Finding>,
    ) {
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
        let values = self.reads.iter().map(|(_, value)| *value).chain(self.end);
        let is_beyond = |value: &i64| bounds.is_some_and(|bounds| !bounds.contains(value));
        for value in values.filter(is_beyond) {
            let text = format!("{counter} is {value}, outside the bounds of all counts");
            find(findings, Rule::Bounds, text);
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
    lives: Lives<'h>,
}

impl<'h> Courses<'h> {
    /// The course of a counter; of a row that is inserted and deleted, those of all lives that may have been there meanwhile.
    fn of(&mut self, counter: &Counter, meanwhile: Span) -> Vec<&mut Course<'h>> {
        match counter {
            Counter::Life { number, row } => {
                let life = self.lives.find(*number, *row, meanwhile);
                life.map(|life| &mut life.course).into_iter().collect()
            }
            Counter::Views(row) if self.rules.is_of_lives(*row) => self.lives.at(*row, meanwhile),
            _ => {
                let course = || Course::of(self.rules.base(counter));
                vec![self.plain.entry(counter.clone()).or_insert_with(course)]
            }
        }
    }

    /// Adds all changes. Returns the sum of the amounts that were certainly added to lives.
    fn change(
        &mut self,
        history: &History,
        aftermath: &Aftermath,
        tokens: &BTreeSet<&str>,
        findings: &mut Vec<Finding>,
    ) -> i64 {
        let rules = self.rules;
        for (counter, _) in &aftermath.totals {
            self.of(counter, Span::END);
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
        let mut counted = 0;
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
            let mut change =
                |counter: &Counter, change: &dyn Fn(&mut Changes, Option<Moment>, bool)| {
                    let courses = self.of(counter, done.span);
                    if courses.is_empty() && happened && done.is_ok() {
                        not_elsewhere(findings, &done.at(), counter);
                    }
                    let is_one = courses.len() == 1;
                    for course in courses.into_iter().filter(|_| happened) {
                        change(&mut course.changes, ended.filter(|_| is_one), is_one);
                    }
                };
            for (counter, amount) in operation.adds() {
                change(&counter, &|changes, ended, is_one| {
                    changes.adds.push(Add {
                        amount,
                        began,
                        ended,
                        happened: ended.is_some() || is_one && token.is_some(),
                    });
                });
                let is_of_lives = matches!(counter, Counter::Views(row) if rules.is_of_lives(row));
                counted += if happened && is_of_lives { amount } else { 0 };
            }
            if let Some((counter, value)) = operation.sets() {
                change(&counter, &|changes, ended, _| {
                    changes.sets.push(Set {
                        value,
                        began,
                        ended,
                    });
                });
            }
        }
        counted
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
                    if let Count {
                        on: On::Row(row),
                        by: By::Bounded(lowest, highest),
                        n,
                        ..
                    } = count
                        && let [course] = &mut self.of(&Counter::Views(*row), done.span)[..]
                    {
                        course.refusals.push((done, lowest - n..=highest - n));
                    }
                }
                (Outcome::Ok(Answer::Unchanged), Operation::Repair { row, total }) => {
                    if self.rules.is_of_lives(*row) && !self.lives.is_at(*row, done.span) {
                        continue; // it may have been missing
                    }
                    if let [course] = &mut self.of(&Counter::Views(*row), done.span)[..] {
                        course.reads.push((done, *total)); // it was right already
                    }
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
        let meanwhile = done.map_or(Span::END, |done| done.span);
        let is_read = |row: &i64| rows.as_ref().is_some_and(|rows| rows.contains(row));
        // A row that is not there yet counts as 0.
        let absent = self.plain.keys().filter(|counter| match counter {
            Counter::Views(row) | Counter::Likes(row) => done.is_some() && is_read(row),
            Counter::Named(_) | Counter::Life { .. } => false,
        });
        let mut seen: BTreeMap<Counter, i64> = absent.map(|absent| (absent.clone(), 0)).collect();
        seen.extend(totals.iter().cloned());
        judge_teams(self.rules, &at, &seen, findings);
        for (counter, value) in &seen {
            let courses = self.of(counter, meanwhile);
            if courses.is_empty() {
                not_elsewhere(findings, &at, counter);
            }
            for course in courses {
                match done {
                    Some(done) => course.reads.push((done, *value)),
                    None => course.end = course.end.or(Some(*value)),
                }
            }
        }
        for life in &self.lives.0 {
            let is_shown = |counter: &Counter| matches!(counter, Counter::Life { number, .. } if *number == life.number);
            if let Some(row) = life.is_alive(meanwhile).filter(|row| is_read(row))
                && !seen.keys().any(is_shown)
            {
                is_there(findings, &at, row);
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
