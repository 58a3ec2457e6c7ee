//! Many counts of one process in one commit.
//!
//! A hot row is slow because of the commits, not the additions: each count waits for a transaction of its own. A [`Coalescer`]
//! gathers the counts of many threads while the last batch is being committed, adds them up by key, and commits the sums in one
//! transaction. As long as the database answers and one batch holds all counts, a caller waits for two flushes at most. More
//! counts make larger batches.
//!
//! # Losses in a crash
//!
//! | | returns | a crash of this process loses |
//! |---|---|---|
//! | [`add`](Coalescer::add) | after the commit that carries the count, with the count's own result | nothing that was acknowledged |
//! | [`add_later`](Coalescer::add_later) | at once | the additions since the last flush: at most those of [`max_delay`](CoalescerBuilder::max_delay) and one flush, on at most [`max_queued`](CoalescerBuilder::max_queued) counters |
//!
//! # Exactly once
//!
//! Each batch writes its number, in its own transaction, to a row that belongs to this coalescer (in a table of the library's
//! own: run [`MIGRATIONS`](crate::MIGRATIONS)). If the connection is lost while COMMIT is in flight, the coalescer locks and
//! reads that row on a new connection: either the batch was committed, or it is sent again. No count is lost or doubled. If your
//! own caller repeats a request, an idempotency key makes it count once: `coalescer.add(&counter.idempotency_key(key), 1)`; see
//! [`idempotency`](crate::idempotency).
//!
//! # Failures
//!
//! - A batch that meets a conflict is retried like any operation.
//! - A row that cannot take its count (an overflow, a check) fails only for its own callers; the other rows of the batch are
//!   committed.
//! - While the database is away, callers wait, at most until their [`deadline`](CoalescerBuilder::deadline):
//!   [`DeadlinePassed`](crate::Error::DeadlinePassed) guarantees that nothing was counted, and
//!   [`OutcomeUnknown`](crate::Error::OutcomeUnknown) means that the batch was in flight at that moment.
//! - When the queue is full, callers wait for room, at most until the deadline too. Memory is bounded.
//!
//! The idea is that of group commit, one level up. Reads see a count as soon as it is committed.

mod added;
mod after_commit;
mod at_once;
mod batch;
mod builder;
mod chunk;
mod coalesced;
mod handle;
#[cfg_attr(not(feature = "async"), expect(dead_code, reason = "no task waits"))]
mod handoff;
mod hot_keys;
mod lane;
mod loss;
mod owner;
mod shared;
mod stats;
mod sync;
mod token;
mod worker;

pub use self::after_commit::Counts;
pub use self::builder::CoalescerBuilder;
pub use self::coalesced::Coalesced;
pub use self::handle::Coalescer;
pub use self::loss::Loss;
pub use self::stats::Stats;
