//! What the crate tells of what it does: spans and events by `tracing`, numbers by `metrics`.
//!
//! What is told is documented in [`observability`](crate::observability). The rest of the crate calls what stands here whatever the
//! features are; without them it is empty.
#![cfg_attr(
    not(all(feature = "tracing", feature = "metrics")),
    allow(
        unused_variables,
        dead_code,
        reason = "without its feature, nobody is told"
    )
)]

use std::future::Future;
use std::time::{Duration, Instant};

use diesel::result::QueryResult;

use crate::backend::Dialect;
use crate::conflict::Conflict;
use crate::engine::Moved;
use crate::engine::attempt::{CountingAttempt, Plan, Statement, Step};
use crate::model::ShardedTable;
use crate::operation::cached::CacheError;
#[cfg(feature = "metrics")]
use metrics::{Key, Label};
#[cfg(feature = "tracing")]
use tracing::field::Empty;
#[cfg(feature = "tracing")]
use tracing::instrument::Instrument;
#[cfg(feature = "tracing")]
use tracing::level_filters::LevelFilter;

/// A future that runs inside a span.
#[cfg(feature = "tracing")]
pub(crate) type Within<F> = tracing::instrument::Instrumented<F>;
/// The future itself.
#[cfg(not(feature = "tracing"))]
pub(crate) type Within<F> = F;

#[cfg(feature = "metrics")]
macro_rules! count {
    // All of it is known when it is compiled, which costs next to nothing.
    ($name:literal, $by:expr, $label:literal => $value:literal) => {
        metrics::counter!($name, $label => $value).increment($by as u64)
    };
    ($name:literal, $by:expr $(, $label:literal => $value:expr)*) => {
        metrics::counter!($name $(, $label => $value)*).increment($by as u64)
    };
}

#[cfg(feature = "metrics")]
macro_rules! measure {
    ($name:literal, $value:expr $(, $label:literal => $of:expr)*) => {
        metrics::histogram!($name $(, $label => $of)*).record($value)
    };
}

/// Something that takes time.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

impl Scope {
    const NONE: Scope = Scope {
        #[cfg(feature = "tracing")]
        span: tracing::Span::none(),
    };

    /// A step of it.
    #[inline]
    pub(crate) fn within<F: Future>(&self, step: F) -> Within<F> {
        #[cfg(feature = "tracing")]
        let step = step.instrument(self.span.clone());
        step
    }

    /// A step of it that blocks.
    #[inline]
    pub(crate) fn block<T>(&self, step: impl FnOnce() -> T) -> T {
        #[cfg(feature = "tracing")]
        let _entered = self.span.enter();
        step()
    }
}

/// A counting update while it is carried out.
pub(crate) struct Update {
    scope: Scope,
    attempt: Scope,
    statement: Scope,
    /// The statement has a number of rows.
    #[cfg(feature = "tracing")]
    meets_rows: bool,
    #[cfg(feature = "tracing")]
    met: Option<Conflict>,
    /// Shards are being created by the last step.
    #[cfg(feature = "metrics")]
    creates: bool,
    #[cfg(feature = "metrics")]
    created: usize,
}

impl Update {
    #[inline]
    pub(crate) fn begin(plan: &Plan) -> Self {
        Update {
            scope: Scope {
                #[cfg(feature = "tracing")]
                span: tracing::info_span!(
                    target: "diesel_sharded",
                    "update",
                    backend = name_of(plan.dialect),
                    table = plan.table,
                    attempts = Empty,
                    conflict = Empty,
                    rows = Empty,
                    outcome = Empty,
                ),
            },
            attempt: Scope::NONE,
            statement: Scope::NONE,
            #[cfg(feature = "tracing")]
            meets_rows: false,
            #[cfg(feature = "tracing")]
            met: None,
            #[cfg(feature = "metrics")]
            creates: false,
            #[cfg(feature = "metrics")]
            created: 0,
        }
    }

    /// This step is next.
    #[inline]
    pub(crate) fn step(&mut self, plan: &Plan, attempt: &CountingAttempt, step: &Step) {
        let (keys, conflict) = (plan.keys, attempt.conflict());
        #[cfg(feature = "metrics")]
        {
            // MySQL counts rows too that were there; by key none was, or nothing would be created.
            self.creates = matches!(step, Step::Run(Statement::Create))
                && (plan.by_key || plan.dialect.counts_inserted_alone());
            match step {
                Step::Sleep(_) => {
                    self.created = 0;
                    count_conflict(plan, conflict);
                }
                Step::Finish(outcome) => {
                    if outcome.is_err() {
                        count_conflict(plan, conflict);
                    }
                    let attempts = attempt.attempts().number();
                    self.count_end(plan, keys, attempts, outcome.is_ok());
                }
                _ => {}
            }
        }
        #[cfg(feature = "tracing")]
        if is_listened_to() {
            self.trace_step(plan, attempt, conflict, step);
        }
    }

