//! The claims' locks. `tests/model` compiles the same claims over the locks of its random schedules.

pub(super) use std::sync::{Mutex, MutexGuard, PoisonError};
