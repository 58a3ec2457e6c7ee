//! Whether one counter could have given these answers: an exhaustive search for an order in which each answer is right, and in which an
//! operation that ended before another began comes first. After Wing and Gong, "Testing and Verifying Concurrent Objects" (1993).

use std::ops::Range;

/// What is asked of a counter, with an amount or a total.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Get,
    /// Keeps this many shards.
    Fold(u16),
    Add(i64),
    Combined(i64),
    AddAndGet(i64),
    Within(i64),
    WithinAndGet(i64),
    UpTo(i64),
    Set(i64),
    Reset,
    /// With the one idempotency key of the history.
    ByKey(&'static Operation),
}

use Operation::*;

/// The answer where bounds leave no total to tell, or where the key stands for another request.
pub const REFUSED: i64 = -1;

/// No bound.
pub const ENDLESS: i64 = i64::MAX / 2;

/// The counter in the hands of one thread. Increments within bounds never take it below 0, or above `most`.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    pub total: i64,
    pub most: i64,
    key: Option<&'static Operation>,
}

impl Model {
    pub const fn new(total: i64, most: i64) -> Self {
        let key = None;
        Model { total, most, key }
    }

    fn answer(&mut self, operation: Operation) -> i64 {
        let (total, answer) = match operation {
            Get => (self.total, self.total),
            Fold(_) => (self.total, 0),
            Add(n) | Combined(n) => (self.total + n, 1),
            Within(n) if self.part(n) == n => (self.total + n, 1),
            Within(_) => (self.total, 0),
            UpTo(n) => (self.total + self.part(n), self.part(n)),
            Set(total) => (total, 1),
            Reset => (0, 1),
            ByKey(request) => return self.answer_once(request),
            AddAndGet(_) | WithinAndGet(_) => unreachable!("each is two events"),
        };
        self.total = total;
        answer
    }

    /// What the bounds refuse leaves the key free.
    fn answer_once(&mut self, request: &'static Operation) -> i64 {
        if let Some(first) = self.key {
            return if first == request { 1 } else { REFUSED };
        }
        let answer = self.answer(*request);
        self.key = Some(request).filter(|_| answer == 1);
        answer
    }

    /// How much of `n` the bounds allow. A total out of bounds may move back.
    fn part(&self, n: i64) -> i64 {
        match n < 0 {
            true => n.max((-self.total).min(0)),
            false => n.min((self.most - self.total).max(0)),
        }
    }
}

/// An operation, its answer, and the ticks of the threads' common clock before and after.
pub type Event = (Operation, i64, Range<u64>);

/// Whether some order explains the events of these threads, each in its own order.
pub fn is_explained(model: Model, threads: &[&[Event]]) -> bool {
    let next = threads.iter().filter_map(|events| events.first());
    let Some(first_end) = next.map(|(.., span)| span.end).min() else {
        return true;
    };
    (0..threads.len()).any(|thread| {
        let (mut model, mut threads) = (model, threads.to_vec());
        let next = threads[thread].split_off_first();
        next.is_some_and(|(operation, answer, span)| {
            span.start < first_end
                && model.answer(*operation) == *answer
                && is_explained(model, &threads)
        })
    })
}

#[test]
fn wrong_answers_are_not_explained() {
    #[rustfmt::skip]
    let right = [
        (Add(2), 1), (Within(2), 0), (ByKey(&Within(4)), 0), (ByKey(&Within(1)), 1), (ByKey(&Within(1)), 1),
        (ByKey(&Within(-1)), REFUSED), (Get, 6), (UpTo(-9), -6), (Set(8), 1), (UpTo(1), 0), (Within(-1), 1), (Reset, 1),
        (Combined(4), 1), (Fold(0), 0), (Get, 4),
    ];
    for wrong in 0..right.len() {
        let explained = [-1, 0, 1].map(|by| {
            let mut told = right;
            told[wrong].1 += by;
            // Two threads take turns.
            let events = (0..)
                .zip(told)
                .map(|(at, (of, answer))| (of, answer, 2 * at..2 * at + 1));
            let (one, other): (Vec<_>, Vec<_>) = events.partition(|(.., span)| span.start % 4 == 0);
            is_explained(Model::new(3, 6), &[&one, &other])
        });
        assert_eq!(explained, [false, true, false], "{:?}", right[wrong]);
    }
}

#[test]
fn only_what_ran_together_may_change_places() {
    for (set_ended, totals) in [(1, vec![6]), (4, vec![1, 6]), (12, vec![1, 6, 8])] {
        let is_explained = |total: &i64| {
            let set = [(Set(1), 1, 0..set_ended)];
            let add = [(Add(5), 1, 2..3), (Get, *total, 10..11)];
            is_explained(Model::new(3, 6), &[&set, &add])
        };
        let explained: Vec<i64> = (0..10).filter(is_explained).collect();
        assert_eq!(explained, totals);
    }
}
