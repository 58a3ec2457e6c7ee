//! The table of all spans, events and metrics.

/// The target of all spans and events.
#[cfg(feature = "tracing")]
pub(super) const TARGET: &str = "diesel_sharded";

/// A span's name, or an event's message.
#[cfg(feature = "tracing")]
pub(super) struct Name {
    pub(super) level: tracing::Level,
    pub(super) text: &'static str,
}

/// A metric.
#[cfg(feature = "metrics")]
pub(super) struct Metric {
    pub(super) name: &'static str,
    kind: Kind,
    /// The thing that it counts or measures.
    counts: &'static str,
}

/// The type of a metric.
#[cfg(feature = "metrics")]
#[derive(Clone, Copy)]
enum Kind {
    Counter,
    /// A histogram of sizes.
    Sizes,
    /// A histogram of times.
    Seconds,
}

/// A warning that goes to `log` where no subscriber listens.
pub(super) const MORE_SHARDS: &str =
    "more shards would help: all of one key were being counted on at once";

macro_rules! names {
    (
        spans { $($span:ident: $span_level:ident, $span_text:literal;)+ }
        events { $($event:ident: $event_level:ident, $event_text:expr;)+ }
        metrics { $($metric:ident: $kind:ident, $name:literal, $counts:literal;)+ }
    ) => {
        $(
            #[cfg(feature = "tracing")]
            pub(super) const $span: Name = Name { level: tracing::Level::$span_level, text: $span_text };
        )+
        $(
            #[cfg(feature = "tracing")]
            pub(super) const $event: Name = Name { level: tracing::Level::$event_level, text: $event_text };
        )+
        $(
            #[cfg(feature = "metrics")]
            pub(super) const $metric: Metric = Metric { name: $name, kind: Kind::$kind, counts: $counts };
        )+

        #[cfg(feature = "metrics")]
        const METRICS: &[Metric] = &[$($metric),+];
        #[cfg(all(test, feature = "tracing"))]
        const SPANS: &[Name] = &[$($span),+];
        #[cfg(all(test, feature = "tracing"))]
        const EVENTS: &[Name] = &[$($event),+];
    };
}

names! {
    spans {
        UPDATE: INFO, "update";
        TRANSACTION: INFO, "transaction";
        ATTEMPT: DEBUG, "attempt";
        STATEMENT: DEBUG, "statement";
        FOLD: INFO, "fold";
        FLUSH: INFO, "flush";
    }
    events {
        CONFLICT: DEBUG, "conflict";
        FAILED: DEBUG, "failed";
        FOLDED: INFO, "folded";
        FOLDER_FAILED: WARN, "a pass of a folder failed: see 'on_error'";
        MORE_SHARDS_WOULD_HELP: WARN, MORE_SHARDS;
        CACHE_LEFT_OUT: WARN, "the cache could not be used and is left out for a while";
        CACHE_FAILED: DEBUG, "the cache failed";
        LOST: ERROR, "what was added to a coalescer could not be counted: see 'on_loss'";
    }
    metrics {
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
        FOLDED_SHARDS: Counter, "diesel_sharded_folded_shards_total",
            "shards that a fold emptied";
        SHARDS_REMOVED: Counter, "diesel_sharded_shards_removed_total",
            "empty shards that a fold removed";
        PASSES: Counter, "diesel_sharded_folder_passes_total", "passes of folders";
        PASS_TIME: Seconds, "diesel_sharded_folder_pass_seconds", "the time that a pass took";
        FLUSH_COUNTERS: Sizes, "diesel_sharded_coalescer_flush_counters", "counters in a flush";
        FLUSH_TIME: Seconds, "diesel_sharded_coalescer_flush_seconds",
            "the time that a flush took";
        LOSSES: Counter, "diesel_sharded_coalescer_losses_total",
            "counters that lost what was added";
        COMBINED: Counter, "diesel_sharded_combined_total",
            "counts that were sent together with others, by another caller or for others";
        COMBINED_CALLERS: Sizes, "diesel_sharded_combined_callers", "callers of a combined batch";
        COMBINED_WAIT: Seconds, "diesel_sharded_combined_wait_seconds",
            "the time that a caller waited for another";
        NOT_COMBINED: Counter, "diesel_sharded_not_combined_total",
            "counts that could not be combined, though there is a combiner";
        CACHE_READS: Counter, "diesel_sharded_cache_reads_total",
            "totals that were asked for by Cached::get";
        CACHE_FAILURES: Counter, "diesel_sharded_cache_failures_total", "failures of a cache";
    }
}

/// Gives the recorder that was installed the unit and a description of each metric; to be called once after it was installed.
#[cfg(feature = "metrics")]
pub fn describe_metrics() {
    use metrics::{Unit, describe_counter, describe_histogram};
    for metric in METRICS {
        match metric.kind {
            Kind::Counter => describe_counter!(metric.name, Unit::Count, metric.counts),
            Kind::Sizes => describe_histogram!(metric.name, Unit::Count, metric.counts),
            Kind::Seconds => describe_histogram!(metric.name, Unit::Seconds, metric.counts),
        }
    }
}

#[cfg(all(test, feature = "tracing", feature = "metrics"))]
mod tests {
    use super::*;

    const DOCS: &str = include_str!("../observability.rs");

    #[test]
    fn the_documentation_has_a_row_for_each_span_and_event() {
        let (spans, events) = DOCS.split_once("Events, by their messages").unwrap();
        for (docs, names) in [(spans, SPANS), (events, EVENTS)] {
            for Name { level, text } in names {
                let row = format!("//! | `{text}` | {level} |");
                assert!(docs.contains(&row), "{row}");
            }
        }
    }

    #[test]
    fn the_documentation_has_a_row_for_each_metric() {
        let docs = DOCS.replace("`Cached::get`", "Cached::get");
        for metric in METRICS {
            let kind = match metric.kind {
                Kind::Counter => "counter",
                Kind::Sizes | Kind::Seconds => "histogram",
            };
            let row = format!("//! | `{}` | {kind} | {} |", metric.name, metric.counts);
            assert!(docs.contains(&row), "{row}");
        }
        assert_eq!(
            docs.matches("//! | `diesel_sharded_").count(),
            METRICS.len()
        );
    }
}
