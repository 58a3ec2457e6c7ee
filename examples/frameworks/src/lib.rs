//! What a server answers when an increment fails.

use diesel::result::Error::NotFound;
use diesel_sharded::Error;

/// The HTTP status for an error of Diesel's, which may hold one of `diesel_sharded`'s. The guide has the same table.
pub fn status(error: diesel::result::Error) -> u16 {
    match Error::from(error) {
        Error::Diesel(NotFound) => 404,
        // Nothing was changed, and a repeat fails again.
        Error::Overflow { .. } | Error::IdempotencyKeyReused => 409,
        // Nothing was changed, and a repeat may succeed.
        Error::ConflictPersisted { .. }
        | Error::ConnectionLost { .. }
        | Error::NodeNotReady { .. }
        | Error::StatementLost { .. }
        | Error::DiskFull { .. }
        | Error::DeadlinePassed { .. } => 503,
        // The outcome is unknown, or a human has to act: a client does not repeat it by itself.
        _ => 500,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use diesel::result::Error as DieselError;
    use diesel_sharded::Conflict;

    use super::*;

    #[test]
    fn each_error_has_its_status() {
        let busy = Error::ConflictPersisted {
            conflict: Conflict::Busy,
            attempts: 3,
            elapsed: Duration::from_secs(10),
            source: NotFound,
        };
        let lost = Error::ConnectionLost { source: NotFound };
        let unknown = Error::OutcomeUnknown { source: NotFound };
        let overflow = Error::Overflow { source: NotFound };
        for (error, expected) in [(busy, 503), (lost, 503), (unknown, 500), (overflow, 409)] {
            let text = error.to_string();
            assert_eq!(status(DieselError::from(error)), expected, "{text}");
        }
        assert_eq!(status(NotFound), 404);
        assert_eq!(status(DieselError::RollbackTransaction), 500);
    }
}