    #[cfg(feature = "metrics")]
    fn count_end(&self, plan: &Plan, Keys(keys): Keys, attempts: u32, succeeded: bool) {
        increment(
            match succeeded {
                true => &keys.succeeded,
                false => &keys.failed,
            },
            1,
        );
        increment(&keys.attempts, attempts.into());
        if succeeded && self.created > 0 {
            count!("diesel_sharded_shards_created_total", self.created,
                "backend" => name_of(plan.dialect), "table" => plan.table);
        }
    }

    #[cfg(feature = "tracing")]
    fn trace_step(
        &mut self,
        plan: &Plan,
        attempt: &CountingAttempt,
        conflict: Option<Conflict>,
        step: &Step,
    ) {
        let scope = &self.scope.span;
        let statement = match step {
            Step::Begin => "begin",
            Step::Run(statement) => statement_name(*statement),
            Step::Commit => "commit",
            Step::Rollback => "rollback",
            Step::LookInside { .. } => "look_inside",
            Step::Sleep(delay) => {
                if let Some(conflict) = conflict {
                    let delay = Some(*delay);
                    ended(
                        &self.attempt.span,
                        scope,
                        attempt.attempts().number() - 1,
                        conflict,
                        delay,
                    );
                    self.met = Some(conflict);
                }
                self.attempt = Scope::NONE;
                return;
            }
            Step::Finish(outcome) => {
                if let Some(conflict) = conflict {
                    ended(
                        &self.attempt.span,
                        scope,
                        attempt.attempts().number(),
                        conflict,
                        None,
                    );
                    self.met = Some(conflict);
                }
                scope.record("attempts", attempt.attempts().number());
                scope.record("outcome", outcome_name(outcome.is_ok()));
                if let Some(conflict) = self.met {
                    scope.record("conflict", kind_of(conflict));
                }
                if let Ok(rows) = outcome {
                    scope.record("rows", *rows as u64);
                }
                self.attempt = Scope::NONE;
                return;
            }
        };
        // A probe comes before the attempt, whose shard depends on it.
        let probes = matches!(step, Step::Run(Statement::Probe));
        if self.attempt.span.is_none() && !probes {
            self.attempt.span = tracing::debug_span!(
                target: "diesel_sharded",
                parent: scope,
                "attempt",
                attempt = attempt.attempts().number(),
                shard = attempt.shard(),
                conflict = Empty,
            );
        }
        let parent = match probes {
            true => scope,
            false => &self.attempt.span,
        };
        self.statement.span = tracing::debug_span!(
            target: "diesel_sharded",
            parent: parent,
            "statement",
            kind = statement,
            table = plan.table,
            shard = attempt.shard(),
            rows = Empty,
        );
        self.meets_rows = matches!(step, Step::Run(_));
    }

    /// What the last step does.
    #[inline]
    pub(crate) fn within<F: Future>(&self, step: F) -> Within<F> {
        self.statement.within(step)
    }

    /// What came of the last step: the number of rows that it met.
    #[inline]
    pub(crate) fn came(&mut self, outcome: &QueryResult<usize>) {
        #[cfg(feature = "metrics")]
        if let (Ok(rows), true) = (outcome, self.creates) {
            self.created += rows;
        }
        #[cfg(feature = "tracing")]
        if is_listened_to() {
            match outcome {
                Ok(rows) if self.meets_rows => {
                    self.statement.span.record("rows", *rows as u64);
                }
                Ok(_) => {}
                Err(error) => failed(&self.statement.span, error),
            }
            self.statement = Scope::NONE;
        }
    }
}

/// The keys of what is counted at each update of a table, made when the crate is compiled: making one takes as long as a
/// tenth of an update on SQLite in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keys(#[cfg(feature = "metrics")] &'static UpdateKeys);

#[cfg(feature = "metrics")]
#[derive(Debug)]
struct UpdateKeys {
    succeeded: Key,
    failed: Key,
    attempts: Key,
}

