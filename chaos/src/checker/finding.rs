//! The findings of the checker.

use thiserror::Error;

use crate::operation::{Counter, Totals};

/// A violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Finding {
    /// A read returned a total that no order of the operations explains. The bounds are those of the last era.
    #[error(
        "read {number} of client {client}: {counter} is {value}, outside of {lowest} to {highest}"
    )]
    ReadOutOfBounds {
        client: String,
        number: u64,
        counter: Counter,
        value: i64,
        lowest: i64,
        highest: i64,
    },
    /// A total at the end is not the sum of the acknowledged amounts and some of the unknown ones.
    #[error(
        "at the end {counter} is {value}, which is not {acknowledged} plus some of {unknown} unknown counts"
    )]
    WrongTotal {
        counter: Counter,
        value: i64,
        acknowledged: i64,
        unknown: usize,
    },
    /// A transaction was acknowledged and has no token.
    #[error("transaction {token} was acknowledged and is lost")]
    AcknowledgedLost { token: String },
    /// The library reported that a transaction changed nothing, and it has a token.
    #[error("transaction {token} failed and was applied: {error}")]
    FailedButApplied { token: String, error: String },
    /// A token belongs to no transaction, or is there twice.
    #[error("token {token} belongs to no operation, or is there twice")]
    StrangeToken { token: String },
    /// Rows that are always counted together differ.
    #[error(
        "read {number} of client {client}: rows that are always counted together differ: {totals:?}"
    )]
    TeamTorn {
        client: String,
        number: u64,
        totals: Totals,
    },
    /// A total that only grows is smaller than in an earlier read.
    #[error("read {number} of client {client}: {counter} is {value} and was {before} before")]
    WentBack {
        client: String,
        number: u64,
        counter: Counter,
        value: i64,
        before: i64,
    },
    /// The library reported an error that no fault explains, or that does not tell the outcome.
    #[error(
        "operation {number} of client {client}, {operation}: an error that does not tell the outcome: {error}"
    )]
    Unclassified {
        client: String,
        number: u64,
        operation: &'static str,
        error: String,
    },
}
