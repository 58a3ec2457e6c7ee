//! Judges what became of lives.
//!
//! Nothing is cut or killed here, so every operation tells what it did. What is not known is only on which life a count fell that
//! overlapped the end of one and the beginning of another.
//!
//! - *Where a life is.* It may be under a key from when its insert, or a rename to there, began, and until its delete, or a rename
//!   away, has ended; it is there for certain from when the first has ended until the second begins.
//! - *Counts.* One that was acknowledged fell on a life that may have been under its key meanwhile. If there is only one, it is in that
//!   life's total from then on, whatever its key is; if there are several, it may be in any of them; if there is none, it was
//!   acknowledged for nothing. Sets and repairs begin eras, by the same rule.
//! - *Reads*, and the totals that deletes and renames answer with: they fit the eras of their life, as in
//!   [`crate::checker`].
//! - *The end of a life.* The total with which it is deleted, or with which it is there when nobody counts any more, is its first one, what
//!   was counted on it for certain, and some of what may have been.
//! - *The sum.* Where nothing is set, all lives together have grown by what was acknowledged: each count fell on one life. So none can
//!   be lost or doubled between two.
//! - *Not there.* An operation says that there is no row only if there was none at some time meanwhile. A read shows every life that is
//!   there for certain, and none that cannot be.
//! - *Named counters* read 0 when they are deleted, as if they were set to it.
//! - *Bounds* hold in every read.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use serde::Serialize;

use super::{Answer, History, Operation, Seen};
use crate::checker::{Add, Changes, Eras, Judgement, Set, TOLD};
use crate::history::{Moment, Outcome};

/// What is found when nobody counts any more.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Aftermath {
    pub lives: Vec<Seen>,
    pub named: Vec<(String, i64)>,
}

/// What has a total.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counted {
    Life(i64),
    Named(String),
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Counted::Life(number) => write!(f, "life {number}"),
            Counted::Named(name) => write!(f, "counter {name:?}"),
        }
    }
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// A total that no order of the operations explains. The interval is that of the last era.
    OutOfBounds {
        at: String,
        counted: Counted,
        value: i64,
        lowest: i64,
        highest: i64,
    },
    /// A total at the end that is not what was acknowledged and some of what may have been counted.
    WrongTotal {
        counted: Counted,
        value: i64,
        acknowledged: i64,
        unknown: usize,
    },
    /// All lives together have not grown by what was acknowledged.
    WrongSum { grown: i64, acknowledged: i64 },
    /// A row was said not to be there, or not shown, and was there all along.
    NotThere { at: String, key: i64 },
    /// A row was said to be where it cannot have been.
    CannotBeThere { at: String, key: i64 },
    /// A total beyond bounds that every count keeps.
    BeyondBounds { at: String, life: i64, value: i64 },
    /// An error that nothing explains, or that does not tell the outcome.
    Unclassified { at: String, error: String },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::OutOfBounds {
                at,
                counted,
                value,
                lowest,
                highest,
            } => write!(
                f,
                "{at}: {counted} is {value}, and cannot be but from {lowest} to {highest}"
            ),
            Finding::WrongTotal {
                counted,
                value,
                acknowledged,
                unknown,
            } => write!(
                f,
                "{counted} ends with {value}, which is not {acknowledged} and some of {unknown} counts that may be another one's"
            ),
            Finding::WrongSum {
                grown,
                acknowledged,
            } => write!(
                f,
                "all lives together have grown by {grown}, where {acknowledged} was acknowledged"
            ),
            Finding::NotThere { at, key } => {
                write!(f, "{at}: no row {key}, and it was there all along")
            }
            Finding::CannotBeThere { at, key } => {
                write!(f, "{at}: a row {key}, and it cannot have been there")
            }
            Finding::BeyondBounds { at, life, value } => {
                write!(
                    f,
                    "{at}: life {life} is {value}, beyond bounds that every count keeps"
                )
            }
            Finding::Unclassified { at, error } => {
                write!(
                    f,
                    "{at}: an error that does not tell the outcome, or that nothing explains: {error}"
                )
            }
        }
    }
}

