//! Spans and events.

use std::future::Future;
use std::time::Duration;

use diesel::result::Error as DieselError;
use tracing::Span;
use tracing::field::Empty;
use tracing::instrument::{Instrument, Instrumented};
use tracing::level_filters::LevelFilter;

use super::labels::{backend_of, conflict_of, kind_of, outcome_of};
use super::span_names::{
    ATTEMPT, CACHE_FAILED, CACHE_LEFT_OUT, CONFLICT, CONFLICT_OF_BATCH, FAILED, FLUSH, FOLD,
    FOLDED, FOLDER_FAILED, LOST, STATEMENT, TARGET, TRANSACTION, UPDATE,
};
use super::work::Work;
use crate::backend::Dialect;
use crate::conflict::Conflict;

/// Something that takes time.
#[derive(Debug, Clone)]
pub(crate) struct Scope(Span);

impl Scope {
    /// A step of it.
    #[inline]
    pub(crate) fn within<F: Future>(&self, step: F) -> Instrumented<F> {
        step.instrument(self.0.clone())
    }

    /// A step of it that blocks.
    #[inline]
    pub(crate) fn block<T>(&self, step: impl FnOnce() -> T) -> T {
        let _entered = self.0.enter();
        step()
    }
}

/// Whether any subscriber may be there: without one, nothing more is looked at.
#[inline]
fn is_listened_to() -> bool {
    LevelFilter::current() != LevelFilter::OFF
}

/// The spans of a counting update.
#[derive(Debug)]
pub(super) struct UpdateSpans {
    table: &'static str,
    update: Span,
    attempt: Span,
    statement: Span,
    shard: i32,
    /// The last conflict.
    conflict: Option<Conflict>,
}

impl UpdateSpans {
    #[inline]
    pub(super) fn begin(dialect: Dialect, table: &'static str) -> Self {
        UpdateSpans {
            table,
            update: tracing::info_span!(
                target: TARGET,
                UPDATE,
                backend = backend_of(dialect),
                table,
                attempts = Empty,
                conflict = Empty,
                rows = Empty,
                outcome = Empty,
            ),
            attempt: Span::none(),
            statement: Span::none(),
            shard: 0,
            conflict: None,
        }
    }

    #[inline]
    pub(super) fn attempt(&mut self, number: u32, shard: i32) {
        if is_listened_to() {
            self.shard = shard;
            self.attempt = tracing::debug_span!(
                target: TARGET,
                parent: &self.update,
                ATTEMPT,
                attempt = number,
                shard,
                conflict = Empty,
            );
        }
    }

    #[inline]
    pub(super) fn probe(&mut self, kind: &'static str, shard: i32) -> Scope {
        if is_listened_to() {
            self.shard = shard;
            self.statement = self.statement(kind, &self.update);
        }
        Scope(self.statement.clone())
    }

    #[inline]
    pub(super) fn step(&mut self, kind: &'static str) -> Scope {
        if is_listened_to() {
            self.statement = self.statement(kind, &self.attempt);
        }
        Scope(self.statement.clone())
    }

    fn statement(&self, kind: &'static str, parent: &Span) -> Span {
        tracing::debug_span!(
            target: TARGET,
            parent: parent,
            STATEMENT,
            kind,
            table = self.table,
            shard = self.shard,
            rows = Empty,
        )
    }

    #[inline]
    pub(super) fn stepped(&mut self, rows: Option<usize>, error: Option<&DieselError>) {
        if is_listened_to() {
            if let Some(rows) = rows {
                self.statement.record("rows", rows as u64);
            }
            if let Some(error) = error {
                // The database's text may quote a key.
                tracing::debug!(target: TARGET, parent: &self.statement, %error, "{FAILED}");
            }
            self.statement = Span::none();
        }
    }

    #[inline]
    pub(super) fn failed(
        &mut self,
        attempt: u32,
        conflict: Option<Conflict>,
        delay: Option<Duration>,
    ) {
        if is_listened_to() {
            if let Some(conflict) = conflict {
                met(&self.attempt, &self.update, attempt, conflict, delay);
                self.conflict = Some(conflict);
            }
            self.attempt = Span::none();
        }
    }

    #[inline]
    pub(super) fn ended(&mut self, attempts: u32, rows: Option<usize>) {
        if is_listened_to() {
            end(&self.update, attempts, rows.is_some(), self.conflict);
            if let Some(rows) = rows {
                self.update.record("rows", rows as u64);
            }
            self.attempt = Span::none();
        }
    }
}

