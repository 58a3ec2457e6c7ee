//! Counters and histograms.

use std::marker::PhantomData;
use std::time::{Duration, Instant};

use metrics::{Key, Label, Level, Metadata, Unit};

use super::cache_read::CacheRead;
use super::labels::{backend_of, conflict_of, kind_of, outcome_of};
use super::metric_names::{
    ALL, ATTEMPTS, BATCH_CALLERS, BATCH_CONFLICTS, BATCH_COUNTERS, CACHE_FAILURES, CACHE_READS,
    CONFLICTS, CROWDED, FLUSH_TIME, FOLDED_PARENTS, FOLDED_SHARDS, Kind, LOSSES, PASS_TIME, PASSES,
    SHARDS_CREATED, SHARDS_REMOVED, TRANSACTION_ATTEMPTS, TRANSACTION_CONFLICTS, TRANSACTIONS,
    UPDATES, WAIT_TIME,
};
use super::work::Work;
use crate::backend::Dialect;
use crate::conflict::Conflict;
use crate::model::ShardedTable;

macro_rules! count {
    // The key is made when it is compiled, which costs next to nothing.
    ($metric:ident, $by:expr, $label:literal => $value:literal) => {{
        static LABELS: [Label; 1] = [Label::from_static_parts($label, $value)];
        static KEY: Key = Key::from_static_parts($metric.name, &LABELS);
        increment(&KEY, $by);
    }};
    ($metric:ident, $by:expr $(, $label:literal => $value:expr)*) => {
        metrics::counter!($metric.name $(, $label => $value)*).increment($by)
    };
}

/// Gives the recorder that was installed the unit and a description of each metric; to be called once after it was installed.
pub fn describe_metrics() {
    for metric in ALL {
        match metric.kind {
            Kind::Counter => metrics::describe_counter!(metric.name, Unit::Count, metric.counts),
            Kind::Sizes => metrics::describe_histogram!(metric.name, Unit::Count, metric.counts),
            Kind::Seconds => {
                metrics::describe_histogram!(metric.name, Unit::Seconds, metric.counts)
            }
        }
    }
}

/// The keys of the metrics of each update of a table, made when the crate is compiled: making one takes as long as a tenth of an
/// update on SQLite in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Keys(&'static UpdateKeys);

#[derive(Debug)]
struct UpdateKeys {
    succeeded: Key,
    failed: Key,
    attempts: Key,
}

impl Keys {
    #[inline]
    pub(crate) fn of<T: ShardedTable>(dialect: Dialect) -> Self {
        Keys(match dialect {
            Dialect::Postgres => KeysOf::<T, { Dialect::Postgres as u8 }>::KEYS,
            Dialect::Mysql => KeysOf::<T, { Dialect::Mysql as u8 }>::KEYS,
            Dialect::Sqlite => KeysOf::<T, { Dialect::Sqlite as u8 }>::KEYS,
        })
    }
}

struct KeysOf<T, const DIALECT: u8>(PhantomData<T>);

impl<T: ShardedTable, const DIALECT: u8> KeysOf<T, DIALECT> {
    const BACKEND: Label = Label::from_static_parts(
        "backend",
        backend_of(match DIALECT {
            dialect if dialect == Dialect::Postgres as u8 => Dialect::Postgres,
            dialect if dialect == Dialect::Mysql as u8 => Dialect::Mysql,
            _ => Dialect::Sqlite,
        }),
    );
    const TABLE: Label = Label::from_static_parts("table", T::SHARDS_TABLE.as_str());
    const LABELS: &'static [Label] = &[Self::BACKEND, Self::TABLE];
    const SUCCEEDED: &'static [Label] = &[
        Self::BACKEND,
        Self::TABLE,
        Label::from_static_parts("outcome", outcome_of(true)),
    ];
    const FAILED: &'static [Label] = &[
        Self::BACKEND,
        Self::TABLE,
        Label::from_static_parts("outcome", outcome_of(false)),
    ];
    const KEYS: &'static UpdateKeys = &UpdateKeys {
        succeeded: Key::from_static_parts(UPDATES.name, Self::SUCCEEDED),
        failed: Key::from_static_parts(UPDATES.name, Self::FAILED),
        attempts: Key::from_static_parts(ATTEMPTS.name, Self::LABELS),
    };
}

#[inline]
fn increment(key: &Key, by: u64) {
    static METADATA: Metadata<'static> = Metadata::new("diesel_sharded", Level::INFO, None);
    metrics::with_recorder(|recorder| recorder.register_counter(key, &METADATA)).increment(by);
}

/// The numbers of a counting update.
#[derive(Debug)]
pub(super) struct UpdateMetrics {
    dialect: Dialect,
    table: &'static str,
    keys: Keys,
    /// The shards that the attempt created.
    created: u64,
}

