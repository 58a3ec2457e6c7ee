//! Operations that are retried: counting updates, and transactions.

use std::time::Duration;

use diesel::result::{Error as DieselError, QueryResult};

use super::sinks::{self, Empty, Scope, Span, is_listened_to};
use crate::backend::Dialect;
use crate::conflict::Conflict;
use crate::model::ShardedTable;

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

    /// The next step is a statement of this kind before the attempt, whose shard depends on it.
    fn probe(&mut self, kind: &'static str, _shard: i32) -> Scope {
        self.step(kind)
    }

    /// The attempt of this number at a counting update begins.
    fn attempt(&mut self, _number: u32, _shard: i32) {}

    /// A statement of a counting update ended: it met so many rows, or failed.
    fn sent(&mut self, _outcome: &QueryResult<usize>) {}

    /// The attempt created so many shards.
    fn created(&mut self, _shards: usize) {}

    /// The update counted so many rows.
    fn counted(&mut self, _rows: usize) {}
}

/// The spans of an operation and of its attempt.
#[derive(Debug)]
struct Spans {
    operation: Span,
    attempt: Span,
    /// The last conflict.
    conflict: Option<Conflict>,
}

impl Spans {
    #[inline]
    fn of(operation: Span) -> Self {
        Spans {
            operation,
            attempt: Span::none(),
            conflict: None,
        }
    }

    #[inline]
    fn failed(&mut self, attempt: u32, conflict: Option<Conflict>, delay: Option<Duration>) {
        if let Some(conflict) = conflict {
            self.conflict = Some(conflict);
            let conflict = conflict_of(conflict);
            self.attempt.record("conflict", conflict);
            event!(
                CONFLICT in &self.operation,
                attempt = attempt,
                conflict = conflict,
                delay_ms = delay.map(|delay| delay.as_secs_f64() * 1e3),
            );
        }
    }

    #[inline]
    fn ended(&mut self, attempts: u32, succeeded: bool) {
        self.operation.record("attempts", attempts);
        self.operation.record("outcome", outcome_of(succeeded));
        if let Some(conflict) = self.conflict {
            self.operation.record("conflict", conflict_of(conflict));
        }
        self.attempt = Span::none();
    }
}

/// A counting update while it runs.
#[derive(Debug)]
pub(crate) struct Update {
    dialect: Dialect,
    table: &'static str,
    keys: Keys,
    spans: Spans,
    statement: Span,
    shard: i32,
    rows: usize,
    /// The shards that the attempt created.
    created: usize,
}

impl Update {
    #[inline]
    pub(crate) fn begin(dialect: Dialect, table: &'static str, keys: Keys) -> Self {
        Update {
            dialect,
            table,
            keys,
            spans: Spans::of(span!(
                UPDATE,
                backend = dialect.name(),
                table = table,
                attempts = Empty,
                conflict = Empty,
                rows = Empty,
                outcome = Empty,
            )),
            statement: Span::none(),
            shard: 0,
            rows: 0,
            created: 0,
        }
    }

    fn statement(&self, kind: &'static str, parent: &Span) -> Span {
        span!(
            STATEMENT in parent,
            kind = kind,
            table = self.table,
            shard = self.shard,
            rows = Empty,
        )
    }

    #[inline]
    fn statement_ended(&mut self, rows: Option<usize>, error: Option<&DieselError>) {
        if is_listened_to() {
            if let Some(rows) = rows {
                self.statement.record("rows", rows as u64);
            }
            if let Some(error) = error {
                // The database's text may quote a key.
                event!(FAILED in &self.statement, error = sinks::display(error));
            }
            self.statement = Span::none();
        }
    }
}

impl Observer for Update {
    #[inline]
    fn step(&mut self, kind: &'static str) -> Scope {
        if is_listened_to() {
            self.statement = self.statement(kind, &self.spans.attempt);
        }
        Scope(self.statement.clone())
    }

    #[inline]
    fn stepped(&mut self, error: Option<&DieselError>) {
        self.statement_ended(None, error);
    }