impl Keys {
    #[inline]
    pub(crate) fn of<T: ShardedTable>(dialect: Dialect) -> Self {
        Keys(
            #[cfg(feature = "metrics")]
            match dialect {
                Dialect::Postgres => KeysOf::<T, { Dialect::Postgres as u8 }>::KEYS,
                Dialect::Mysql => KeysOf::<T, { Dialect::Mysql as u8 }>::KEYS,
                Dialect::Sqlite => KeysOf::<T, { Dialect::Sqlite as u8 }>::KEYS,
            },
        )
    }
}

#[cfg(feature = "metrics")]
struct KeysOf<T, const DIALECT: u8>(std::marker::PhantomData<T>);

#[cfg(feature = "metrics")]
impl<T: ShardedTable, const DIALECT: u8> KeysOf<T, DIALECT> {
    const BACKEND: Label = Label::from_static_parts(
        "backend",
        name_of(match DIALECT {
            dialect if dialect == Dialect::Postgres as u8 => Dialect::Postgres,
            dialect if dialect == Dialect::Mysql as u8 => Dialect::Mysql,
            _ => Dialect::Sqlite,
        }),
    );
    const TABLE: Label = Label::from_static_parts("table", T::SHARDS_TABLE);
    const LABELS: &'static [Label] = &[Self::BACKEND, Self::TABLE];
    const SUCCEEDED: &'static [Label] = &[
        Self::BACKEND,
        Self::TABLE,
        Label::from_static_parts("outcome", outcome_name(true)),
    ];
    const FAILED: &'static [Label] = &[
        Self::BACKEND,
        Self::TABLE,
        Label::from_static_parts("outcome", outcome_name(false)),
    ];
    const KEYS: &'static UpdateKeys = &UpdateKeys {
        succeeded: Key::from_static_parts("diesel_sharded_updates_total", Self::SUCCEEDED),
        failed: Key::from_static_parts("diesel_sharded_updates_total", Self::FAILED),
        attempts: Key::from_static_parts("diesel_sharded_attempts_total", Self::LABELS),
    };
}

#[cfg(feature = "metrics")]
fn count_conflict(plan: &Plan, conflict: Option<Conflict>) {
    if let Some(conflict) = conflict {
        count!("diesel_sharded_conflicts_total", 1_u64,
            "backend" => name_of(plan.dialect), "table" => plan.table, "conflict" => kind_of(conflict));
    }
}

#[cfg(feature = "metrics")]
#[inline]
fn increment(key: &Key, by: u64) {
    static METADATA: metrics::Metadata<'static> =
        metrics::Metadata::new("diesel_sharded", metrics::Level::INFO, None);
    metrics::with_recorder(|recorder| recorder.register_counter(key, &METADATA)).increment(by);
}

/// Whether any subscriber may be there: without one, that is all that is asked.
#[cfg(feature = "tracing")]
#[inline]
fn is_listened_to() -> bool {
    LevelFilter::current() != LevelFilter::OFF
}

/// Whose work is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// A transaction of the application's.
    Closure,
    /// A transaction of the crate's.
    Own,
    /// A part of a transaction that is open already.
    Savepoint,
    /// A statement that commits by itself.
    Statement,
    /// A query.
    Read,
}

/// A transaction, or what is tried again like one.
#[derive(Debug)]
pub(crate) struct Transaction {
    #[cfg(any(feature = "tracing", feature = "metrics"))]
    of: (Dialect, Work),
    scope: Scope,
    attempt: Scope,
    #[cfg(feature = "tracing")]
    met: Option<Conflict>,
}

impl Transaction {
    #[inline]
    pub(crate) fn begin(dialect: Dialect, work: Work) -> Self {
        Transaction {
            #[cfg(any(feature = "tracing", feature = "metrics"))]
            of: (dialect, work),
            scope: Scope {
                #[cfg(feature = "tracing")]
                span: tracing::info_span!(
                    target: "diesel_sharded",
                    "transaction",
                    backend = name_of(dialect),
                    kind = work_name(work),
                    attempts = Empty,
                    conflict = Empty,
                    outcome = Empty,
                ),
            },
            attempt: Scope::NONE,
            #[cfg(feature = "tracing")]
            met: None,
        }
    }

    /// The attempt of this number begins.
    #[inline]
    pub(crate) fn attempt(&mut self, number: u32) {
        #[cfg(feature = "tracing")]
        {
            self.attempt.span = tracing::debug_span!(
                target: "diesel_sharded",
                parent: &self.scope.span,
                "attempt",
                attempt = number,
                conflict = Empty,
            );
        }
    }

