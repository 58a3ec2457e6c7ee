//! Spans and events by `tracing`, numbers by `metrics`.
//!
//! Their names and meanings are documented in [`observability`](crate::observability). The rest of the crate calls the functions here
//! whatever the features are; without them the functions do nothing.
#![cfg_attr(
    not(all(feature = "tracing", feature = "metrics")),
    allow(
        dead_code,
        unused_imports,
        unused_macros,
        unused_variables,
        reason = "only a feature reads what is observed"
    )
)]

use std::fmt::Display;
use std::future::Future;
use std::time::{Duration, Instant};

use diesel::result::{Error as DieselError, QueryResult};
#[cfg(feature = "tracing")]
use tracing::{Level, field::Empty};

use crate::backend::Dialect;
use crate::conflict::Conflict;
use crate::model::ShardedTable;

/// The target of all spans and events.
const TARGET: &str = "diesel_sharded";

/// Something that takes time: a span, where spans are recorded.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

/// A span by its level, name and fields, as `tracing::span!` makes it.
macro_rules! span {
    ($($span:tt)+) => {
        Scope {
            #[cfg(feature = "tracing")]
            span: tracing::span!(target: TARGET, $($span)+),
        }
    };
}

/// Adds to a counter, or records a value in a histogram.
macro_rules! measure {
    ($counter:literal $({$($labels:tt)+})? += $by:expr) => {{
        #[cfg(feature = "metrics")]
        metrics::counter!($counter $(, $($labels)+)?).increment($by as u64);
    }};
    ($histogram:literal $({$($labels:tt)+})? = $value:expr) => {{
        #[cfg(feature = "metrics")]
        metrics::histogram!($histogram $(, $($labels)+)?).record($value);
    }};
}

/// An event at this level, with its fields and its text.
macro_rules! event {
    ($level:ident, $($event:tt)+) => {{
        #[cfg(feature = "tracing")]
        tracing::$level!(target: TARGET, $($event)+);
    }};
}

impl Scope {
    fn none() -> Self {
        Scope {
            #[cfg(feature = "tracing")]
            span: tracing::Span::none(),
        }
    }

