//! Spans and events by `tracing`, numbers by `metrics`.
//!
//! Their names and meanings are documented in [`observability`](crate::observability). The rest of the crate calls the functions here
//! whatever the features are; without its feature, each part is replaced by an empty twin.
#![cfg_attr(
    not(feature = "r2d2"),
    allow(dead_code, reason = "coalescers, which need r2d2, are observed too")
)]

mod cache_read;
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

pub(crate) use self::cache_read::CacheRead;
pub(crate) use self::events::{
    cache_read, cache_unavailable, crowded, fold, folded, folder_passed, more_shards_would_help,
    not_a_total,
};
#[cfg(feature = "r2d2")]
pub(crate) use self::events::{flush, flush_conflict, flushed, lost, waited};
pub(crate) use self::metrics::Keys;
#[cfg(feature = "metrics")]
pub use self::metrics::describe_metrics;
pub(crate) use self::operation::{CountObserver, Observer, Transaction, Update};
pub(crate) use self::spans::Scope;
pub(crate) use self::work::Work;