    #[inline]
    fn failed(&mut self, attempt: u32, conflict: Option<Conflict>, delay: Option<Duration>) {
        if is_listened_to() {
            self.spans.failed(attempt, conflict, delay);
            self.spans.attempt = Span::none();
        }
        self.created = 0;
        if let Some(conflict) = conflict {
            count!(
                CONFLICTS += 1,
                backend = self.dialect.name(),
                table = self.table,
                conflict = conflict_of(conflict),
            );
        }
    }

    #[inline]
    fn ended(&mut self, attempts: u32, succeeded: bool) {
        if is_listened_to() {
            self.spans.ended(attempts, succeeded);
            if succeeded {
                self.spans.operation.record("rows", self.rows as u64);
            }
        }
        self.keys.ended(attempts, succeeded);
        if self.created > 0 {
            let backend = self.dialect.name();
            count!(
                SHARDS_CREATED += self.created,
                backend = backend,
                table = self.table
            );
        }
    }

    #[inline]
    fn probe(&mut self, kind: &'static str, shard: i32) -> Scope {
        if is_listened_to() {
            self.shard = shard;
            self.statement = self.statement(kind, &self.spans.operation);
        }
        Scope(self.statement.clone())
    }

    #[inline]
    fn attempt(&mut self, number: u32, shard: i32) {
        if is_listened_to() {
            self.shard = shard;
            self.spans.attempt = span!(
                ATTEMPT in &self.spans.operation,
                attempt = number,
                shard = shard,
                conflict = Empty,
            );
        }
    }

    #[inline]
    fn sent(&mut self, outcome: &QueryResult<usize>) {
        self.statement_ended(outcome.as_ref().ok().copied(), outcome.as_ref().err());
    }

    #[inline]
    fn created(&mut self, shards: usize) {
        self.created += shards;
    }

    #[inline]
    fn counted(&mut self, rows: usize) {
        self.rows = rows;
    }
}

/// A transaction while it runs, or other work that is retried as a whole. Its steps run in the scope of their attempt.
#[derive(Debug)]
pub(crate) struct Transaction {
    dialect: Dialect,
    /// Whose work it is: the application's `closure`, or the crate's `own` transaction, `savepoint`, `statement` or `read`.
    kind: &'static str,
    spans: Spans,
}

impl Transaction {
    pub(crate) fn begin(dialect: Dialect, kind: &'static str) -> Self {
        Transaction {
            dialect,
            kind,
            spans: Spans::of(span!(
                TRANSACTION,
                backend = dialect.name(),
                kind = kind,
                attempts = Empty,
                conflict = Empty,
                outcome = Empty,
            )),
        }
    }

    /// The attempt of this number begins.
    pub(crate) fn attempt(&mut self, number: u32) {
        let operation = &self.spans.operation;
        self.spans.attempt = span!(ATTEMPT in operation, attempt = number, conflict = Empty);
    }

    /// The scope of the attempt.
    pub(crate) fn scope(&self) -> Scope {
        match self.spans.attempt.is_disabled() {
            true => Scope(self.spans.operation.clone()),
            false => Scope(self.spans.attempt.clone()),
        }
    }
}

impl Observer for Transaction {
    fn step(&mut self, _: &'static str) -> Scope {
        self.scope()
    }

    fn stepped(&mut self, _: Option<&DieselError>) {}

    fn failed(&mut self, attempt: u32, conflict: Option<Conflict>, delay: Option<Duration>) {
        self.spans.failed(attempt, conflict, delay);
        if let Some(conflict) = conflict {
            count!(
                TRANSACTION_CONFLICTS += 1,
                backend = self.dialect.name(),
                kind = self.kind,
                conflict = conflict_of(conflict),
            );
        }
    }

    fn ended(&mut self, attempts: u32, succeeded: bool) {
        self.spans.ended(attempts, succeeded);
        let (backend, kind) = (self.dialect.name(), self.kind);
        count!(TRANSACTIONS += 1; { backend = backend, kind = kind, outcome = outcome_of(succeeded) });
        count!(TRANSACTION_ATTEMPTS += attempts; { backend = backend, kind = kind });
    }
}

