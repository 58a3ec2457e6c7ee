//! The kinds of work that are retried as a whole.

/// Whose work is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// A transaction of the application's.
    Closure,
    /// A transaction of the crate's.
    Own,
    /// A part of a transaction that is open already.
    Savepoint,
    /// A statement that commits by itself.
    Statement,
    /// A query.
    Read,
}
