//! The table of the metrics: their names, types and meanings.

/// A metric.
#[derive(Debug, Clone, Copy)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// The thing that it counts or measures.
    pub(super) counts: &'static str,
}

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    /// A histogram of sizes.
    Sizes,
    /// A histogram of times.
    Seconds,
}

macro_rules! metrics {
    ($($metric:ident: $kind:ident, $name:literal, $counts:literal;)+) => {
        $(pub(super) const $metric: Metric = Metric {
            name: $name,
            kind: Kind::$kind,
            counts: $counts,
        };)+
        /// All of them.
        pub(super) const ALL: &[Metric] = &[$($metric),+];
    };
}

metrics! {
    UPDATES: Counter, "diesel_sharded_updates_total", "counting updates";
    ATTEMPTS: Counter, "diesel_sharded_attempts_total", "attempts that they took";
    CONFLICTS: Counter, "diesel_sharded_conflicts_total", "conflicts that they met";
    SHARDS_CREATED: Counter, "diesel_sharded_shards_created_total",
        "shards that they created; on MySQL only those by key";
    CROWDED: Counter, "diesel_sharded_crowded_total",
        "counts that found all shards of their key taken: more would help";
    TRANSACTIONS: Counter, "diesel_sharded_transactions_total",
        "transactions, and what else is tried again as a whole";
    TRANSACTION_ATTEMPTS: Counter, "diesel_sharded_transaction_attempts_total",
        "attempts that they took";
    TRANSACTION_CONFLICTS: Counter, "diesel_sharded_transaction_conflicts_total",
        "conflicts that they met";
    FOLDED_PARENTS: Counter, "diesel_sharded_folded_parents_total",
        "parents that a fold moved something to";
    FOLDED_SHARDS: Counter, "diesel_sharded_folded_shards_total", "shards that a fold emptied";
    SHARDS_REMOVED: Counter, "diesel_sharded_shards_removed_total",
        "empty shards that a fold removed";
    PASSES: Counter, "diesel_sharded_folder_passes_total", "passes of folders";
    PASS_TIME: Seconds, "diesel_sharded_folder_pass_seconds", "the time that a pass took";
    BATCH_COUNTERS: Sizes, "diesel_sharded_coalescer_batch_counters", "counters in a batch";
    BATCH_CALLERS: Sizes, "diesel_sharded_coalescer_batch_callers",
        "callers who waited for a batch";
    FLUSH_TIME: Seconds, "diesel_sharded_coalescer_flush_seconds", "the time that a batch took";
    WAIT_TIME: Seconds, "diesel_sharded_coalescer_wait_seconds",
        "the time that a caller waited";
    BATCH_CONFLICTS: Counter, "diesel_sharded_coalescer_conflicts_total",
        "conflicts that batches met";
    LOSSES: Counter, "diesel_sharded_coalescer_losses_total",
        "losses of what was added without waiting";
    CACHE_READS: Counter, "diesel_sharded_cache_reads_total",
        "totals that were asked for by Cached::get";
    CACHE_FAILURES: Counter, "diesel_sharded_cache_failures_total", "failures of a cache";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_a_row_for_each_metric() {
        let docs = include_str!("../observability.rs").replace("`Cached::get`", "Cached::get");
        for metric in ALL {
            let kind = match metric.kind {
                Kind::Counter => "counter",
                Kind::Sizes | Kind::Seconds => "histogram",
            };
            let row = format!("//! | `{}` | {kind} | {} |", metric.name, metric.counts);
            assert!(docs.contains(&row), "{row}");
        }
        assert_eq!(docs.matches("//! | `diesel_sharded_").count(), ALL.len());
    }
}
