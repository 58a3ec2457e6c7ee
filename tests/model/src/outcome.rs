//! Outcomes of operations, by the names that callers receive.

/// An operation's outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// `Ok`, with the number of parents.
    Counted(u8),
    /// `Ok` of an operation that counts nothing.
    Done,
    /// `Ok`, since the same request was counted before on so many parents.
    Repeated(u8),
    /// `Ok(false)`: the bounds do not allow it.
    Refused,
    /// `Error::OutcomeUnknown`.
    Unknown,
    /// Any other error: nothing was changed.
    Failed(Failure),
}

/// An error that says that nothing was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
    /// `Conflict::SerializationFailure`.
    Serialization,
    /// `Conflict::LockTimeout`.
    LockTimeout,
    /// `Conflict::Deadlock`.
    Deadlock,
    /// `Conflict::ParentGone`.
    ParentGone,
    /// `Error::ConnectionLost`, before COMMIT was sent.
    ConnectionLost,
    /// `Error::TransactionAborted`.
    TransactionAborted,
    /// `Error::IdempotencyKeyReused`.
    IdempotencyKeyReused,
    /// `Unfit::NotLocked`.
    NotLocked,
    /// `Unfit::Removed`.
    Removed,
    /// `Unfit::Altered`.
    Altered,
    /// `DieselError::NotFound`.
    NotFound,
}
