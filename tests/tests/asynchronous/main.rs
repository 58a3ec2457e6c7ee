//! The asynchronous operations: the cases of `databases/cases/` on PostgreSQL, and tasks, pools and cancellation on each database. A program of its own,
//! so that it is compiled beside `databases`.

mod cached;
mod postgres;
mod runtime_without_timers;
mod tasks;
