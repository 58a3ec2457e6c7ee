//! The findings of the checkers.

use thiserror::Error;

use crate::operation::Totals;

/// A violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Finding {
    /// A read returned a total that no order of the operations explains. The bounds are those of the last era.
    #[error("{at}: {counter} is {value}, outside of {lowest} to {highest}")]
    OutOfBounds {
        at: String,
        counter: String,
        value: i64,
        lowest: i64,
        highest: i64,
    },
    /// A total at the end is not the sum of the acknowledged amounts and some of the unknown ones.
    #[error(
        "{counter} ends with {value}, which is not {acknowledged} plus some of {unknown} counts that may be in it"
    )]
    WrongTotal {
        counter: String,
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
    #[error("{at}: rows that are always counted together differ: {totals:?}")]
    TeamTorn { at: String, totals: Totals },
    /// A total that only grows is smaller than in an earlier read.
    #[error("{at}: {counter} is {value} and was {before} before")]
    WentBack {
        at: String,
        counter: String,
        value: i64,
        before: i64,
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
