//! The findings of the checker of lives, and the state at the end that it compares.

use std::fmt;

use serde::Serialize;

use crate::lives::Seen;

/// What is found when nobody counts any more.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Aftermath {
    pub lives: Vec<Seen>,
    pub named: Vec<(String, i64)>,
}

/// What has a total.
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

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// A total that no order of the operations explains. The interval is that of the last era.
    OutOfBounds {
        at: String,
        counted: Counted,
        value: i64,
        lowest: i64,
        highest: i64,
    },
    /// A total at the end that is not what was acknowledged and some of what may have been counted.
    WrongTotal {
        counted: Counted,
        value: i64,
        acknowledged: i64,
        unknown: usize,
    },
    /// All lives together have not grown by what was acknowledged.
    WrongSum { grown: i64, acknowledged: i64 },
    /// A row was said not to be there, or not shown, and was there all along.
    NotThere { at: String, key: i64 },
    /// A row was said to be where it cannot have been.
    CannotBeThere { at: String, key: i64 },
    /// A total beyond bounds that every count keeps.
    BeyondBounds { at: String, life: i64, value: i64 },
    /// An error that nothing explains, or that does not tell the outcome.
    Unclassified { at: String, error: String },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::OutOfBounds {
                at,
                counted,
                value,
                lowest,
                highest,
            } => write!(
                f,
                "{at}: {counted} is {value}, and cannot be but from {lowest} to {highest}"
            ),
            Finding::WrongTotal {
                counted,
                value,
                acknowledged,
                unknown,
            } => write!(
                f,
                "{counted} ends with {value}, which is not {acknowledged} and some of {unknown} counts that may be another one's"
            ),
            Finding::WrongSum {
                grown,
                acknowledged,
            } => write!(
                f,
                "all lives together have grown by {grown}, where {acknowledged} was acknowledged"
            ),
            Finding::NotThere { at, key } => {
                write!(f, "{at}: no row {key}, and it was there all along")
            }
            Finding::CannotBeThere { at, key } => {
                write!(f, "{at}: a row {key}, and it cannot have been there")
            }
            Finding::BeyondBounds { at, life, value } => {
                write!(
                    f,
                    "{at}: life {life} is {value}, beyond bounds that every count keeps"
                )
            }
            Finding::Unclassified { at, error } => {
                write!(
                    f,
                    "{at}: an error that does not tell the outcome, or that nothing explains: {error}"
                )
            }
        }
    }
}