    /// A step of it.
    #[inline]
    pub(crate) fn within<F: Future>(&self, step: F) -> impl Future<Output = F::Output> + use<F> {
        #[cfg(feature = "tracing")]
        let step = tracing::Instrument::instrument(step, self.span.clone());
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

/// The future, inside the caller's current span wherever it is polled.
#[cfg(feature = "async")]
pub(crate) fn in_callers_span<F: Future>(future: F) -> impl Future<Output = F::Output> {
    #[cfg(feature = "tracing")]
    let future = tracing::Instrument::in_current_span(future);
    future
}

/// Observes an operation that is retried.
pub(crate) trait Observer {
    /// The next step is of this kind, and runs in the scope.
    fn step(&mut self, kind: &'static str) -> Scope;

    /// The step ended, with this error if it failed.
    fn stepped(&mut self, error: Option<&DieselError>);

    /// The attempt of this number failed by a conflict, or for another reason. The next one follows after `delay`, if there is one.
    fn failed(&mut self, attempt: u32, conflict: Option<Conflict>, delay: Option<Duration>);

    /// The operation ended after this many attempts.
    fn ended(&mut self, attempts: u32, succeeded: bool);

    /// The next step is a statement of this kind before the attempt, whose shard depends on it.
    fn probe(&mut self, kind: &'static str, _shard: i32) -> Scope {
        self.step(kind)
    }

    /// The attempt of this number at a counting update begins.
    fn attempt(&mut self, _number: u32, _shard: i32) {}

    /// A statement of a counting update ended: it met this many rows, or failed.
    fn sent(&mut self, _outcome: &QueryResult<usize>) {}

    /// The attempt created this many shards.
    fn created(&mut self, _shards: usize) {}

    /// The update counted this many rows.
    fn counted(&mut self, _rows: usize) {}
}

/// The spans of an operation and of its attempt.
#[derive(Debug)]
struct Spans {
    operation: Scope,
    attempt: Scope,
    /// The last conflict.
    conflict: Option<Conflict>,
}

impl Spans {
    #[inline]
    fn of(operation: Scope) -> Self {
        Spans {
            operation,
            attempt: Scope::none(),
            conflict: None,
        }
    }

    #[inline]
    fn failed(&mut self, attempt: u32, conflict: Option<Conflict>, delay: Option<Duration>) {
        let Some(conflict) = conflict else { return };
        self.conflict = Some(conflict);
        let conflict = conflict_of(conflict);
        let delay_ms = delay.map(|delay| delay.as_secs_f64() * 1e3);
        #[cfg(feature = "tracing")]
        self.attempt.span.record("conflict", conflict);
        event!(debug, parent: &self.operation.span, attempt, conflict, delay_ms, "conflict");
    }

    #[inline]
    fn ended(&mut self, attempts: u32, succeeded: bool) {
        #[cfg(feature = "tracing")]
        {
            let operation = &self.operation.span;
            operation.record("attempts", attempts);
            operation.record("outcome", outcome_of(succeeded));
            if let Some(conflict) = self.conflict {
                operation.record("conflict", conflict_of(conflict));
            }
        }
        self.attempt = Scope::none();
    }
}

/// A counting update while it runs.
#[derive(Debug)]
pub(crate) struct Update {
    dialect: Dialect,
    table: &'static str,
    keys: Keys,
    spans: Spans,
    statement: Scope,
    shard: i32,
    rows: usize,
    /// The shards that the attempt created.
    created: usize,
}

impl Update {
    #[inline]
    pub(crate) fn begin(dialect: Dialect, table: &'static str, keys: Keys) -> Self {
        let operation = span!(
            Level::INFO,
            "update",
            backend = dialect.name(),
            table,
            attempts = Empty,
            conflict = Empty,
            rows = Empty,
            outcome = Empty,
        );
        Update {
            dialect,
            table,
            keys,
            spans: Spans::of(operation),
            statement: Scope::none(),
            shard: 0,
            rows: 0,
            created: 0,
        }
    }

    /// A statement, as a part of the operation or the attempt.
    fn statement(&self, kind: &'static str, of: &Scope) -> Scope {
        let (table, shard) = (self.table, self.shard);
        span!(parent: &of.span, Level::DEBUG, "statement", kind, table, shard, rows = Empty)
    }
}

impl Observer for Update {
    #[inline]
    fn step(&mut self, kind: &'static str) -> Scope {
        self.statement = self.statement(kind, &self.spans.attempt);
        self.statement.clone()
    }

    #[inline]
    fn stepped(&mut self, error: Option<&DieselError>) {
        if let Some(error) = error {
            // The database's text may quote a key.
            event!(debug, parent: &self.statement.span, %error, "failed");
        }
        self.statement = Scope::none();
    }

    #[inline]
    fn failed(&mut self, attempt: u32, conflict: Option<Conflict>, delay: Option<Duration>) {
        self.spans.failed(attempt, conflict, delay);
        self.spans.attempt = Scope::none();
        self.created = 0;
        if let Some(conflict) = conflict {
            let (backend, conflict) = (self.dialect.name(), conflict_of(conflict));
            measure!("diesel_sharded_conflicts_total" { "backend" => backend, "table" => self.table, "conflict" => conflict } += 1);
        }
    }

    #[inline]
    fn ended(&mut self, attempts: u32, succeeded: bool) {
        self.spans.ended(attempts, succeeded);
        #[cfg(feature = "tracing")]
        if succeeded {
            self.spans.operation.span.record("rows", self.rows);
        }
        #[cfg(feature = "metrics")]
        self.keys.made.ended(attempts, succeeded);
        if self.created > 0 {
            let backend = self.dialect.name();
            measure!("diesel_sharded_shards_created_total" { "backend" => backend, "table" => self.table } += self.created);
        }
    }

    #[inline]
    fn probe(&mut self, kind: &'static str, shard: i32) -> Scope {
        self.shard = shard;
        self.statement = self.statement(kind, &self.spans.operation);
        self.statement.clone()
    }

    #[inline]
    fn attempt(&mut self, attempt: u32, shard: i32) {
        self.shard = shard;
        let operation = &self.spans.operation;
        self.spans.attempt = span!(
            parent: &operation.span, Level::DEBUG, "attempt", attempt, shard, conflict = Empty
        );
    }

    #[inline]
    fn sent(&mut self, outcome: &QueryResult<usize>) {
        #[cfg(feature = "tracing")]
        if let Ok(rows) = *outcome {
            self.statement.span.record("rows", rows);
        }
        self.stepped(outcome.as_ref().err());
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
        let operation = span!(
            Level::INFO,
            "transaction",
            backend = dialect.name(),
            kind,
            attempts = Empty,
            conflict = Empty,
            outcome = Empty,
        );
        Transaction {
            dialect,
            kind,
            spans: Spans::of(operation),
        }
    }

    /// The attempt of this number begins.
    pub(crate) fn attempt(&mut self, attempt: u32) {
        let operation = &self.spans.operation;
        self.spans.attempt =
            span!(parent: &operation.span, Level::DEBUG, "attempt", attempt, conflict = Empty);
    }

    /// The scope of the attempt, or of the whole where attempts are not recorded.
    pub(crate) fn scope(&self) -> Scope {
        #[cfg(feature = "tracing")]
        if self.spans.attempt.span.is_disabled() {
            return self.spans.operation.clone();
        }
        self.spans.attempt.clone()
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
            let (backend, conflict) = (self.dialect.name(), conflict_of(conflict));
            measure!("diesel_sharded_transaction_conflicts_total" { "backend" => backend, "kind" => self.kind, "conflict" => conflict } += 1);
        }
    }

    fn ended(&mut self, attempts: u32, succeeded: bool) {
        self.spans.ended(attempts, succeeded);
        let (backend, kind, outcome) = (self.dialect.name(), self.kind, outcome_of(succeeded));
        measure!("diesel_sharded_transactions_total" { "backend" => backend, "kind" => kind, "outcome" => outcome } += 1);
        measure!("diesel_sharded_transaction_attempts_total" { "backend" => backend, "kind" => kind } += attempts);
    }
}

/// A batch of a fold: this many parents are looked at.
pub(crate) fn fold(dialect: Dialect, table: &str, parents: usize) -> Scope {
    span!(
        Level::INFO,
        "fold",
        backend = dialect.name(),
        table,
        parents
    )
}

/// A fold has moved something to this many parents from this many shards, and removed this many shards.
pub(crate) fn folded(dialect: Dialect, table: &str, [parents, shards, removed]: [usize; 3]) {
    let (backend, of) = (dialect.name(), || table.to_owned());
    measure!("diesel_sharded_folded_parents_total" { "backend" => backend, "table" => of() } += parents);
    measure!("diesel_sharded_folded_shards_total" { "backend" => backend, "table" => of() } += shards);
    measure!("diesel_sharded_shards_removed_total" { "backend" => backend, "table" => of() } += removed);
    event!(info, parents, shards, removed, "folded");
}

/// A pass of a background fold took this long, and succeeded or failed.
pub(crate) fn folder_passed(table: &'static str, time: Duration, succeeded: bool) {
    let outcome = outcome_of(succeeded);
    measure!("diesel_sharded_folder_passes_total" { "table" => table, "outcome" => outcome } += 1);
    measure!("diesel_sharded_folder_pass_seconds" { "table" => table } = time);
    if !succeeded {
        event!(
            warn,
            table,
            "a pass of a background fold failed: see 'on_error'"
        );
    }
}

/// A flush of a coalescer: this many counters.
#[cfg(feature = "r2d2")]
pub(crate) fn flush(counters: usize) -> Scope {
    measure!("diesel_sharded_coalescer_flush_counters" = counters as f64);
    span!(Level::INFO, "flush", counters)
}

/// The flush took this long.
#[cfg(feature = "r2d2")]
pub(crate) fn flushed(time: Duration) {
    measure!("diesel_sharded_coalescer_flush_seconds" = time);
}

/// A coalescer lost what was added to a counter.
#[cfg(feature = "r2d2")]
pub(crate) fn lost() {
    measure!("diesel_sharded_coalescer_losses_total" += 1);
    event!(
        error,
        "what was added to a coalescer could not be counted: see 'on_loss'"
    );
}

/// A batch of this many callers is sent by one of them.
#[inline]
pub(crate) fn combined(dialect: Dialect, table: &'static str, callers: usize) {
    let backend = dialect.name();
    measure!("diesel_sharded_combined_total" { "backend" => backend, "table" => table } += callers);
    measure!("diesel_sharded_combined_callers" = callers as f64);
}

/// A caller has waited for another since it `began`.
#[inline]
pub(crate) fn combined_wait(began: Instant) {
    measure!("diesel_sharded_combined_wait_seconds" = began.elapsed());
}

/// An increment was not combined, though there is a combiner.
#[inline]
pub(crate) fn not_combined(dialect: Dialect, table: &'static str) {
    let backend = dialect.name();
    measure!("diesel_sharded_not_combined_total" { "backend" => backend, "table" => table } += 1);
}

/// The source of a total that was read through a cache.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CacheRead {
    /// The cache.
    Hit,
    /// The database.
    Miss,
    /// The database, inside a transaction.
    Bypassed,
}

/// A total was asked for. Where all labels are literals, the key is made when the crate is compiled.
#[inline]
pub(crate) fn cache_read(read: CacheRead) {
    // Literal labels, which `metrics` keeps.
    match read {
        CacheRead::Hit => measure!("diesel_sharded_cache_reads_total" { "result" => "hit" } += 1),
        CacheRead::Miss => measure!("diesel_sharded_cache_reads_total" { "result" => "miss" } += 1),
        CacheRead::Bypassed => {
            measure!("diesel_sharded_cache_reads_total" { "result" => "bypassed" } += 1);
        }
    }
}

/// A cache could not be used.
pub(crate) fn cache_unavailable(error: &dyn Display) {
    cache_failed(error, "unavailable");
    event!(
        warn,
        "the cache could not be used and is left out for a while"
    );
}

/// A cache held a value that is no total.
pub(crate) fn not_a_total(error: &dyn Display) {
    cache_failed(error, "not_a_total");
}

fn cache_failed(error: &dyn Display, failure: &'static str) {
    measure!("diesel_sharded_cache_failures_total" { "failure" => failure } += 1);
    event!(debug, %error, "the cache failed");
}

/// All shards of a key were being counted on at once.
pub(crate) fn crowded(table: &'static str) {
    measure!("diesel_sharded_crowded_total" { "table" => table } += 1);
}

/// A warning that goes to `log` where no subscriber listens.
const MORE_SHARDS: &str = "more shards would help: all of one key were being counted on at once";

/// Warns an operator by these fields and this message. Without a subscriber this text goes to `log`.
macro_rules! warn_operator {
    ([$($field:ident),*] $message:expr, $text:literal) => {
        match () {
            #[cfg(feature = "tracing")]
            () if tracing::event_enabled!(target: TARGET, Level::WARN) => {
                tracing::warn!(target: TARGET, $($field,)* "{}", $message);
            }
            () => log::warn!(target: TARGET, $text),
        }
    };
}

/// Warns an operator, but not often.
pub(crate) fn more_shards_would_help(table: &'static str, shards: u16) {
    warn_operator!([table, shards] MORE_SHARDS, "{MORE_SHARDS} (`{table}`, {shards} shards)");
}

/// Warns an operator, once a process, that the landmark of a decay is this many half-lives old.
pub(crate) fn landmark_is_old(half_lives: i128, most: u16) {
    let warning = format!(
        "a landmark is {half_lives} half-lives old: give the scores a new one before it is {most} (see `trending`)"
    );
    warn_operator!([] warning, "{warning}");
}

const fn conflict_of(conflict: Conflict) -> &'static str {
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

const fn outcome_of(succeeded: bool) -> &'static str {
    match succeeded {
        true => "ok",
        false => "error",
    }
}

