//! A model of the protocols by which `diesel_sharded` moves and counts values, for the model checker Stateright.
//!
//! The checker runs every interleaving of the sessions of a [`Scenario`]: each [`Step`](session::Step) is one statement, by its name in
//! the code, on a [`Database`](database::Database) of rows, locks and transactions. Connections may be killed before COMMIT, and cut
//! while it is in flight. The [`properties`] hold in every state. Each [`Fix`] can be left out, to see the fault that it prevents.
//!
//! Beside it, [`pooler`] is a model of kept statements behind a pooler, [`ranks`] runs the library's own claims, and [`slots`] its slots.

#![deny(missing_docs)]

pub mod check;
pub mod database;
pub mod ledger;
pub mod model;
pub mod operation;
pub mod operations;
pub mod outcome;
pub mod pooler;
pub mod properties;
// The source of the library in it has unit tests of its own, which want real threads.
#[cfg(not(test))]
pub mod ranks;
pub mod rows;
pub mod rules;
pub mod scenario;
pub mod session;
#[cfg(not(test))]
pub mod slots;
pub mod turn;

pub use crate::rows::Place;
pub use crate::rules::{Fix, Isolation, Rules, Surroundings};
pub use crate::scenario::Scenario;
