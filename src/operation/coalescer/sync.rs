//! The hand-off's locks and atomics. The model checker compiles the same hand-off over its own (`tests/model/tests/model/interleavings.rs`).

pub(super) use std::sync::atomic::{AtomicUsize, Ordering};
pub(super) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
