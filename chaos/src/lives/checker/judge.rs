//! The checks of a history of lives.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::Serialize;

use super::life::{END, Lives, Span, at, span};
use crate::checker::{Add, Changes, Eras, Finding, Judgement, Set, TOLD};
use crate::history::Outcome;
use crate::lives::{Answer, History, Operation, Seen};

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
            findings.push(Finding::NotThere { at: at(done), key });
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
        findings.push(Finding::WrongSum {
            grown,
            acknowledged,
        });
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
        eras.judge(|| at(done), name, began_and_ended, *value, findings);
    }
    for (name, end) in &aftermath.named {
        let changes = named.get(name.as_str()).unwrap_or(&none);
        changes.judge_end(name, 0, *end, findings);
    }
    reads
}