/// A row from its insert to its delete.
struct Life {
    number: i64,
    base: i64,
    changes: Changes,
    /// The keys that it had, one after the other.
    stays: Vec<Stay>,
    /// Its last total.
    end: Option<i64>,
}

/// A life under one key.
struct Stay {
    key: i64,
    came: Span,
    /// At the end of time if it did not.
    left: Span,
}

/// From when something began until it had ended.
#[derive(Clone, Copy)]
struct Span {
    began: Moment,
    ended: Moment,
}

/// What comes after everything.
const END: Span = Span {
    began: Moment::MAX,
    ended: Moment::MAX,
};

impl Span {
    /// Whether it was over before another one began.
    fn is_before(self, other: Span) -> bool {
        self.ended < other.began
    }
}

impl Stay {
    fn may_be(&self, meanwhile: Span) -> bool {
        !meanwhile.is_before(self.came) && !self.left.is_before(meanwhile)
    }

    fn is_all_along(&self, meanwhile: Span) -> bool {
        self.came.is_before(meanwhile)
            && (meanwhile.is_before(self.left) || self.left.ended == Moment::MAX)
    }
}

impl Life {
    fn may_be_at(&self, key: i64, meanwhile: Span) -> bool {
        let mut stays = self.stays.iter();
        stays.any(|stay| stay.key == key && stay.may_be(meanwhile))
    }

    /// Whether it was there all along, under one key or another.
    fn is_alive(&self, meanwhile: Span) -> bool {
        let (Some(first), Some(last)) = (self.stays.first(), self.stays.last()) else {
            return false;
        };
        let whole = Stay {
            key: last.key,
            came: first.came,
            left: last.left,
        };
        whole.is_all_along(meanwhile)
    }
}

/// The lives of a history, in the order in which they began.
struct Lives(Vec<Life>);

impl Lives {
    /// Reports ends and moves of what cannot have been there.
    fn of(history: &History, findings: &mut Vec<Finding>) -> Self {
        let mut lives: Vec<Life> = vec![];
        for done in &history.operations {
            let Outcome::Ok(answer) = &done.outcome else {
                continue;
            };
            let meanwhile = span(done);
            let (from, to, seen) = match (&done.operation, answer) {
                (Operation::Insert { key, life, total }, Answer::Rows(1)) => {
                    lives.push(Life {
                        number: *life,
                        base: *total,
                        changes: Changes::default(),
                        stays: vec![Stay {
                            key: *key,
                            came: meanwhile,
                            left: END,
                        }],
                        end: None,
                    });
                    continue;
                }
                (Operation::Delete { key }, Answer::Lives(seen)) => (*key, None, seen),
                (Operation::Rename { from, to }, Answer::Lives(seen)) => (*from, Some(*to), seen),
                _ => continue,
            };
            for seen in seen {
                let life = lives.iter_mut().find(|life| life.number == seen.life);
                let life = life.filter(|life| life.end.is_none());
                let stay = life.and_then(|life| {
                    let last = life.stays.last_mut().filter(|stay| stay.key == from)?;
                    last.left = meanwhile;
                    match to {
                        None => life.end = Some(seen.total),
                        Some(key) => life.stays.push(Stay {
                            key,
                            came: meanwhile,
                            left: END,
                        }),
                    }
                    Some(())
                });
                if stay.is_none() {
                    findings.push(Finding::CannotBeThere {
                        at: at(done),
                        key: from,
                    });
                }
            }
        }
        Lives(lives)
    }

    fn may_be_at(&self, key: i64, meanwhile: Span) -> Vec<usize> {
        let lives = self.0.iter().enumerate();
        let there = lives.filter(|(_, life)| life.may_be_at(key, meanwhile));
        there.map(|(n, _)| n).collect()
    }

