//! Judges a history of lives.
//!
//! Nothing is killed or cut here, so every operation tells its outcome. Only one thing can be unknown: the life on which a count fell,
//! if the count overlapped the end of one life and the beginning of another.
//!
//! - *Where a life is.* A life may be under a key from the moment when its insert, or a rename to that key, began. It may be there until
//!   its delete, or a rename to another key, has ended. It is certainly there from the end of the former to the beginning of the latter.
//! - *Counts.* An acknowledged count fell on a life that may have been under its key meanwhile. If there is only one such life, the count
//!   is in that life's total from then on, whatever its key. If there are several, it may be in any of them. If there is none, the
//!   acknowledgement was wrong. Sets and repairs begin eras by the same rule.
//! - *Reads* have to fit the eras of their life, as in [`crate::checker`]. So do the totals that deletes and renames return.
//! - *The end of a life.* A life's last total, at its delete or at the end of the round, is the sum of its first total, the counts that
//!   certainly fell on it, and some of those that may have.
//! - *The sum.* Where nothing is set, all lives together have grown by the acknowledged amounts: each count fell on exactly one life. So
//!   no count is lost or doubled between two lives.
//! - *Not there.* An operation reports a missing row only if the row was missing at some moment meanwhile. A read returns every life that
//!   is certainly there, and none that cannot be there.
//! - *Named counters* read 0 after a delete, as if they were set to 0.
//! - *Bounds* hold in every read.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::Serialize;

use super::{Answer, History, Operation, Seen};
use crate::checker::{Add, Changes, Eras, Finding, Judgement, Rule, Set, TOLD, UNCLASSIFIED, find};
use crate::history::{Moment, Outcome};

/// The state of the database after all clients have stopped.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Aftermath {
    pub lives: Vec<Seen>,
    pub named: Vec<(String, i64)>,
}

/// Judges a history, with the state at its end. All counts keep every row within `bounds`.
pub fn judge(
    bounds: Option<RangeInclusive<i64>>,
    history: &History,
    aftermath: &Aftermath,
) -> Judgement {
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
                let add = |changes: &mut Changes, ended: Option<Moment>| {
                    changes.adds.push(Add {
                        amount: *n,
                        began: done.began,
                        ended,
                        happened: ended.is_some(),
                    });
                };
                (*key, lives.change(*key, meanwhile, add))
            }
            (
                Operation::Set { key, total } | Operation::Repair { key, total },
                Answer::Rows(1..),
            ) => {
                let set = |changes: &mut Changes, ended| {
                    changes.sets.push(Set {
                        value: *total,
                        began: done.began,
                        ended,
                    });
                };
                (*key, lives.change(*key, meanwhile, set))
            }
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
            not_elsewhere(findings, &done.at(), key);
        }
    }
    judge_absences(history, &lives, findings);
    let views = views_of(history, &lives, aftermath, findings);
    judgement.reads = views.len();
    for (n, life) in lives.0.iter_mut().enumerate() {
        let of_it = views.iter().filter(|view| view.life == n);
        let eras = Eras::of(life.base, &life.changes);
        let name = format!("life {}", life.number);
        for View {
            at,
            meanwhile,
            value,
            ..
        } in of_it
        {
            let Span { began, ended } = *meanwhile;
            eras.judge(|| at.clone(), &name, (began, ended), *value, findings);
            let are_broken = |bounds: &RangeInclusive<_>| !bounds.contains(value);
            if bounds.as_ref().is_some_and(are_broken) {
                let text = format!("{at}: {name} is {value}, outside the bounds of all counts");
                find(findings, Rule::Bounds, text);
            }
        }
        let left = aftermath.lives.iter().find(|seen| seen.life == life.number);
        life.end = life.end.or(left.map(|seen| seen.total));
        if let Some(end) = life.end {
            life.changes.judge_end(&name, life.base, end, findings);
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
            // A read is Diesel's own query.
            Outcome::Failed(_) if matches!(done.operation, Operation::Read { .. }) => continue,
            Outcome::Failed(refused) | Outcome::Unknown(Some(refused)) => refused.to_string(),
            Outcome::Unknown(None) => "it did not end".to_owned(),
        };
        find(
            findings,
            Rule::Errors,
            format!("{}: {UNCLASSIFIED}: {error}", done.at()),
        );
    }
}

fn not_elsewhere(findings: &mut Vec<Finding>, at: &str, key: i64) {
    let text = format!("{at}: row {key} is there and cannot be");
    find(findings, Rule::NotElsewhere, text);
}

fn is_there(findings: &mut Vec<Finding>, at: &str, key: i64) {
    let text = format!("{at}: row {key} is missing and was there all along");
    find(findings, Rule::There, text);
}

