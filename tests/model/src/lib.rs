//! A model of the protocols by which `diesel_sharded` moves and counts values, for the model checker Stateright.
//!
//! The checker runs every interleaving of the sessions of a [`Scenario`]: each [`Step`](session::Step) is one statement, by its name in
//! the code, on a [`Database`](database::Database) of rows, locks and transactions. Connections may be killed before COMMIT, and cut
//! while it is in flight. The [`properties`] hold in every state. Each [`Fix`] can be left out, to see the fault that it prevents.
//!
//! Beside it, [`pooler`] is a model of kept statements behind a pooler, and [`schedules`] run the library's own threads at random.

#![deny(missing_docs)]

pub mod check;
pub mod database;
pub mod fix;
pub mod isolation;
pub mod ledger;
pub mod model;
pub mod operation;
pub mod operations;
pub mod outcome;
pub mod pooler;
pub mod properties;
pub mod rows;
pub mod rules;
pub mod scenario;
// The sources of the library in it have unit tests of their own, which want real threads.
#[cfg(not(test))]
pub mod schedules;
pub mod session;
pub mod turn;

pub use crate::fix::Fix;
pub use crate::isolation::Isolation;
pub use crate::rows::Place;
pub use crate::rules::{Rules, Surroundings};
pub use crate::scenario::Scenario;