    /// What the attempt's steps run in.
    #[inline]
    pub(crate) fn scope(&self) -> Scope {
        #[cfg(feature = "tracing")]
        if self.attempt.span.is_disabled() {
            return self.scope.clone();
        }
        self.attempt.clone()
    }

    /// The attempt of this number ended in a conflict, or not; it is made again after `delay`.
    #[inline]
    pub(crate) fn conflict(
        &mut self,
        number: u32,
        conflict: impl FnOnce() -> Option<Conflict>,
        delay: Option<Duration>,
    ) {
        #[cfg(any(feature = "tracing", feature = "metrics"))]
        if let Some(conflict) = conflict() {
            #[cfg(feature = "metrics")]
            count!("diesel_sharded_transaction_conflicts_total", 1_u64,
                "backend" => name_of(self.of.0), "kind" => work_name(self.of.1),
                "conflict" => kind_of(conflict));
            #[cfg(feature = "tracing")]
            {
                ended(
                    &self.attempt.span,
                    &self.scope.span,
                    number,
                    conflict,
                    delay,
                );
                self.met = Some(conflict);
            }
        }
    }

    /// It came to its end, after so many attempts.
    #[inline]
    pub(crate) fn ended(&mut self, attempts: u32, succeeded: bool) {
        #[cfg(feature = "metrics")]
        {
            let (backend, kind) = (name_of(self.of.0), work_name(self.of.1));
            count!("diesel_sharded_transactions_total", 1_u64,
                "backend" => backend, "kind" => kind, "outcome" => outcome_name(succeeded));
            count!("diesel_sharded_transaction_attempts_total", attempts,
                "backend" => backend, "kind" => kind);
        }
        #[cfg(feature = "tracing")]
        {
            let span = &self.scope.span;
            span.record("attempts", attempts);
            span.record("outcome", outcome_name(succeeded));
            if let Some(conflict) = self.met {
                span.record("conflict", kind_of(conflict));
            }
            self.attempt = Scope::NONE;
        }
    }
}

/// A batch of a fold: so many parents are looked at.
#[inline]
pub(crate) fn fold(dialect: Dialect, table: &'static str, parents: usize) -> Scope {
    Scope {
        #[cfg(feature = "tracing")]
        span: tracing::info_span!(
            target: "diesel_sharded",
            "fold",
            backend = name_of(dialect),
            table,
            parents,
        ),
    }
}

/// A fold has moved so much in a transaction, and removed so many shards.
#[inline]
pub(crate) fn folded(dialect: Dialect, table: &'static str, moved: &Moved, removed: usize) {
    let Moved {
        parents, shards, ..
    } = *moved;
    #[cfg(feature = "metrics")]
    {
        let backend = name_of(dialect);
        count!("diesel_sharded_folded_parents_total", parents,
            "backend" => backend, "table" => table);
        count!("diesel_sharded_folded_shards_total", shards,
            "backend" => backend, "table" => table);
        count!("diesel_sharded_shards_removed_total", removed,
            "backend" => backend, "table" => table);
    }
    #[cfg(feature = "tracing")]
    tracing::info!(
        target: "diesel_sharded",
        parents,
        shards,
        removed,
        "folded"
    );
}

/// A flush of a coalescer: so many counters, for so many callers who wait.
#[inline]
pub(crate) fn flush(counters: usize, callers: usize) -> Scope {
    #[cfg(feature = "metrics")]
    {
        measure!("diesel_sharded_coalescer_batch_counters", counters as f64);
        measure!("diesel_sharded_coalescer_batch_callers", callers as f64);
    }
    Scope {
        #[cfg(feature = "tracing")]
        span: tracing::info_span!(target: "diesel_sharded", "flush", counters, callers),
    }
}

/// The flush took so long.
#[inline]
pub(crate) fn flushed(time: Duration) {
    #[cfg(feature = "metrics")]
    measure!("diesel_sharded_coalescer_flush_seconds", time.as_secs_f64());
}

/// A caller has waited for a coalescer since it `began`.
#[inline]
pub(crate) fn waited(began: Instant) {
    #[cfg(feature = "metrics")]
    measure!(
        "diesel_sharded_coalescer_wait_seconds",
        began.elapsed().as_secs_f64()
    );
}

