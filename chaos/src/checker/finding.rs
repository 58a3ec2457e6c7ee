//! The findings of the checker.

use std::fmt;

use crate::operation::{Counter, Totals};

/// A violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// A read returned a total that no order of the operations explains. The bounds are those of the last era.
    ReadOutOfBounds {
        client: String,
        number: u64,
        counter: Counter,
        value: i64,
        lowest: i64,
        highest: i64,
    },
    /// A total at the end is not the sum of the acknowledged amounts and some of the unknown ones.
    WrongTotal {
        counter: Counter,
        value: i64,
        acknowledged: i64,
        unknown: usize,
    },
    /// A transaction was acknowledged and has no token.
    AcknowledgedLost { token: String },
    /// The library reported that a transaction changed nothing, and it has a token.
    FailedButApplied { token: String, error: String },
    /// A token belongs to no transaction, or is there twice.
    StrangeToken { token: String },
    /// Rows that are always counted together differ.
    TeamTorn {
        client: String,
        number: u64,
        totals: Totals,
    },
    /// A total that only grows is smaller than in an earlier read.
    WentBack {
        client: String,
        number: u64,
        counter: Counter,
        value: i64,
        before: i64,
    },
    /// The library reported an error that no fault explains, or that does not tell the outcome.
    Unclassified {
        client: String,
        number: u64,
        operation: &'static str,
        error: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::ReadOutOfBounds {
                client,
                number,
                counter,
                value,
                lowest,
                highest,
            } => write!(
                f,
                "read {number} of client {client}: {counter} is {value}, outside of {lowest} to {highest}"
            ),
            Finding::WrongTotal {
                counter,
                value,
                acknowledged,
                unknown,
            } => write!(
                f,
                "at the end {counter} is {value}, which is not {acknowledged} plus some of {unknown} unknown counts"
            ),
            Finding::AcknowledgedLost { token } => {
                write!(f, "transaction {token} was acknowledged and is lost")
            }
            Finding::FailedButApplied { token, error } => {
                write!(f, "transaction {token} failed and was applied: {error}")
            }
            Finding::StrangeToken { token } => {
                write!(
                    f,
                    "token {token} belongs to no operation, or is there twice"
                )
            }
            Finding::TeamTorn {
                client,
                number,
                totals,
            } => write!(
                f,
                "read {number} of client {client}: rows that are always counted together differ: {totals:?}"
            ),
            Finding::WentBack {
                client,
                number,
                counter,
                value,
                before,
            } => write!(
                f,
                "read {number} of client {client}: {counter} is {value} and was {before} before"
            ),
            Finding::Unclassified {
                client,
                number,
                operation,
                error,
            } => write!(
                f,
                "operation {number} of client {client}, {operation}: an error that does not tell the outcome: {error}"
            ),
        }
    }
}
