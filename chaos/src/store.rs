//! The interface through which clients run their operations.

use crate::operation::{Operation, Refused, Totals};

/// A store of counters: a database through the library, or a test's replacement.
pub trait Store<O = Operation, A = Totals> {
    /// Prepares for the next operation. This work belongs to no operation.
    fn prepare(&mut self) {}

    /// Runs one operation, and returns its answer.
    ///
    /// # Errors
    /// If it did not happen, or may not have happened.
    fn run(&mut self, operation: &O) -> Result<A, Refused>;
}

/// The kind of error when the database could not be reached, so that nothing was sent.
pub const NO_CONNECTION: &str = "NoConnection";

/// The kind of error when the library reports a row as missing that is there.
pub const NOT_THERE: &str = "NotThere";
