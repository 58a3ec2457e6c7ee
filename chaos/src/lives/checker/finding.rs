//! The findings of the checker of lives, and the state at the end that it compares.

use std::fmt;

use serde::Serialize;
use thiserror::Error;

use crate::lives::Seen;

/// The state of the database after all clients have stopped.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Aftermath {
    pub lives: Vec<Seen>,
    pub named: Vec<(String, i64)>,
}

/// A counter with a total: a life or a named counter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counted {
    Life(i64),
    Named(String),
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Counted::Life(number) => write!(f, "life {number}"),
            Counted::Named(name) => write!(f, "counter {name:?}"),
        }
    }
}

/// A violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Finding {
    /// No order of the operations explains a total. The bounds are those of the last era.
    #[error("{at}: {counted} is {value}, outside of {lowest} to {highest}")]
    OutOfBounds {
        at: String,
        counted: Counted,
        value: i64,
        lowest: i64,
        highest: i64,
    },
    /// A total at the end is not the sum of the acknowledged amounts and some of those that may belong to another life.
    #[error(
        "{counted} ends with {value}, which is not {acknowledged} plus some of {unknown} counts that may belong to another life"
    )]
    WrongTotal {
        counted: Counted,
        value: i64,
        acknowledged: i64,
        unknown: usize,
    },
    /// The growth of all lives together is not the sum of the acknowledged amounts.
    #[error("all lives together have grown by {grown}, where {acknowledged} was acknowledged")]
    WrongSum { grown: i64, acknowledged: i64 },
    /// A row was reported missing, or not returned, and was there all along.
    #[error("{at}: row {key} is missing and was there all along")]
    NotThere { at: String, key: i64 },
    /// A row was reported where it cannot have been.
    #[error("{at}: row {key} is there and cannot be")]
    CannotBeThere { at: String, key: i64 },
    /// A total is outside the bounds of all counts.
    #[error("{at}: life {life} is {value}, outside the bounds of all counts")]
    BeyondBounds { at: String, life: i64, value: i64 },
    /// Nothing explains an error, or it does not tell the outcome.
    #[error("{at}: an error that does not tell the outcome, or that nothing explains: {error}")]
    Unclassified { at: String, error: String },
}
