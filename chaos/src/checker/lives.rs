//! Where each life is: the row of a life may be inserted, deleted and renamed while others count on it.
//!
//! A life may be at an id from the moment when its insert, or a rename to that id, began. It may be there until its delete, or a rename to
//! another id, has ended. It is certainly there from the end of the former to the beginning of the latter.

use super::{Course, Finding, Rule, find};
use crate::history::{Done, History, Moment, Outcome, Span};
use crate::operation::{Answer, Counter, Operation, Totals};

/// A row from its insert to its delete.
pub(super) struct Life<'h> {
    pub(super) number: i64,
    pub(super) course: Course<'h>,
    /// Its stays at one id after the other.
    stays: Vec<Stay>,
}

/// A life at one id.
struct Stay {
    row: i64,
    came: Span,
    /// [`Span::END`] if it never left.
    left: Span,
}

impl Stay {
    fn at(row: i64, came: Span) -> Self {
        let left = Span::END;
        Stay { row, came, left }
    }

    fn may_be(&self, meanwhile: Span) -> bool {
        !meanwhile.is_before(self.came) && !self.left.is_before(meanwhile)
    }

    fn is_all_along(&self, meanwhile: Span) -> bool {
        self.came.is_before(meanwhile)
            && (meanwhile.is_before(self.left) || self.left.ended == Moment::MAX)
    }
}

impl Life<'_> {
    fn may_be_at(&self, row: i64, meanwhile: Span) -> bool {
        let mut stays = self.stays.iter();
        stays.any(|stay| stay.row == row && stay.may_be(meanwhile))
    }

    /// The last id, if the life was there all along.
    pub(super) fn is_alive(&self, meanwhile: Span) -> Option<i64> {
        let (first, last) = (self.stays.first()?, self.stays.last()?);
        let whole = Stay {
            came: first.came,
            ..*last
        };
        whole.is_all_along(meanwhile).then_some(last.row)
    }
}

/// The lives of a history, in the order in which they began.
pub(super) struct Lives<'h>(pub(super) Vec<Life<'h>>);

impl<'h> Lives<'h> {
    /// Collects the lives. Reports deletes and renames of rows that cannot have been there.
    pub(super) fn of(history: &History, findings: &mut Vec<Finding>) -> Self {
        let mut lives = Lives(vec![]);
        for done in &history.operations {
            let (from, to, totals) = match (&done.operation, &done.outcome) {
                (Operation::Insert { row, life, total }, Outcome::Ok(Answer::Rows(1))) => {
                    lives.0.push(Life {
                        number: *life,
                        course: Course::of(*total),
                        stays: vec![Stay::at(*row, done.span)],
                    });
                    continue;
                }
                (Operation::Delete { row }, Outcome::Ok(Answer::Totals(totals))) => {
                    (*row, None, totals)
                }
                (Operation::Rename { from, to }, Outcome::Ok(Answer::Totals(totals))) => {
                    (*from, Some(*to), totals)
                }
                _ => continue,
            };
            if lives.leave(done, from, to, totals).is_none() {
                not_elsewhere(findings, &done.at(), &Counter::Views(from));
            }
        }
        lives
    }

    /// Ends the stay of a life at an id.
    fn leave(&mut self, done: &Done, from: i64, to: Option<i64>, totals: &Totals) -> Option<()> {
        for (counter, total) in totals {
            let mut lives = self.0.iter_mut();
            let life = lives.find(|life| is_of(counter, life.number) && life.course.end.is_none());
            let life = life?;
            let last = life.stays.last_mut().filter(|stay| stay.row == from)?;
            last.left = done.span;
            match to {
                None => life.course.end = Some(*total),
                Some(to) => life.stays.push(Stay::at(to, done.span)),
            }
        }
        Some(())
    }

    /// The life with this number, if it may have been at this id meanwhile.
    pub(super) fn find(&mut self, number: i64, row: i64, at: Span) -> Option<&mut Life<'h>> {
        let mut lives = self.0.iter_mut();
        lives.find(|life| life.number == number && life.may_be_at(row, at))
    }

    /// All lives that may have been at this id meanwhile.
    pub(super) fn at(&mut self, row: i64, meanwhile: Span) -> Vec<&mut Course<'h>> {
        let lives = self.0.iter_mut();
        let there = lives.filter(|life| life.may_be_at(row, meanwhile));
        there.map(|life| &mut life.course).collect()
    }

    /// Whether a life was at this id all along.
    pub(super) fn is_at(&self, row: i64, meanwhile: Span) -> bool {
        let stays = self.0.iter().flat_map(|life| &life.stays);
        let mut there = stays.filter(|stay| stay.row == row);
        there.any(|stay| stay.is_all_along(meanwhile))
    }

    /// Whether a life may have been at this id meanwhile.
    pub(super) fn may_be_at(&self, row: i64, meanwhile: Span) -> bool {
        let mut lives = self.0.iter();
        lives.any(|life| life.may_be_at(row, meanwhile))
    }
}

fn is_of(counter: &Counter, life: i64) -> bool {
    matches!(counter, Counter::Life { number, .. } if *number == life)
}

pub(super) fn not_elsewhere(findings: &mut Vec<Finding>, at: &str, counter: &Counter) {
    let text = format!("{at}: {counter} is there and cannot be");
    find(findings, Rule::NotElsewhere, text);
}

pub(super) fn is_there(findings: &mut Vec<Finding>, at: &str, row: i64) {
    let text = format!("{at}: row {row} is missing and was there all along");
    find(findings, Rule::There, text);
}