    /// Whether one life was there all along.
    fn is_at(&self, key: i64, meanwhile: Span) -> bool {
        let stays = self.0.iter().flat_map(|life| &life.stays);
        stays
            .into_iter()
            .any(|stay| stay.key == key && stay.is_all_along(meanwhile))
    }

    /// Adds an amount to the life on which it fell, or to all on which it may have fallen; gives whether there is one.
    fn add(&mut self, key: i64, amount: i64, meanwhile: Span) -> bool {
        let there = self.may_be_at(key, meanwhile);
        let only = there.len() == 1;
        for n in &there {
            self.0[*n].changes.adds.push(Add {
                amount,
                began: meanwhile.began,
                ended: only.then_some(meanwhile.ended),
                happened: only,
            });
        }
        !there.is_empty()
    }

    /// Sets a total as [`add`](Self::add) adds to it.
    fn set(&mut self, key: i64, value: i64, meanwhile: Span) -> bool {
        let there = self.may_be_at(key, meanwhile);
        let only = there.len() == 1;
        for n in &there {
            self.0[*n].changes.sets.push(Set {
                value,
                began: meanwhile.began,
                ended: only.then_some(meanwhile.ended),
            });
        }
        !there.is_empty()
    }
}

type Done = crate::history::Done<Operation, Answer>;

fn span(done: &Done) -> Span {
    Span {
        began: done.began,
        ended: done.ended,
    }
}

/// Where it is in the logs.
fn at(done: &Done) -> String {
    let (client, number) = (&done.client, done.number);
    format!(
        "operation {number} of client {client}, {}",
        done.operation.name()
    )
}

/// Judges a history by what was found at its end. `bounds`: between which totals every count keeps every row.
pub fn judge(
    bounds: Option<RangeInclusive<i64>>,
    history: &History,
    aftermath: &Aftermath,
) -> Judgement<Finding> {
    let mut judgement = Judgement::of(history);
    let findings = &mut judgement.findings;
    judge_errors(history, findings);
    let mut lives = Lives::of(history, findings);
    let mut named: BTreeMap<&str, Changes> = BTreeMap::new();
    let mut counted = 0;
    for done in &history.operations {
        let Outcome::Ok(answer) = &done.outcome else {
            continue;
        };
        let meanwhile = span(done);
        let (key, is_there) = match (&done.operation, answer) {
            (
                Operation::Count { key, n } | Operation::CountBounded { key, n },
                Answer::Rows(1..),
            ) => {
                counted += n;
                (*key, lives.add(*key, *n, meanwhile))
            }
            (
                Operation::Set { key, total } | Operation::Repair { key, total },
                Answer::Rows(1..),
            ) => (*key, lives.set(*key, *total, meanwhile)),
            (Operation::CountNamed { name, n }, _) => {
                named.entry(name).or_default().adds.push(Add {
                    amount: *n,
                    began: done.began,
                    ended: Some(done.ended),
                    happened: true,
                });
                continue;
            }
            (Operation::DeleteNamed { name }, _) => {
                named.entry(name).or_default().sets.push(Set {
                    value: 0,
                    began: done.began,
                    ended: Some(done.ended),
                });
                continue;
            }
            _ => continue,
        };
        if !is_there {
            findings.push(Finding::CannotBeThere { at: at(done), key });
        }
    }
    judge_absences(history, &lives, findings);
    let views = views_of(history, &lives, aftermath, findings);
    judgement.reads = views.len();
    for (n, life) in lives.0.iter_mut().enumerate() {
        let of_it = views.iter().filter(|view| view.life == n);
        let eras = Eras::of(life.base, &life.changes);
        for View {
            at,
            meanwhile,
            value,
            ..
        } in of_it
        {
            if let Err((lowest, highest)) = eras.explain(meanwhile.began, meanwhile.ended, *value) {
                findings.push(Finding::OutOfBounds {
                    at: at.clone(),
                    counted: Counted::Life(life.number),
                    value: *value,
                    lowest,
                    highest,
                });
            }
            if bounds
                .as_ref()
                .is_some_and(|bounds| !bounds.contains(value))
            {
                findings.push(Finding::BeyondBounds {
                    at: at.clone(),
                    life: life.number,
                    value: *value,
                });
            }
        }
        let left = aftermath.lives.iter().find(|seen| seen.life == life.number);
        life.end = life.end.or(left.map(|seen| seen.total));
        if let Some(end) = life.end {
            judge_end(
                Counted::Life(life.number),
                life.base,
                &life.changes,
                end,
                findings,
            );
        }
    }
    judge_sum(&lives, counted, findings);
    judgement.reads += judge_named(&named, history, aftermath, findings);
    judgement
}

