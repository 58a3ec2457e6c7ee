//! Tracing spans and metrics: by [`tracing`] and [`metrics`], each behind the feature of its name.
//!
//! Without the features they cost nothing, and without a subscriber and a recorder little ([decision
//! 0015](https://docs.rs/crate/diesel_sharded/latest/source/docs/decisions/0015-one-engine.md) has the figures).
//!
//! # Spans and events
//!
//! All have the target `diesel_sharded`: `RUST_LOG=diesel_sharded=debug` shows them. Spans:
//!
//! | span | level | what | fields |
//! |---|---|---|---|
//! | `update` | INFO | a counting update | `backend`, `table`, `attempts`, `conflict`, `rows`, `outcome` |
//! | `transaction` | INFO | a transaction, or other work that is retried as a whole | `backend`, `kind`, `attempts`, `conflict`, `outcome` |
//! | `attempt` | DEBUG | an attempt at one of these | `attempt`, `shard`, `conflict` |
//! | `statement` | DEBUG | a statement of a counting update | `kind`, `table`, `shard`, `rows` |
//! | `fold` | INFO | a batch of a fold | `backend`, `table`, `parents` |
//! | `flush` | INFO | a flush of a coalescer | `counters` |
//!
//! Events, by their messages:
//!
//! | event | level | what | fields |
//! |---|---|---|---|
//! | `conflict` | DEBUG | an attempt met a conflict | `attempt`, `conflict`, `delay_ms` |
//! | `failed` | DEBUG | a statement of a counting update failed | `error` |
//! | `folded` | INFO | a fold moved something | `parents`, `shards`, `removed` |
//! | `a pass of a background fold failed: see 'on_error'` | WARN | each time | `table` |
//! | `more shards would help: all of one key were being counted on at once` | WARN | at most once a minute for each table | `table`, `shards` |
//! | `the cache could not be used and is left out for a while` | WARN | at most once in [`with_pause`](crate::cached::Cached::with_pause) | |
//! | `the cache failed` | DEBUG | each time | `error` |
//! | `what was added to a coalescer could not be counted: see 'on_loss'` | ERROR | a coalescer lost something | |
//!
//! Where no subscriber listens, the warning that more shards would help goes to the crate [`log`], with the feature and without.
//!
//! The values of the fields:
//!
//! | field | values |
//! |---|---|
//! | `backend` | `postgresql`, `mysql` (MariaDB too), `sqlite` |
//! | `table` | the shards table's name |
//! | `attempts`, `attempt` | how many there were; the number of one, from 1 |
//! | `conflict` | `serialization`, `deadlock`, `lock_timeout`, `statement_timeout`, `busy`, `statement_lost`, `parent_gone`: see [`Conflict`](crate::Conflict); of an operation, the last one |
//! | `outcome` | `ok`, `error` |
//! | `rows`, `parents`, `counters`, `callers`, `removed` | how many |
//! | `shards` | how many there are to choose from; in `folded`, how many were emptied |
//! | `shard` | the number of one |
//! | `kind` of a statement | `begin`, `commit`, `rollback`, and `probe`, `find_missing`, `find_parent`, `count_by_key`, `count_one`, `count_all`, `count_and_load`, `count_once`, `count_picked`, `create`, `insert_unless_there`, `insert`, `pick`, `load`, `look_inside`: see [`update`](crate::update()) |
//! | `kind` of a transaction | `closure` (by [`retry::transaction`](crate::retry::transaction())), `own` (this crate's), `savepoint` (either, inside an open one), `statement` and `read` (a single one of this crate's) |
//! | `delay_ms` | the sleep before the next attempt, if there is one |
//! | `error` | the text of the error |
//!
//! No field contains a key or an amount, except `error`: databases quote keys in their errors, and caches are asked by key. `error`
//! is in events at DEBUG only.
//!
//! # Metrics
//!
//! The names are those that Prometheus shows; times are in seconds.
//!
//! | metric | type | counts | labels |
//! |---|---|---|---|
//! | `diesel_sharded_updates_total` | counter | counting updates | `backend`, `table`, `outcome` |
//! | `diesel_sharded_attempts_total` | counter | attempts that they took | `backend`, `table` |
//! | `diesel_sharded_conflicts_total` | counter | conflicts that they met | `backend`, `table`, `conflict` |
//! | `diesel_sharded_shards_created_total` | counter | shards that they created; on MySQL only those by key | `backend`, `table` |
//! | `diesel_sharded_crowded_total` | counter | increments that found all shards of their key taken: more would help | `table` |
//! | `diesel_sharded_transactions_total` | counter | transactions, and other work that is retried as a whole | `backend`, `kind`, `outcome` |
//! | `diesel_sharded_transaction_attempts_total` | counter | attempts that they took | `backend`, `kind` |
//! | `diesel_sharded_transaction_conflicts_total` | counter | conflicts that they met | `backend`, `kind`, `conflict` |
//! | `diesel_sharded_folded_parents_total` | counter | parents that a fold moved something to | `backend`, `table` |
//! | `diesel_sharded_folded_shards_total` | counter | shards that a fold emptied | `backend`, `table` |
//! | `diesel_sharded_shards_removed_total` | counter | empty shards that a fold removed | `backend`, `table` |
//! | `diesel_sharded_folder_passes_total` | counter | passes of background folds | `table`, `outcome` |
//! | `diesel_sharded_folder_pass_seconds` | histogram | the time that a pass took | `table` |
//! | `diesel_sharded_coalescer_flush_counters` | histogram | counters in a flush | |
//! | `diesel_sharded_coalescer_flush_seconds` | histogram | the time that a flush took | |
//! | `diesel_sharded_coalescer_losses_total` | counter | counters that lost what was added | |
//! | `diesel_sharded_combined_total` | counter | increments sent together with others, by another caller or for others | `backend`, `table` |
//! | `diesel_sharded_combined_callers` | histogram | callers of a combined batch | |
//! | `diesel_sharded_combined_wait_seconds` | histogram | the time that a caller waited for another | |
//! | `diesel_sharded_not_combined_total` | counter | increments that could not be combined, though there is a combiner | `backend`, `table` |
//! | `diesel_sharded_cache_reads_total` | counter | totals that were asked for by `Cached::get` | `result` |
//! | `diesel_sharded_cache_failures_total` | counter | failures of a cache | `failure` |
//!
//! Labels have the values of the fields of the same names. `result` is `hit`, `miss` or `bypassed`
//! (inside a transaction); `failure` is `unavailable` or `not_a_total`.
//!
//! An operation is counted when it ends; a cancelled one is not. Operations inside a caller's transaction are counted whether that is
//! committed or not.
//!
//! `describe_metrics()` gives a recorder the units and descriptions above.
//!
//! ```text
//! // Of the crate metrics-exporter-prometheus.
//! let metrics = PrometheusBuilder::new().install_recorder()?;
//! diesel_sharded::observability::describe_metrics();
//! Router::new().route("/metrics", get(move || async move { metrics.render() }))
//! ```
//!
//! [`log`]: https://docs.rs/log
//! [`metrics`]: https://docs.rs/metrics
//! [`tracing`]: https://docs.rs/tracing

#[cfg(feature = "metrics")]
pub use crate::observe::describe_metrics;
