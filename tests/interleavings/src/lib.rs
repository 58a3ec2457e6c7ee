//! The parts of `diesel_sharded` where threads meet, over the locks of the model checker loom. These sources of the library know no
//! database. Each public function is what a few threads do, for the model checker to run in every order.

#[allow(dead_code, reason = "the library remembers more than reservations")]
#[path = "../../../src/placement/keys.rs"]
mod keys;
mod leaders;
#[path = "../../../src/placement/reservations.rs"]
mod reservations;
#[allow(clippy::clone_on_copy, reason = "the library's names are no numbers")]
#[path = "../../../src/counting/combine/slots.rs"]
mod slots;
#[path = "../../../src/connection/wait.rs"]
mod wait;

/// The model checker's, under these sources.
mod sync {
    pub(super) use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(super) use std::sync::PoisonError;
}

/// All threads of the model checker are in one process.
struct MadeIn;

impl MadeIn {
    fn this_process() -> Self {
        MadeIn
    }

    fn is_this_process(&self) -> bool {
        true
    }
}

/// The error of a batch.
type SharedError = Box<str>;

/// The name of a counter.
type CounterKey = u8;

/// The sum of amounts.
type Sum = i128;

pub mod combining;
pub mod reserving;
mod task;
