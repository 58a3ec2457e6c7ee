//! Where operations are done.

use crate::operation::{Operation, Refused, Totals};

/// Something that can be counted on: a database through the library, or what a test puts in its place.
pub trait Store<O = Operation, A = Totals> {
    /// Gets ready for the next operation: what is done here is not part of any.
    fn prepare(&mut self) {}

    /// Does one operation, and tells what it saw.
    ///
    /// # Errors
    /// Why it was not done, or may not have been.
    fn run(&mut self, operation: &O) -> Result<A, Refused>;
}

/// The kind of a refusal because the database could not be reached: nothing was sent.
pub const NO_CONNECTION: &str = "NoConnection";

/// The kind of a refusal because the library says that a row is not there, which is.
pub const NOT_THERE: &str = "NotThere";