/// The keys of the metrics of each update of a table in one database.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keys {
    #[cfg(feature = "metrics")]
    made: &'static made::Keys,
}

impl Keys {
    #[inline]
    pub(crate) fn of<T: ShardedTable>(dialect: Dialect) -> Self {
        Keys {
            #[cfg(feature = "metrics")]
            made: dialect.its(made::OfTable::<T>::KEYS),
        }
    }
}

/// Keys that are made when the crate is compiled. Counting by both keys of an update then takes 6 ns, and 67 ns if they are made at that
/// moment.
#[cfg(feature = "metrics")]
mod made {
    use std::marker::PhantomData;

    use metrics::{Key, Label, Level, Metadata};

    use super::{TARGET, outcome_of};
    use crate::backend::Dialect;
    use crate::model::ShardedTable;

    #[derive(Debug)]
    pub(super) struct Keys {
        /// Of updates that failed, and of those that succeeded.
        outcomes: [Key; 2],
        attempts: Key,
    }

    impl Keys {
        /// An update ended after this many attempts.
        #[inline]
        pub(super) fn ended(&self, attempts: u32, succeeded: bool) {
            static METADATA: Metadata<'static> = Metadata::new(TARGET, Level::INFO, None);
            metrics::with_recorder(|recorder| {
                let count = |key, by| recorder.register_counter(key, &METADATA).increment(by);
                count(&self.outcomes[usize::from(succeeded)], 1);
                count(&self.attempts, attempts.into());
            });
        }
    }

