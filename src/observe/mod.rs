//! Spans and events by `tracing`, numbers by `metrics`.
//!
//! Their names and meanings are documented in [`observability`](crate::observability), and stand in `names.rs`. The rest of the crate calls
//! the functions here whatever the features are; without its feature, each macro of `sinks.rs` does nothing.
#![cfg_attr(
    not(feature = "r2d2"),
    allow(dead_code, reason = "coalescers, which need r2d2, are observed too")
)]

#[macro_use]
mod sinks;
mod events;
mod names;
mod operation;

pub(crate) use self::events::{
    CacheRead, cache_read, cache_unavailable, combined, combined_wait, crowded, fold, folded,
    folder_passed, more_shards_would_help, not_a_total, not_combined,
};
#[cfg(feature = "r2d2")]
pub(crate) use self::events::{flush, flushed, lost};
#[cfg(feature = "metrics")]
pub use self::names::describe_metrics;
pub(crate) use self::operation::{Keys, Observer, Transaction, Update};
pub(crate) use self::sinks::Scope;
#[cfg(feature = "async")]
pub(crate) use self::sinks::in_callers_span;
