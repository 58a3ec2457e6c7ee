//! Spans and events by `tracing`, numbers by `metrics`.
//!
//! Their names and meanings are documented in [`observability`](crate::observability). The rest of the crate calls the functions here
//! whatever the features are; without its feature, each part is replaced by an empty twin.

mod events;
#[cfg(any(feature = "tracing", feature = "metrics"))]
mod labels;
#[cfg(feature = "metrics")]
mod metric_names;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(not(feature = "metrics"))]
#[path = "no_metrics.rs"]
mod metrics;
mod operation;
#[cfg(feature = "tracing")]
mod span_names;
#[cfg(feature = "tracing")]
mod spans;
#[cfg(not(feature = "tracing"))]
#[path = "no_spans.rs"]
mod spans;
mod work;

pub(crate) use self::events::{
    CacheRead, cache_read, cache_unavailable, crowded, flush, flush_conflict, flushed, fold,
    folded, lost, more_shards_would_help, not_a_total, waited,
};
pub(crate) use self::metrics::Keys;
#[cfg(feature = "metrics")]
pub use self::metrics::describe_metrics;
pub(crate) use self::operation::{CountObserver, Observer, Transaction, Update};
pub(crate) use self::spans::Scope;
pub(crate) use self::work::Work;