pub(super) const fn conflict_of(conflict: Conflict) -> &'static str {
    match conflict {
        Conflict::Serialization => "serialization",
        Conflict::Deadlock => "deadlock",
        Conflict::LockTimeout => "lock_timeout",
        Conflict::StatementTimeout => "statement_timeout",
        Conflict::Busy => "busy",
        Conflict::StatementLost => "statement_lost",
        Conflict::ParentGone => "parent_gone",
    }
}

pub(super) const fn outcome_of(succeeded: bool) -> &'static str {
    match succeeded {
        true => "ok",
        false => "error",
    }
}

/// The keys of the metrics of each update of a table in one database, made when the crate is compiled: making one takes as long as a tenth
/// of an update on SQLite in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keys(#[cfg(feature = "metrics")] &'static made::UpdateKeys);

impl Keys {
    #[inline]
    pub(crate) fn of<T: ShardedTable>(dialect: Dialect) -> Self {
        #[cfg(feature = "metrics")]
        return Keys(made::of::<T>(dialect));
        #[cfg(not(feature = "metrics"))]
        {
            unused!(dialect, T::SHARDS_TABLE);
            Keys()
        }
    }

    /// An update ended after so many attempts.
    #[inline]
    pub(super) fn ended(self, attempts: u32, succeeded: bool) {
        #[cfg(feature = "metrics")]
        {
            let Keys(keys) = self;
            sinks::increment(&keys.outcomes[usize::from(succeeded)], 1);
            sinks::increment(&keys.attempts, attempts.into());
        }
        #[cfg(not(feature = "metrics"))]
        unused!(attempts, succeeded);
    }
}

#[cfg(feature = "metrics")]
mod made {
    use std::marker::PhantomData;

    use metrics::{Key, Label};

    use super::outcome_of;
    use crate::backend::Dialect;
    use crate::model::ShardedTable;
    use crate::observe::names::{ATTEMPTS, UPDATES};

    #[derive(Debug)]
    pub(super) struct UpdateKeys {
        /// Of updates that failed, and of those that succeeded.
        pub(super) outcomes: [Key; 2],
        pub(super) attempts: Key,
    }

    pub(super) fn of<T: ShardedTable>(dialect: Dialect) -> &'static UpdateKeys {
        match dialect {
            Dialect::Postgres => KeysOf::<T, { Dialect::Postgres as usize }>::KEYS,
            Dialect::Mysql => KeysOf::<T, { Dialect::Mysql as usize }>::KEYS,
            Dialect::Sqlite => KeysOf::<T, { Dialect::Sqlite as usize }>::KEYS,
        }
    }

    struct KeysOf<T, const DIALECT: usize>(PhantomData<T>);

    impl<T: ShardedTable, const DIALECT: usize> KeysOf<T, DIALECT> {
        const BACKEND: Label =
            Label::from_static_parts("backend", Dialect::ALL[DIALECT].capabilities().name);
        const TABLE: Label = Label::from_static_parts("table", T::SHARDS_TABLE.as_str());
        const LABELS: &'static [Label] = &[Self::BACKEND, Self::TABLE];
        const FAILED: &'static [Label] = &[Self::BACKEND, Self::TABLE, outcome(false)];
        const SUCCEEDED: &'static [Label] = &[Self::BACKEND, Self::TABLE, outcome(true)];
        const KEYS: &'static UpdateKeys = &UpdateKeys {
            outcomes: [
                Key::from_static_parts(UPDATES.name, Self::FAILED),
                Key::from_static_parts(UPDATES.name, Self::SUCCEEDED),
            ],
            attempts: Key::from_static_parts(ATTEMPTS.name, Self::LABELS),
        };
    }

    const fn outcome(succeeded: bool) -> Label {
        Label::from_static_parts("outcome", outcome_of(succeeded))
    }
}
