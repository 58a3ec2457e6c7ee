//! MariaDB's compound statement that claims a key and counts: how it ends, and which servers know it.

use std::sync::atomic::{AtomicU8, Ordering};

use diesel::result::{DatabaseErrorKind, Error as DieselError, QueryResult};

use crate::conflict::Failure;
use crate::connection::{Io, Link, clean_up, other_nodes_write};

/// Is set in the statement's own transaction, and so tells it from any other.
pub(super) const SAVEPOINT: &str = "diesel_sharded_once";

/// The error with which the statement takes back its key where it finds no shard.
pub(super) const SHARD_MISSING: &str = "diesel_sharded: the shard is missing";

/// The experience of this process with the statement.
static KNOWN: AtomicU8 = AtomicU8::new(UNTRIED);

const UNTRIED: u8 = 0;
/// It has counted.
const COUNTS: u8 = 1;
/// A server does not know its syntax, as MySQL does not.
const REFUSED: u8 = 2;

/// Whether the statement may be sent. Where other nodes write too, a transaction has a guard, which it lacks.
pub(super) fn may_be_sent() -> bool {
    KNOWN.load(Ordering::Relaxed) != REFUSED && !other_nodes_write()
}

/// The outcome of the statement that was sent: 1 if it counted, 0 if it did nothing for a reason that a transaction may cure.
pub(super) async fn ended<M, Conn>(
    link: &mut Link<'_, M, Conn>,
    sent: QueryResult<usize>,
) -> QueryResult<usize>
where
    M: Io<Conn>,
{
    let dialect = link.dialect();
    let error = match sent {
        Ok(_) => {
            KNOWN.store(COUNTS, Ordering::Relaxed);
            return Ok(1);
        }
        Err(error) if dialect.is_refused_inside(&error) => return Ok(0),
        Err(error) => error,
    };
    if dialect.lacks_syntax(&error) {
        KNOWN.store(REFUSED, Ordering::Relaxed);
        return Ok(0);
    }
    let failure = dialect.classify(&error);
    if failure != Failure::ConnectionLost {
        clean_up(link, UNDO).await;
    }
    if did_nothing(&error) {
        return Ok(0);
    }
    // A server that does not know the syntax may say so in another language.
    match failure {
        Failure::Other if KNOWN.load(Ordering::Relaxed) != COUNTS => Ok(0),
        _ => Err(error),
    }
}

/// Whether the key is known, or the shard is missing.
fn did_nothing(error: &DieselError) -> bool {
    match error {
        DieselError::DatabaseError(DatabaseErrorKind::UniqueViolation, _) => true,
        DieselError::DatabaseError(_, information) => information.message() == SHARD_MISSING,
        _ => false,
    }
}

/// Rolls the statement's transaction back if it is still open: a statement that is killed may not reach its handler. Without its
/// savepoint (1305) there is none, and on MySQL nothing happens.
const UNDO: &str = "/*M!100000 BEGIN NOT ATOMIC DECLARE EXIT HANDLER FOR 1305 BEGIN END; \
                    ROLLBACK TO SAVEPOINT diesel_sharded_once; ROLLBACK; END */ /*!50720 DO 0 */";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_undo_names_the_statements_own_savepoint() {
        assert!(UNDO.contains(&format!("ROLLBACK TO SAVEPOINT {SAVEPOINT}; ROLLBACK;")));
    }

    #[test]
    fn the_reasons_to_begin_a_transaction() {
        let error = |kind, text: &str| DieselError::DatabaseError(kind, Box::new(text.to_owned()));
        let duplicate = "Duplicate entry 'a' for key 'PRIMARY'";
        assert!(did_nothing(&error(
            DatabaseErrorKind::UniqueViolation,
            duplicate
        )));
        let unknown = |text| did_nothing(&error(DatabaseErrorKind::Unknown, text));
        assert!(unknown(SHARD_MISSING));
        assert!(!unknown("Query execution was interrupted"));
        assert!(!did_nothing(&DieselError::NotFound));
    }
}