    /// The keys of a table, for each database.
    pub(super) struct OfTable<T>(PhantomData<T>);

    impl<T: ShardedTable> OfTable<T> {
        const LABELS: &'static [[[Label; 3]; 2]; 3] = {
            let table = T::SHARDS_TABLE.as_str();
            let [postgres, mysql, sqlite] = Dialect::ALL;
            &[
                labels(postgres, table),
                labels(mysql, table),
                labels(sqlite, table),
            ]
        };

        pub(super) const KEYS: &'static [Keys; 3] = {
            let [postgres, mysql, sqlite] = Self::LABELS;
            &[keys(postgres), keys(mysql), keys(sqlite)]
        };
    }

    const fn labels(dialect: Dialect, table: &'static str) -> [[Label; 3]; 2] {
        const fn of(dialect: Dialect, table: &'static str, succeeded: bool) -> [Label; 3] {
            [
                Label::from_static_parts("backend", dialect.capabilities().name),
                Label::from_static_parts("table", table),
                Label::from_static_parts("outcome", outcome_of(succeeded)),
            ]
        }
        [of(dialect, table, false), of(dialect, table, true)]
    }

    const fn keys([failed, succeeded]: &'static [[Label; 3]; 2]) -> Keys {
        let of_both = failed.split_at(2).0;
        Keys {
            outcomes: [
                Key::from_static_parts("diesel_sharded_updates_total", failed),
                Key::from_static_parts("diesel_sharded_updates_total", succeeded),
            ],
            attempts: Key::from_static_parts("diesel_sharded_attempts_total", of_both),
        }
    }
}