fn judge_errors(history: &History, findings: &mut Vec<Finding>) {
    for done in &history.operations {
        let error = match &done.outcome {
            Outcome::Ok(_) => continue,
            Outcome::Failed(refused) if TOLD.contains(&refused.kind.as_str()) => continue,
            // Diesel's own queries.
            Outcome::Failed(_) if matches!(done.operation, Operation::Read { .. }) => continue,
            Outcome::Failed(refused) | Outcome::Unknown(Some(refused)) => {
                format!("{}: {}", refused.kind, refused.text)
            }
            Outcome::Unknown(None) => "it did not end".to_owned(),
        };
        findings.push(Finding::Unclassified {
            at: at(done),
            error,
        });
    }
}

/// Whoever says that there is no row is right.
fn judge_absences(history: &History, lives: &Lives, findings: &mut Vec<Finding>) {
    for done in &history.operations {
        let Outcome::Ok(answer) = &done.outcome else {
            continue;
        };
        let meanwhile = span(done);
        let key = match (&done.operation, answer) {
            (
                Operation::Count { key, .. }
                | Operation::CountBounded { key, .. }
                | Operation::Set { key, .. },
                Answer::Rows(0),
            ) => *key,
            (Operation::Delete { key }, Answer::Lives(seen)) if seen.is_empty() => *key,
            (Operation::Rename { from, to }, Answer::Lives(seen)) if seen.is_empty() => {
                if !lives.may_be_at(*to, meanwhile).is_empty() {
                    continue; // the key may be taken
                }
                *from
            }
            _ => continue,
        };
        if lives.is_at(key, meanwhile) {
            findings.push(Finding::NotThere { at: at(done), key });
        }
    }
}

/// The total of a life, as somebody saw it.
struct View {
    at: String,
    meanwhile: Span,
    /// Its place among the lives.
    life: usize,
    value: i64,
}

/// All totals that were seen. Reports what is shown and cannot be there, and what is there and not shown.
fn views_of(
    history: &History,
    lives: &Lives,
    aftermath: &Aftermath,
    findings: &mut Vec<Finding>,
) -> Vec<View> {
    let mut views = vec![];
    let mut look = |at: String, meanwhile: Span, seen: &[Seen], all: Option<(i64, i64)>| {
        for seen in seen {
            let there = lives.may_be_at(seen.key, meanwhile);
            let mut there = there.into_iter();
            match there.find(|n| lives.0[*n].number == seen.life) {
                Some(life) => views.push(View {
                    at: at.clone(),
                    meanwhile,
                    life,
                    value: seen.total,
                }),
                None => findings.push(Finding::CannotBeThere {
                    at: at.clone(),
                    key: seen.key,
                }),
            }
        }
        let Some((first, last)) = all else {
            return;
        };
        for life in &lives.0 {
            let key = life.stays.last().map_or(first, |stay| stay.key);
            let is_shown = seen.iter().any(|seen| seen.life == life.number);
            if !is_shown && life.is_alive(meanwhile) && (first..=last).contains(&key) {
                findings.push(Finding::NotThere {
                    at: at.clone(),
                    key,
                });
            }
        }
    };
    for done in &history.operations {
        let Outcome::Ok(Answer::Lives(seen)) = &done.outcome else {
            continue;
        };
        let all = match &done.operation {
            Operation::Read { first, last } => Some((*first, *last)),
            _ => None,
        };
        look(at(done), span(done), seen, all);
    }
    let everywhere = Some((i64::MIN, i64::MAX));
    look("at the end".to_owned(), END, &aftermath.lives, everywhere);
    views
}