/// A coalescer's transaction met a conflict.
#[inline]
pub(crate) fn flush_conflict(dialect: Dialect, conflict: Conflict) {
    #[cfg(feature = "metrics")]
    count!("diesel_sharded_coalescer_conflicts_total", 1_u64,
        "backend" => name_of(dialect), "conflict" => kind_of(conflict));
    #[cfg(feature = "tracing")]
    tracing::debug!(
        target: "diesel_sharded",
        backend = name_of(dialect),
        conflict = kind_of(conflict),
        "conflict of a batch"
    );
}

/// Something was lost that nobody waited for.
#[inline]
pub(crate) fn lost() {
    #[cfg(feature = "metrics")]
    count!("diesel_sharded_coalescer_losses_total", 1_u64);
    #[cfg(feature = "tracing")]
    tracing::error!(
        target: "diesel_sharded",
        "what was added without waiting could not be counted: see 'on_loss'"
    );
}

/// Where a total came from that was read through a cache.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CacheRead {
    /// The cache.
    Hit,
    /// The database.
    Miss,
    /// Another reader's read of the database.
    Shared,
    /// The database, inside a transaction.
    Bypassed,
}

/// A total was asked for.
#[inline]
pub(crate) fn cache_read(read: CacheRead) {
    #[cfg(feature = "metrics")]
    match read {
        CacheRead::Hit => count!("diesel_sharded_cache_reads_total", 1_u64, "result" => "hit"),
        CacheRead::Miss => count!("diesel_sharded_cache_reads_total", 1_u64, "result" => "miss"),
        CacheRead::Shared => {
            count!("diesel_sharded_cache_reads_total", 1_u64, "result" => "shared");
        }
        CacheRead::Bypassed => {
            count!("diesel_sharded_cache_reads_total", 1_u64, "result" => "bypassed");
        }
    }
}

/// A cache failed.
#[inline]
pub(crate) fn cache_failed(error: &CacheError) {
    #[cfg(feature = "metrics")]
    match error {
        CacheError::Unavailable { .. } => {
            count!("diesel_sharded_cache_failures_total", 1_u64, "failure" => "unavailable");
        }
        CacheError::NotATotal { .. } => {
            count!("diesel_sharded_cache_failures_total", 1_u64, "failure" => "not_a_total");
        }
    }
    #[cfg(feature = "tracing")]
    {
        if let CacheError::Unavailable { .. } = error {
            tracing::warn!(
                target: "diesel_sharded",
                "the cache could not be used and is left out for a while"
            );
        }
        tracing::debug!(target: "diesel_sharded", %error, "the cache failed");
    }
}

/// All shards of a key were being counted on at once.
#[inline]
pub(crate) fn crowded(table: &'static str) {
    #[cfg(feature = "metrics")]
    count!("diesel_sharded_crowded_total", 1_u64, "table" => table);
}

/// Says so to an operator; not often.
pub(crate) fn more_shards_would_help(table: &'static str, shards: u16) {
    const TEXT: &str = "more shards would help: all of one key were being counted on at once";
    #[cfg(feature = "tracing")]
    if tracing::event_enabled!(target: "diesel_sharded", tracing::Level::WARN) {
        tracing::warn!(target: "diesel_sharded", table, shards, "{TEXT}");
        return;
    }
    log::warn!(target: "diesel_sharded", "{TEXT} (`{table}`, {shards} shards)");
}

