//! The lives of a history: where each row was, and the changes that fell on it.

use crate::checker::{Add, Changes, Finding, Set};
use crate::history::{Moment, Outcome};
use crate::lives::{Answer, History, Operation};

/// A row from its insert to its delete.
pub(super) struct Life {
    pub(super) number: i64,
    pub(super) base: i64,
    pub(super) changes: Changes,
    /// Its stays under one key after the other.
    pub(super) stays: Vec<Stay>,
    /// Its last total, if it is known.
    pub(super) end: Option<i64>,
}

/// A life under one key.
pub(super) struct Stay {
    pub(super) key: i64,
    pub(super) came: Span,
    /// [`END`] if it never left.
    pub(super) left: Span,
}

/// The time between the beginning of an operation and its end.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub(super) began: Moment,
    pub(super) ended: Moment,
}

/// The span after everything.
pub(super) const END: Span = Span {
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
    pub(super) fn is_alive(&self, meanwhile: Span) -> bool {
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
pub(super) struct Lives(pub(super) Vec<Life>);

impl Lives {
    /// Collects the lives. Reports deletes and renames of rows that cannot have been there.
    pub(super) fn of(history: &History, findings: &mut Vec<Finding>) -> Self {
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

    pub(super) fn may_be_at(&self, key: i64, meanwhile: Span) -> Vec<usize> {
        let lives = self.0.iter().enumerate();
        let there = lives.filter(|(_, life)| life.may_be_at(key, meanwhile));
        there.map(|(n, _)| n).collect()
    }

    /// Whether a life was under this key all along.
    pub(super) fn is_at(&self, key: i64, meanwhile: Span) -> bool {
        let stays = self.0.iter().flat_map(|life| &life.stays);
        stays
            .into_iter()
            .any(|stay| stay.key == key && stay.is_all_along(meanwhile))
    }

    /// Adds an amount to the life on which it fell, or to all on which it may have fallen. Returns whether there is one.
    pub(super) fn add(&mut self, key: i64, amount: i64, meanwhile: Span) -> bool {
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

    /// Sets the total of the same lives to which [`add`](Self::add) would add.
    pub(super) fn set(&mut self, key: i64, value: i64, meanwhile: Span) -> bool {
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

pub(super) type Done = crate::history::Done<Operation, Answer>;

pub(super) fn span(done: &Done) -> Span {
    Span {
        began: done.began,
        ended: done.ended,
    }
}

/// Names an operation by its place in the logs.
pub(super) fn at(done: &Done) -> String {
    done.at(done.operation.name())
}
