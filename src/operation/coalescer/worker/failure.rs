//! The failures of a batch's transaction.

use diesel::result::Error as DieselError;

use crate::backend::Dialect;
use crate::conflict::Failure;
use crate::error::Error;

/// Why a batch's transaction was not committed.
pub(super) enum BatchFailure {
    Before(DieselError),
    AtCommit(DieselError),
    /// The coalescer's row is gone.
    Unregistered,
    /// A chunk has to be counted on another rung; nothing else is wrong.
    Again,
}

/// Whether an error is caused by the row, and not by the moment or the connection.
pub(super) fn is_a_rows_fault(dialect: Dialect, error: &DieselError) -> bool {
    matches!(classify(dialect, error), Failure::Overflow | Failure::Other)
}

/// The meaning of an error that came before the batch's own COMMIT. The crate's own operations report a connection that Diesel gave
/// up, or that was lost or led to a standby while the coalescer's row was made, by errors of their own. None has counted anything.
pub(super) fn classify(dialect: Dialect, error: &DieselError) -> Failure {
    let own = match error {
        DieselError::QueryBuilderError(error) => error.downcast_ref::<Error>(),
        _ => None,
    };
    match own {
        Some(Error::ConnectionLost { .. } | Error::OutcomeUnknown { .. }) => {
            Failure::ConnectionLost
        }
        Some(Error::NodeNotReady { .. }) => Failure::NodeNotReady,
        _ => dialect.classify(error),
    }
}