/// Reports operations that wrongly found no row.
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
                    continue; // the new key may be taken
                }
                *from
            }
            _ => continue,
        };
        if lives.is_at(key, meanwhile) {
            is_there(findings, &done.at(), key);
        }
    }
}

/// A life's total in one read or answer.
struct View {
    at: String,
    meanwhile: Span,
    /// The index of the life.
    life: usize,
    value: i64,
}

/// Collects the totals of all reads and answers. Reports rows that cannot be there, and rows that are there and missing.
fn views_of(
    history: &History,
    lives: &Lives,
    aftermath: &Aftermath,
    findings: &mut Vec<Finding>,
) -> Vec<View> {
    let mut views = vec![];
    let mut look = |at: &str, meanwhile: Span, seen: &[Seen], all: Option<(i64, i64)>| {
        for seen in seen {
            let there = lives.may_be_at(seen.key, meanwhile);
            let mut there = there.into_iter();
            match there.find(|n| lives.0[*n].number == seen.life) {
                Some(life) => views.push(View {
                    at: at.to_owned(),
                    meanwhile,
                    life,
                    value: seen.total,
                }),
                None => not_elsewhere(findings, at, seen.key),
            }
        }
        let Some((first, last)) = all else {
            return;
        };
        for life in &lives.0 {
            let key = life.stays.last().map_or(first, |stay| stay.key);
            let is_shown = seen.iter().any(|seen| seen.life == life.number);
            if !is_shown && life.is_alive(meanwhile) && (first..=last).contains(&key) {
                is_there(findings, at, key);
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
        look(&done.at(), span(done), seen, all);
    }
    let everywhere = Some((i64::MIN, i64::MAX));
    look("at the end", END, &aftermath.lives, everywhere);
    views
}

/// Checks that every count fell on exactly one life.
fn judge_sum(lives: &Lives, acknowledged: i64, findings: &mut Vec<Finding>) {
    if lives.0.iter().any(|life| !life.changes.sets.is_empty()) {
        return;
    }
    let grown = lives.0.iter().map(|life| Some(life.end? - life.base));
    // Another check reports a life without an end.
    if let Some(grown) = grown.sum::<Option<i64>>()
        && grown != acknowledged
    {
        let acknowledged = format!("where {acknowledged} was acknowledged");
        let text = format!("all lives together have grown by {grown}, {acknowledged}");
        find(findings, Rule::RightSum, text);
    }
}

/// Checks the named counters, and returns the number of reads.
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
        let began_and_ended = (done.began, done.ended);
        eras.judge(|| done.at(), name, began_and_ended, *value, findings);
    }
    for (name, end) in &aftermath.named {
        let changes = named.get(name.as_str()).unwrap_or(&none);
        changes.judge_end(name, 0, *end, findings);
    }
    reads
}

/// A row from its insert to its delete.
struct Life {
    number: i64,
    base: i64,
    changes: Changes,
    /// Its stays under one key after the other.
    stays: Vec<Stay>,
    /// Its last total, if it is known.
    end: Option<i64>,
}

/// A life under one key.
struct Stay {
    key: i64,
    came: Span,
    /// [`END`] if it never left.
    left: Span,
}

/// The time between the beginning of an operation and its end.
#[derive(Clone, Copy)]
struct Span {
    began: Moment,
    ended: Moment,
}

/// The span after everything.
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

    /// Whether the life was there all along, under any key.
    fn is_alive(&self, meanwhile: Span) -> bool {
        let (Some(first), Some(last)) = (self.stays.first(), self.stays.last()) else {
            return false;
        };
        let whole = Stay {
            came: first.came,
            ..*last
        };
        whole.is_all_along(meanwhile)
    }
}

/// The lives of a history, in the order in which they began.
struct Lives(Vec<Life>);

impl Lives {
    /// Collects the lives. Reports deletes and renames of rows that cannot have been there.
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
                    not_elsewhere(findings, &done.at(), from);
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

    /// Whether a life was under this key all along.
    fn is_at(&self, key: i64, meanwhile: Span) -> bool {
        let stays = self.0.iter().flat_map(|life| &life.stays);
        let mut there = stays.filter(|stay| stay.key == key);
        there.any(|stay| stay.is_all_along(meanwhile))
    }

    /// Changes the life on which an operation fell, or all on which it may have fallen; with the moment by which that had certainly
    /// happened. Returns whether there is one.
    fn change(
        &mut self,
        key: i64,
        meanwhile: Span,
        change: impl Fn(&mut Changes, Option<Moment>),
    ) -> bool {
        let there = self.may_be_at(key, meanwhile);
        let ended = (there.len() == 1).then_some(meanwhile.ended);
        for n in &there {
            change(&mut self.0[*n].changes, ended);
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
