//! Operations that are retried: counting updates, and transactions.

use std::time::Duration;

use diesel::result::{Error as DieselError, QueryResult};

use super::metrics::{Keys, TransactionMetrics, UpdateMetrics};
use super::spans::{Scope, TransactionSpans, UpdateSpans};
use super::work::Work;
use crate::backend::Dialect;
use crate::conflict::Conflict;

/// Observes an operation that is retried.
pub(crate) trait Observer {
    /// The next step is of this kind, and runs in the scope.
    fn step(&mut self, kind: &'static str) -> Scope;

    /// The step ended, with this error if it failed.
    fn stepped(&mut self, error: Option<&DieselError>);

    /// The attempt of this number failed by a conflict, or for another reason. The next one follows after `delay`, if there is one.
    fn failed(&mut self, attempt: u32, conflict: Option<Conflict>, delay: Option<Duration>);

    /// The operation ended after so many attempts.
    fn ended(&mut self, attempts: u32, succeeded: bool);
}

/// Observes a counting update.
pub(crate) trait CountObserver: Observer {
    /// The next step is a statement of this kind before the attempt, whose shard depends on it.
    fn probe(&mut self, kind: &'static str, shard: i32) -> Scope;

    /// The attempt of this number begins.
    fn attempt(&mut self, number: u32, shard: i32);

    /// The statement ended: it met so many rows, or failed.
    fn sent(&mut self, outcome: &QueryResult<usize>);

    /// The attempt created so many shards.
    fn created(&mut self, shards: usize);

    /// The update counted so many rows.
    fn counted(&mut self, rows: usize);
}

/// A counting update while it runs.
#[derive(Debug)]
pub(crate) struct Update {
    spans: UpdateSpans,
    metrics: UpdateMetrics,
    rows: usize,
}

impl Update {
    #[inline]
    pub(crate) fn begin(dialect: Dialect, table: &'static str, keys: Keys) -> Self {
        Update {
            spans: UpdateSpans::begin(dialect, table),
            metrics: UpdateMetrics::begin(dialect, table, keys),
            rows: 0,
        }
    }
}

impl Observer for Update {
    #[inline]
    fn step(&mut self, kind: &'static str) -> Scope {
        self.spans.step(kind)
    }

    #[inline]
    fn stepped(&mut self, error: Option<&DieselError>) {
        self.spans.stepped(None, error);
    }

    #[inline]
    fn failed(&mut self, attempt: u32, conflict: Option<Conflict>, delay: Option<Duration>) {
        self.spans.failed(attempt, conflict, delay);
        self.metrics.failed(conflict);
    }

    #[inline]
    fn ended(&mut self, attempts: u32, succeeded: bool) {
        self.spans.ended(attempts, succeeded.then_some(self.rows));
        self.metrics.ended(attempts, succeeded);
    }
}

impl CountObserver for Update {
    #[inline]
    fn probe(&mut self, kind: &'static str, shard: i32) -> Scope {
        self.spans.probe(kind, shard)
    }

    #[inline]
    fn attempt(&mut self, number: u32, shard: i32) {
        self.spans.attempt(number, shard);
    }

    #[inline]
    fn sent(&mut self, outcome: &QueryResult<usize>) {
        self.spans
            .stepped(outcome.as_ref().ok().copied(), outcome.as_ref().err());
    }

    #[inline]
    fn created(&mut self, shards: usize) {
        self.metrics.created(shards);
    }

    #[inline]
    fn counted(&mut self, rows: usize) {
        self.rows = rows;
    }
}

/// A transaction while it runs, or other work that is retried as a whole. Its steps run in the scope of their attempt.
#[derive(Debug)]
pub(crate) struct Transaction {
    spans: TransactionSpans,
    metrics: TransactionMetrics,
}

impl Transaction {
    #[inline]
    pub(crate) fn begin(dialect: Dialect, work: Work) -> Self {
        Transaction {
            spans: TransactionSpans::begin(dialect, work),
            metrics: TransactionMetrics::begin(dialect, work),
        }
    }

    /// The attempt of this number begins.
    #[inline]
    pub(crate) fn attempt(&mut self, number: u32) {
        self.spans.attempt(number);
    }

    /// The scope of the attempt.
    #[inline]
    pub(crate) fn scope(&self) -> Scope {
        self.spans.scope()
    }
}

impl Observer for Transaction {
    #[inline]
    fn step(&mut self, _: &'static str) -> Scope {
        self.spans.scope()
    }

    #[inline]
    fn stepped(&mut self, _: Option<&DieselError>) {}

    #[inline]
    fn failed(&mut self, attempt: u32, conflict: Option<Conflict>, delay: Option<Duration>) {
        self.spans.failed(attempt, conflict, delay);
        self.metrics.failed(conflict);
    }

    #[inline]
    fn ended(&mut self, attempts: u32, succeeded: bool) {
        self.spans.ended(attempts, succeeded);
        self.metrics.ended(attempts, succeeded);
    }
}