fn judge_end(
    counted: Counted,
    base: i64,
    changes: &Changes,
    end: i64,
    findings: &mut Vec<Finding>,
) {
    if !changes.may_end_with(base, end) {
        findings.push(Finding::WrongTotal {
            counted,
            value: end,
            acknowledged: changes.acknowledged(base),
            unknown: changes.unknown(),
        });
    }
}

/// Every count fell on one life, whichever that is.
fn judge_sum(lives: &Lives, acknowledged: i64, findings: &mut Vec<Finding>) {
    if lives.0.iter().any(|life| !life.changes.sets.is_empty()) {
        return;
    }
    let grown = lives.0.iter().map(|life| Some(life.end? - life.base));
    // A life without an end is reported by itself.
    if let Some(grown) = grown.sum::<Option<i64>>()
        && grown != acknowledged
    {
        findings.push(Finding::WrongSum {
            grown,
            acknowledged,
        });
    }
}

/// Gives the number of reads.
fn judge_named(
    named: &BTreeMap<&str, Changes>,
    history: &History,
    aftermath: &Aftermath,
    findings: &mut Vec<Finding>,
) -> usize {
    let mut reads = 0;
    let none = Changes::default();
    let unused = Eras::of(0, &none);
    let eras: BTreeMap<_, _> = named
        .iter()
        .map(|(name, changes)| (*name, Eras::of(0, changes)))
        .collect();
    for done in &history.operations {
        let (Operation::ReadNamed { name }, Outcome::Ok(Answer::Total(value))) =
            (&done.operation, &done.outcome)
        else {
            continue;
        };
        reads += 1;
        let eras = eras.get(name.as_str()).unwrap_or(&unused);
        if let Err((lowest, highest)) = eras.explain(done.began, done.ended, *value) {
            findings.push(Finding::OutOfBounds {
                at: at(done),
                counted: Counted::Named(name.clone()),
                value: *value,
                lowest,
                highest,
            });
        }
    }
    for (name, end) in &aftermath.named {
        let changes = named.get(name.as_str()).unwrap_or(&none);
        judge_end(Counted::Named(name.clone()), 0, changes, *end, findings);
    }
    reads
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::operation::Refused;

    fn done(operation: Operation, began: Moment, ended: Moment, answer: Answer) -> Done {
        Done {
            client: "0".into(),
            number: began,
            operation,
            began,
            ended,
            took: Duration::ZERO,
            outcome: Outcome::Ok(answer),
        }
    }

    fn insert(key: i64, life: i64, began: Moment, ended: Moment) -> Done {
        let total = 100 * life;
        let insert = Operation::Insert { key, life, total };
        done(insert, began, ended, Answer::Rows(1))
    }

    fn count(key: i64, n: i64, began: Moment, ended: Moment) -> Done {
        done(Operation::Count { key, n }, began, ended, Answer::Rows(1))
    }

    fn seen(key: i64, life: i64, total: i64) -> Answer {
        Answer::Lives(vec![Seen { key, life, total }])
    }

    fn delete(life: i64, total: i64, began: Moment, ended: Moment) -> Done {
        let delete = Operation::Delete { key: 1 };
        done(delete, began, ended, seen(1, life, total))
    }

    fn read(answer: Answer, began: Moment, ended: Moment) -> Done {
        let read = Operation::Read { first: 1, last: 2 };
        done(read, began, ended, answer)
    }

    /// The findings if these lives are there at the end.
    fn findings(mut operations: Vec<Done>, lives: &[(i64, i64, i64)]) -> Vec<Finding> {
        operations.sort_by_key(|done| done.began);
        let lives = lives.iter();
        let lives = lives.map(|&(key, life, total)| Seen { key, life, total });
        let aftermath = Aftermath {
            lives: lives.collect(),
            named: vec![],
        };
        judge(None, &History { operations }, &aftermath).findings
    }

    fn is_wrong_sum(finding: &Finding) -> bool {
        matches!(finding, Finding::WrongSum { .. })
    }

    #[test]
    fn a_count_falls_on_the_one_life_that_is_there() {
        let operations = |first| {
            vec![
                insert(1, 1, 10, 20),
                count(1, 5, 30, 40),
                delete(1, first, 50, 60),
                insert(1, 2, 70, 80),
                count(1, 7, 90, 95),
            ]
        };
        assert_eq!(findings(operations(105), &[(1, 2, 207)]), []);
        // The sum is right, and each of them is not.
        let wrong = findings(operations(100), &[(1, 2, 212)]);
        assert!(
            !wrong.is_empty() && !wrong.iter().any(is_wrong_sum),
            "{wrong:?}"
        );
        assert!(
            findings(operations(105), &[(1, 2, 200)])
                .iter()
                .any(is_wrong_sum)
        );
        assert!(
            findings(operations(105), &[(1, 2, 214)])
                .iter()
                .any(is_wrong_sum)
        );
    }

    #[test]
    fn a_count_beside_a_delete_and_an_insert_falls_on_one_of_both() {
        let operations = |first| {
            vec![
                insert(1, 1, 10, 20),
                count(1, 5, 45, 85),
                delete(1, first, 50, 60),
                insert(1, 2, 70, 80),
            ]
        };
        assert_eq!(findings(operations(105), &[(1, 2, 200)]), []);
        assert_eq!(findings(operations(100), &[(1, 2, 205)]), []);
        let wrong_sum = |grown| Finding::WrongSum {
            grown,
            acknowledged: 5,
        };
        assert_eq!(findings(operations(100), &[(1, 2, 200)]), [wrong_sum(0)]);
        assert_eq!(findings(operations(105), &[(1, 2, 205)]), [wrong_sum(10)]);
        assert!(findings(operations(103), &[(1, 2, 202)]).len() > 1); // no part of it
    }

    #[test]
    fn a_renamed_row_keeps_its_counts() {
        let operations = |at_rename, at_read| {
            let rename = Operation::Rename { from: 1, to: 2 };
            vec![
                insert(1, 1, 10, 20),
                count(1, 5, 30, 40),
                done(rename, 50, 60, seen(2, 1, at_rename)),
                count(2, 7, 70, 80),
                read(seen(2, 1, at_read), 90, 95),
            ]
        };
        assert_eq!(findings(operations(105, 112), &[(2, 1, 112)]), []);
        assert!(!findings(operations(100, 107), &[(2, 1, 107)]).is_empty());
        assert!(!findings(operations(105, 107), &[(2, 1, 112)]).is_empty());
        // It is not under its old key any more.
        let late = operations(105, 112)
            .into_iter()
            .chain([count(1, 1, 85, 88)]);
        let cannot = |finding: &Finding| matches!(finding, Finding::CannotBeThere { .. });
        assert!(findings(late.collect(), &[(2, 1, 112)]).iter().any(cannot));
    }

    #[test]
    fn a_set_begins_an_era_of_the_life_that_is_there() {
        let operations = |at_read| {
            let set = Operation::Set { key: 1, total: 50 };
            vec![
                insert(1, 1, 10, 20),
                count(1, 5, 30, 40),
                done(set, 50, 60, Answer::Rows(1)),
                count(1, 7, 70, 80),
                read(seen(1, 1, at_read), 90, 95),
            ]
        };
        assert_eq!(findings(operations(57), &[(1, 1, 57)]), []);
        // The set was told, and its base was not written.
        for kept in [107, 112] {
            assert_eq!(findings(operations(kept), &[(1, 1, kept)]).len(), 3);
        }
    }

    #[test]
    fn only_what_was_not_there_at_some_time_may_be_said_not_to_be() {
        let none = |began, ended| {
            let count = Operation::Count { key: 1, n: 5 };
            done(count, began, ended, Answer::Rows(0))
        };
        let operations = |absent| {
            vec![
                insert(1, 1, 10, 20),
                delete(1, 100, 50, 60),
                insert(1, 2, 70, 80),
                absent,
            ]
        };
        for (began, ended) in [(5, 8), (15, 30), (40, 55), (61, 69), (75, 78)] {
            let absent = operations(none(began, ended));
            assert_eq!(findings(absent, &[(1, 2, 200)]), [], "{began} to {ended}");
            let nothing = operations(read(Answer::Lives(vec![]), began, ended));
            assert_eq!(findings(nothing, &[(1, 2, 200)]), [], "{began} to {ended}");
        }
        for (began, ended) in [(21, 49), (81, 90)] {
            let absent = operations(none(began, ended));
            assert_eq!(findings(absent, &[(1, 2, 200)]).len(), 1);
            let nothing = operations(read(Answer::Lives(vec![]), began, ended));
            assert_eq!(findings(nothing, &[(1, 2, 200)]).len(), 1);
        }
        let dead = operations(read(seen(1, 1, 100), 90, 95));
        assert!(!findings(dead, &[(1, 2, 200)]).is_empty());
        assert!(!findings(operations(none(5, 8)), &[]).is_empty());
    }

    #[test]
    fn a_named_counter_that_is_deleted_begins_again_at_zero() {
        let name = || "a".to_owned();
        let judged = |at_read, at_the_end| {
            let count = |n, began, ended| {
                let count = Operation::CountNamed { name: name(), n };
                done(count, began, ended, Answer::Rows(1))
            };
            let delete = Operation::DeleteNamed { name: name() };
            let read = Operation::ReadNamed { name: name() };
            let operations = vec![
                count(4, 1, 2),
                done(delete, 10, 20, Answer::Rows(1)),
                count(1, 30, 40),
                done(read, 50, 60, Answer::Total(at_read)),
            ];
            let aftermath = Aftermath {
                lives: vec![],
                named: vec![(name(), at_the_end)],
            };
            judge(None, &History { operations }, &aftermath).findings
        };
        assert_eq!(judged(1, 1), []);
        assert_eq!(judged(5, 1).len(), 1);
        assert_eq!(judged(1, 0).len(), 1);
    }

    #[test]
    fn bounds_hold_in_every_read() {
        let operations = vec![insert(1, 1, 10, 20), read(seen(1, 1, 100), 30, 40)];
        let aftermath = Aftermath {
            lives: vec![Seen {
                key: 1,
                life: 1,
                total: 100,
            }],
            named: vec![],
        };
        let history = History { operations };
        assert_eq!(judge(Some(0..=100), &history, &aftermath).findings, []);
        let beyond = judge(Some(0..=99), &history, &aftermath).findings;
        let is_beyond = |finding: &Finding| matches!(finding, Finding::BeyondBounds { .. });
        assert!(
            beyond.len() == 2 && beyond.iter().all(is_beyond),
            "{beyond:?}"
        );
    }

    #[test]
    fn an_outcome_has_to_be_told() {
        for (kind, unknown, is_wrong) in [
            ("ConflictPersisted", false, false),
            ("OutcomeUnknown", true, true),
            ("Diesel", false, true),
        ] {
            let mut refused = count(1, 5, 30, 40);
            let error = Refused {
                unknown,
                kind: kind.into(),
                text: String::new(),
            };
            refused.outcome = match unknown {
                true => Outcome::Unknown(Some(error)),
                false => Outcome::Failed(error),
            };
            let found = findings(vec![insert(1, 1, 10, 20), refused], &[(1, 1, 100)]);
            assert_eq!(!found.is_empty(), is_wrong, "{kind}: {found:?}");
        }
    }
}
