//! The asynchronous operations: tasks, pools and cancellation on each database, and with the feature `all` the cases of `databases/cases/` on
//! PostgreSQL. A program of its own, so that it is compiled beside `databases`.

#![expect(
    clippy::duplicate_mod,
    reason = "the same cases, once for each kind of connections"
)]

mod cached;
mod herd;
#[cfg(feature = "all")]
mod postgres;
mod runtime_without_timers;
mod shared;
mod tasks;
