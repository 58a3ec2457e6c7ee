//! The conflicts that this process met, as its retry policy reports them.

use std::sync::atomic::{AtomicU64, Ordering};

use diesel::result::Error as DieselError;
use diesel_sharded::retry::RetryPolicy;
use diesel_sharded::{Conflict, Error};

/// The kinds, with their names in SQL's words.
pub const KINDS: [(Conflict, &str); 5] = [
    (Conflict::Busy, "Database busy (SQLite)"),
    (Conflict::Deadlock, "Deadlock"),
    (Conflict::LockTimeout, "Lock timeout"),
    (Conflict::Serialization, "Serialization failure"),
    (Conflict::StatementTimeout, "Statement timeout"),
];

static RETRIED: [AtomicU64; KINDS.len()] = [const { AtomicU64::new(0) }; KINDS.len()];
static GIVEN_UP: AtomicU64 = AtomicU64::new(0);

/// The conflicts since the process began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conflicts {
    /// Attempts that were retried, in the order of [`KINDS`].
    pub retried: [u64; KINDS.len()],
    /// Updates whose last attempt met a conflict too.
    pub given_up: u64,
}

impl Conflicts {
    pub fn so_far() -> Self {
        Conflicts {
            retried: RETRIED.each_ref().map(|kind| kind.load(Ordering::Relaxed)),
            given_up: GIVEN_UP.load(Ordering::Relaxed),
        }
    }
}

/// Lets every update of this process record its conflicts, since this is the only policy it has.
pub fn note_process_wide() {
    let noting = RetryPolicy::new().with_notify(|attempted| {
        let kinds = KINDS.iter().zip(&RETRIED);
        for (_, count) in kinds.filter(|((kind, _), _)| *kind == attempted.conflict) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    noting.set_global();
}

/// Records an error if it is a conflict that was not retried.
pub fn noted(error: DieselError) -> Error {
    let error = Error::from(error);
    if let Error::ConflictPersisted { .. } = error {
        GIVEN_UP.fetch_add(1, Ordering::Relaxed);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_given_up_is_a_conflict_and_nothing_else() {
        let given_up = || Conflicts::so_far().given_up;
        assert_eq!(given_up(), 0);
        noted(DieselError::NotFound);
        assert_eq!(given_up(), 0);
        noted(DieselError::from(Error::ConflictPersisted {
            conflict: Conflict::Deadlock,
            attempts: 32,
            elapsed: Duration::from_secs(10),
            source: DieselError::NotFound,
        }));
        assert_eq!(given_up(), 1);
    }
}