/// Gives the installed recorder the unit and a description of each metric. Call it once, after the recorder is installed.
#[cfg(feature = "metrics")]
pub fn describe_metrics() {
    use metrics::{Unit, describe_counter, describe_histogram};
    // The table in the documentation describes them.
    for row in include_str!("observability.rs").lines() {
        let cells: Vec<_> = row.split(" | ").collect();
        let &[_, name, kind, counts, _] = &cells[..] else {
            continue;
        };
        let name = name.trim_matches('`');
        let unit = match name.ends_with("_seconds") {
            true => Unit::Seconds,
            false => Unit::Count,
        };
        match kind {
            "counter" => describe_counter!(name, unit, counts),
            "histogram" => describe_histogram!(name, unit, counts),
            _ => {}
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::{Mutex, Once};

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

    static LISTENS: Once = Once::new();

    /// The lines that `log` gets while `f` runs, of those that contain `text`.
    pub(crate) fn logged(text: &str, f: impl FnOnce()) -> Vec<String> {
        LISTENS.call_once(|| {
            log::set_logger(&LINES).unwrap();
            log::set_max_level(log::LevelFilter::Warn);
        });
        f();
        let mut lines = LINES.0.lock().unwrap().clone();
        lines.retain(|line| line.contains(text));
        lines
    }

    #[test]
    fn a_warning_that_no_subscriber_listens_to_goes_to_log() {
        let lines = logged("`seats_shards`", || {
            more_shards_would_help("seats_shards", 4)
        });
        assert_eq!(
            lines,
            [
                "WARN diesel_sharded more shards would help: all of one key were being counted on at once \
              (`seats_shards`, 4 shards)"
            ]
        );
    }
}
