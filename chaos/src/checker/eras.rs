//! The values that a counter may have, by the changes that happened and those that may have.

use std::fmt::Display;
use std::ops::RangeInclusive;

use super::{Finding, Rule, find};
use crate::history::{Moment, Span};

/// An amount that was added, or may have been.
pub(crate) struct Add {
    pub(crate) amount: i64,
    pub(crate) began: Moment,
    /// The moment by which it had certainly happened. `None`: it may have happened at any time since it began, or never.
    pub(crate) ended: Option<Moment>,
    /// Whether it has certainly happened by the end of the round.
    pub(crate) happened: bool,
}

/// A total that was set, or may have been.
pub(crate) struct Set {
    pub(crate) value: i64,
    pub(crate) began: Moment,
    pub(crate) ended: Option<Moment>,
}

/// The changes of one counter that happened, and those that may have.
#[derive(Default)]
pub(crate) struct Changes {
    pub(crate) adds: Vec<Add>,
    pub(crate) sets: Vec<Set>,
}

impl Changes {
    /// Checks the total at the end of the round of a counter that began with `base`.
    pub(crate) fn judge_end(
        &self,
        counter: &dyn Display,
        base: i64,
        value: i64,
        findings: &mut Vec<Finding>,
    ) {
        if !self.may_end_with(base, value) {
            let acknowledged = self.acknowledged(base);
            let unknown = self.adds.iter().filter(|add| !add.happened).count();
            let text = format!(
                "{counter} ends with {value}, which is not {acknowledged} plus some of {unknown} counts that may be in it"
            );
            find(findings, Rule::RightTotal, text);
        }
    }

    fn may_end_with(&self, base: i64, value: i64) -> bool {
        if !self.sets.is_empty() {
            let eras = Eras::of(base, self);
            return eras.explain(Span::END, value);
        }
        let acknowledged = self.acknowledged(base);
        let unknown = self.adds.iter().filter(|add| !add.happened);
        let unknown: Vec<_> = unknown.map(|add| add.amount).collect();
        is_some_sum_of(&unknown, value - acknowledged)
    }

    /// The sum of `base` and the amounts that were certainly added.
    fn acknowledged(&self, base: i64) -> i64 {
        let certain = self.adds.iter().filter(|add| add.happened);
        base + certain.map(|add| add.amount).sum::<i64>()
    }
}

/// The eras of a counter: its beginning and all its sets, each with the increments after it.
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

    /// The lowest and the highest value that a read meanwhile may return, in each era that may hold then.
    pub(crate) fn bounds(&self, meanwhile: Span) -> Vec<RangeInclusive<i64>> {
        let eras = self.0.iter();
        eras.filter_map(|era| era.bounds(meanwhile)).collect()
    }

    /// Whether a read meanwhile may return this value.
    pub(crate) fn explain(&self, meanwhile: Span, value: i64) -> bool {
        let mut bounds = self.bounds(meanwhile).into_iter();
        bounds.any(|bounds| bounds.contains(&value))
    }
}

/// The time from a set on, or from the beginning of the round.
struct Era {
    value: i64,
    began: Moment,
    /// The moment by which a later set had certainly happened, if there is one.
    over: Option<Moment>,
    /// The amounts that were certainly added after the set, by the moments of their acknowledgement.
    definite: Sums,
    /// These and the amounts that may have been added after the set, by the moments at which they began.
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

    /// The lowest and the highest value that a read meanwhile may return in this era; `None` if the era cannot hold then.
    fn bounds(&self, Span { began, ended }: Span) -> Option<RangeInclusive<i64>> {
        let over = self.over.is_some_and(|over| over < began);
        if over || self.began > ended {
            return None;
        }
        let definite = self.definite.before(began);
        let possible = self.possible.before(ended);
        let value = self.value + definite.sum;
        let lowest = value + (possible.down - definite.down);
        Some(lowest..=value + (possible.up - definite.up))
    }
}

/// Running sums of amounts, in the order of their moments.
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

/// Whether any selection of `amounts`, perhaps an empty one, adds up to `sum`.
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