/// Gives the recorder that was installed the unit and a description of each metric; to be called once after it was installed.
#[cfg(feature = "metrics")]
pub fn describe_metrics() {
    use metrics::{Unit, describe_counter, describe_histogram};
    describe_counter!(
        "diesel_sharded_updates_total",
        Unit::Count,
        "counting updates"
    );
    describe_counter!(
        "diesel_sharded_attempts_total",
        Unit::Count,
        "attempts that they took"
    );
    describe_counter!(
        "diesel_sharded_conflicts_total",
        Unit::Count,
        "conflicts that they met"
    );
    describe_counter!(
        "diesel_sharded_shards_created_total",
        Unit::Count,
        "shards that they created; on MySQL only those by key"
    );
    describe_counter!(
        "diesel_sharded_crowded_total",
        Unit::Count,
        "counts that found all shards of their key taken: more would help"
    );
    describe_counter!(
        "diesel_sharded_transactions_total",
        Unit::Count,
        "transactions, and what else is tried again as a whole"
    );
    describe_counter!(
        "diesel_sharded_transaction_attempts_total",
        Unit::Count,
        "attempts that they took"
    );
    describe_counter!(
        "diesel_sharded_transaction_conflicts_total",
        Unit::Count,
        "conflicts that they met"
    );
    describe_counter!(
        "diesel_sharded_folded_parents_total",
        Unit::Count,
        "parents that a fold moved something to"
    );
    describe_counter!(
        "diesel_sharded_folded_shards_total",
        Unit::Count,
        "shards that a fold emptied"
    );
    describe_counter!(
        "diesel_sharded_shards_removed_total",
        Unit::Count,
        "empty shards that a fold removed"
    );
    describe_histogram!(
        "diesel_sharded_coalescer_batch_counters",
        Unit::Count,
        "counters in a batch"
    );
    describe_histogram!(
        "diesel_sharded_coalescer_batch_callers",
        Unit::Count,
        "callers who waited for a batch"
    );
    describe_histogram!(
        "diesel_sharded_coalescer_flush_seconds",
        Unit::Seconds,
        "the time that a batch took"
    );
    describe_histogram!(
        "diesel_sharded_coalescer_wait_seconds",
        Unit::Seconds,
        "the time that a caller waited"
    );
    describe_counter!(
        "diesel_sharded_coalescer_conflicts_total",
        Unit::Count,
        "conflicts that batches met"
    );
    describe_counter!(
        "diesel_sharded_coalescer_losses_total",
        Unit::Count,
        "losses of what was added without waiting"
    );
    describe_counter!(
        "diesel_sharded_cache_reads_total",
        Unit::Count,
        "totals that were asked for by Cached::get"
    );
    describe_counter!(
        "diesel_sharded_cache_failures_total",
        Unit::Count,
        "failures of a cache"
    );
}

/// An attempt ended in a conflict.
#[cfg(feature = "tracing")]
fn ended(
    attempt: &tracing::Span,
    operation: &tracing::Span,
    number: u32,
    conflict: Conflict,
    delay: Option<Duration>,
) {
    let conflict = kind_of(conflict);
    attempt.record("conflict", conflict);
    tracing::debug!(
        target: "diesel_sharded",
        parent: operation,
        attempt = number,
        conflict,
        delay_ms = delay.map(|delay| delay.as_secs_f64() * 1e3),
        "conflict"
    );
}

/// A statement failed. The database's text may quote a key.
#[cfg(feature = "tracing")]
fn failed(statement: &tracing::Span, error: &diesel::result::Error) {
    tracing::debug!(target: "diesel_sharded", parent: statement, %error, "failed");
}

/// As OpenTelemetry names databases.
const fn name_of(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Postgres => "postgresql",
        Dialect::Mysql => "mysql",
        Dialect::Sqlite => "sqlite",
    }
}

const fn kind_of(conflict: Conflict) -> &'static str {
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

const fn outcome_name(succeeded: bool) -> &'static str {
    match succeeded {
        true => "ok",
        false => "error",
    }
}

const fn work_name(work: Work) -> &'static str {
    match work {
        Work::Closure => "closure",
        Work::Own => "own",
        Work::Savepoint => "savepoint",
        Work::Statement => "statement",
        Work::Read => "read",
    }
}

const fn statement_name(statement: Statement) -> &'static str {
    match statement {
        Statement::Probe => "probe",
        Statement::FindMissing => "find_missing",
        Statement::FindParent => "find_parent",
        Statement::CountByKey => "count_by_key",
        Statement::CountPicked => "count_picked",
        Statement::Create => "create",
        Statement::InsertUnlessThere => "insert_unless_there",
        Statement::Insert => "insert",
        Statement::Pick => "pick",
        Statement::Load => "load",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    struct Lines(Mutex<Vec<String>>);

    impl log::Log for Lines {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &log::Record<'_>) {
            let line = format!("{} {} {}", record.level(), record.target(), record.args());
            self.0.lock().unwrap().push(line);
        }

        fn flush(&self) {}
    }

    static LINES: Lines = Lines(Mutex::new(vec![]));

    #[test]
    fn a_warning_that_no_subscriber_listens_to_goes_to_log() {
        log::set_logger(&LINES).unwrap();
        log::set_max_level(log::LevelFilter::Warn);
        more_shards_would_help("seats_shards", 4);
        let lines = LINES.0.lock().unwrap();
        let line = lines.iter().find(|line| line.contains("`seats_shards`"));
        assert_eq!(
            line.map(String::as_str),
            Some(
                "WARN diesel_sharded more shards would help: all of one key were being counted on at once \
                 (`seats_shards`, 4 shards)"
            )
        );
    }
}