/// The spans of a transaction, or of other work that is retried as a whole.
#[derive(Debug)]
pub(super) struct TransactionSpans {
    transaction: Span,
    attempt: Span,
    /// The last conflict.
    conflict: Option<Conflict>,
}

impl TransactionSpans {
    #[inline]
    pub(super) fn begin(dialect: Dialect, work: Work) -> Self {
        TransactionSpans {
            transaction: tracing::info_span!(
                target: TARGET,
                TRANSACTION,
                backend = backend_of(dialect),
                kind = kind_of(work),
                attempts = Empty,
                conflict = Empty,
                outcome = Empty,
            ),
            attempt: Span::none(),
            conflict: None,
        }
    }

    #[inline]
    pub(super) fn attempt(&mut self, number: u32) {
        self.attempt = tracing::debug_span!(
            target: TARGET,
            parent: &self.transaction,
            ATTEMPT,
            attempt = number,
            conflict = Empty,
        );
    }

    #[inline]
    pub(super) fn scope(&self) -> Scope {
        match self.attempt.is_disabled() {
            true => Scope(self.transaction.clone()),
            false => Scope(self.attempt.clone()),
        }
    }

    #[inline]
    pub(super) fn failed(
        &mut self,
        attempt: u32,
        conflict: Option<Conflict>,
        delay: Option<Duration>,
    ) {
        if let Some(conflict) = conflict {
            met(&self.attempt, &self.transaction, attempt, conflict, delay);
            self.conflict = Some(conflict);
        }
    }

    #[inline]
    pub(super) fn ended(&mut self, attempts: u32, succeeded: bool) {
        end(&self.transaction, attempts, succeeded, self.conflict);
        self.attempt = Span::none();
    }
}

/// An attempt at an operation met a conflict.
fn met(attempt: &Span, operation: &Span, number: u32, conflict: Conflict, delay: Option<Duration>) {
    let conflict = conflict_of(conflict);
    attempt.record("conflict", conflict);
    tracing::debug!(
        target: TARGET,
        parent: operation,
        attempt = number,
        conflict,
        delay_ms = delay.map(|delay| delay.as_secs_f64() * 1e3),
        "{CONFLICT}"
    );
}

fn end(operation: &Span, attempts: u32, succeeded: bool, conflict: Option<Conflict>) {
    operation.record("attempts", attempts);
    operation.record("outcome", outcome_of(succeeded));
    if let Some(conflict) = conflict {
        operation.record("conflict", conflict_of(conflict));
    }
}

#[inline]
pub(super) fn fold(dialect: Dialect, table: &str, parents: usize) -> Scope {
    let backend = backend_of(dialect);
    Scope(tracing::info_span!(target: TARGET, FOLD, backend, table, parents))
}

#[inline]
pub(super) fn folded(parents: usize, shards: usize, removed: usize) {
    tracing::info!(target: TARGET, parents, shards, removed, "{FOLDED}");
}

#[inline]
pub(super) fn folder_failed(table: &'static str) {
    tracing::warn!(target: TARGET, table, "{FOLDER_FAILED}");
}

#[inline]
pub(super) fn flush(counters: usize, callers: usize) -> Scope {
    Scope(tracing::info_span!(target: TARGET, FLUSH, counters, callers))
}

#[inline]
pub(super) fn flush_conflict(dialect: Dialect, conflict: Conflict) {
    let (backend, conflict) = (backend_of(dialect), conflict_of(conflict));
    tracing::debug!(target: TARGET, backend, conflict, "{CONFLICT_OF_BATCH}");
}

#[inline]
pub(super) fn lost() {
    tracing::error!(target: TARGET, "{LOST}");
}

#[inline]
pub(super) fn cache_left_out() {
    tracing::warn!(target: TARGET, "{CACHE_LEFT_OUT}");
}

#[inline]
pub(super) fn cache_failed(error: &dyn std::fmt::Display) {
    tracing::debug!(target: TARGET, %error, "{CACHE_FAILED}");
}

/// Whether a subscriber got the warning.
pub(super) fn warned(text: &'static str, table: &'static str, shards: u16) -> bool {
    let listened = tracing::event_enabled!(target: TARGET, tracing::Level::WARN);
    if listened {
        tracing::warn!(target: TARGET, table, shards, "{text}");
    }
    listened
}
