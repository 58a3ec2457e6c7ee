//! The findings of the checker.

use std::fmt;

use crate::operation::{Counter, Totals};

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// A read that no order of the operations explains. The interval is that of the last era.
    ReadOutOfBounds {
        client: String,
        number: u64,
        counter: Counter,
        value: i64,
        lowest: i64,
        highest: i64,
    },
    /// A total at the end that is not the sum of what was acknowledged and some of what is unknown.
    WrongTotal {
        counter: Counter,
        value: i64,
        acknowledged: i64,
        unknown: usize,
    },
    /// A transaction that was acknowledged, and has no token.
    AcknowledgedLost { token: String },
    /// A transaction of which the library said that it changed nothing, and has a token.
    FailedButApplied { token: String, error: String },
    /// A token that no transaction asked for, or one that is there twice.
    StrangeToken { token: String },
    /// Rows that are counted together, apart.
    TeamTorn {
        client: String,
        number: u64,
        totals: Totals,
    },
    /// A total that only grows, smaller than it was read before.
    WentBack {
        client: String,
        number: u64,
        counter: Counter,
        value: i64,
        before: i64,
    },
    /// An error that no fault explains, or none of the library's kinds, where it promises one.
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
                "read {number} of client {client}: {counter} is {value}, and cannot be but from {lowest} to {highest}"
            ),
            Finding::WrongTotal {
                counter,
                value,
                acknowledged,
                unknown,
            } => write!(
                f,
                "at the end {counter} is {value}, which is not {acknowledged} and some of {unknown} unknown counts"
            ),
            Finding::AcknowledgedLost { token } => {
                write!(f, "transaction {token} was acknowledged, and is lost")
            }
            Finding::FailedButApplied { token, error } => {
                write!(f, "transaction {token} is there, and had failed: {error}")
            }
            Finding::StrangeToken { token } => {
                write!(
                    f,
                    "token {token} is there, and nobody asked for it, or once only"
                )
            }
            Finding::TeamTorn {
                client,
                number,
                totals,
            } => write!(
                f,
                "read {number} of client {client}: rows that are counted together differ: {totals:?}"
            ),
            Finding::WentBack {
                client,
                number,
                counter,
                value,
                before,
            } => write!(
                f,
                "read {number} of client {client}: {counter} is {value}, and was {before} before"
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