impl UpdateMetrics {
    #[inline]
    pub(super) fn begin(dialect: Dialect, table: &'static str, keys: Keys) -> Self {
        UpdateMetrics {
            dialect,
            table,
            keys,
            created: 0,
        }
    }

    #[inline]
    pub(super) fn created(&mut self, shards: usize) {
        self.created += shards as u64;
    }

    #[inline]
    pub(super) fn failed(&mut self, conflict: Option<Conflict>) {
        self.created = 0;
        if let Some(conflict) = conflict {
            count!(CONFLICTS, 1, "backend" => backend_of(self.dialect), "table" => self.table,
                "conflict" => conflict_of(conflict));
        }
    }

    #[inline]
    pub(super) fn ended(&self, attempts: u32, succeeded: bool) {
        let Keys(keys) = self.keys;
        let outcome = match succeeded {
            true => &keys.succeeded,
            false => &keys.failed,
        };
        increment(outcome, 1);
        increment(&keys.attempts, attempts.into());
        if self.created > 0 {
            count!(SHARDS_CREATED, self.created,
                "backend" => backend_of(self.dialect), "table" => self.table);
        }
    }
}

/// The labels of a transaction's numbers.
#[derive(Debug)]
pub(super) struct TransactionMetrics(Dialect, Work);

impl TransactionMetrics {
    #[inline]
    pub(super) fn begin(dialect: Dialect, work: Work) -> Self {
        TransactionMetrics(dialect, work)
    }

    #[inline]
    pub(super) fn failed(&self, conflict: Option<Conflict>) {
        if let Some(conflict) = conflict {
            count!(TRANSACTION_CONFLICTS, 1, "backend" => backend_of(self.0),
                "kind" => kind_of(self.1), "conflict" => conflict_of(conflict));
        }
    }

    #[inline]
    pub(super) fn ended(&self, attempts: u32, succeeded: bool) {
        let (backend, kind) = (backend_of(self.0), kind_of(self.1));
        count!(TRANSACTIONS, 1, "backend" => backend, "kind" => kind,
            "outcome" => outcome_of(succeeded));
        count!(TRANSACTION_ATTEMPTS, attempts.into(), "backend" => backend, "kind" => kind);
    }
}

#[inline]
pub(super) fn folded(dialect: Dialect, table: &str, parents: usize, shards: usize, removed: usize) {
    let backend = backend_of(dialect);
    count!(FOLDED_PARENTS, parents as u64, "backend" => backend, "table" => table.to_owned());
    count!(FOLDED_SHARDS, shards as u64, "backend" => backend, "table" => table.to_owned());
    count!(SHARDS_REMOVED, removed as u64, "backend" => backend, "table" => table.to_owned());
}

#[inline]
pub(super) fn folder_passed(table: &'static str, time: Duration, succeeded: bool) {
    count!(PASSES, 1, "table" => table, "outcome" => outcome_of(succeeded));
    metrics::histogram!(PASS_TIME.name, "table" => table).record(time.as_secs_f64());
}

#[inline]
pub(super) fn flush(counters: usize, callers: usize) {
    metrics::histogram!(BATCH_COUNTERS.name).record(counters as f64);
    metrics::histogram!(BATCH_CALLERS.name).record(callers as f64);
}

#[inline]
pub(super) fn flushed(time: Duration) {
    metrics::histogram!(FLUSH_TIME.name).record(time.as_secs_f64());
}

#[inline]
pub(super) fn waited(began: Instant) {
    metrics::histogram!(WAIT_TIME.name).record(began.elapsed().as_secs_f64());
}

#[inline]
pub(super) fn flush_conflict(dialect: Dialect, conflict: Conflict) {
    count!(BATCH_CONFLICTS, 1, "backend" => backend_of(dialect),
        "conflict" => conflict_of(conflict));
}

#[inline]
pub(super) fn lost() {
    count!(LOSSES, 1);
}

#[inline]
pub(super) fn cache_read(read: CacheRead) {
    match read {
        CacheRead::Hit => count!(CACHE_READS, 1, "result" => "hit"),
        CacheRead::Miss => count!(CACHE_READS, 1, "result" => "miss"),
        CacheRead::Shared => count!(CACHE_READS, 1, "result" => "shared"),
        CacheRead::Bypassed => count!(CACHE_READS, 1, "result" => "bypassed"),
    }
}

#[inline]
pub(super) fn cache_unavailable() {
    count!(CACHE_FAILURES, 1, "failure" => "unavailable");
}

#[inline]
pub(super) fn not_a_total() {
    count!(CACHE_FAILURES, 1, "failure" => "not_a_total");
}

#[inline]
pub(super) fn crowded(table: &'static str) {
    count!(CROWDED, 1, "table" => table);
}
