//! Which statements a connection may keep prepared.

use std::sync::atomic::{AtomicBool, Ordering};

use super::dialect::Dialect;

/// Whether the application has said that its clients of MySQL survive interrupted rows.
static HAS_NO_FAULTY_CLIENT: AtomicBool = AtomicBool::new(false);

/// Keeps queries prepared on MySQL and MariaDB whatever client the program has, from now on: those of the crate, and all that contain a
/// [`total`](crate::Total) or are a [`top`](crate::top()).
///
/// Without this call each of them is prepared anew each time, which takes about as long as a total does ([decision
/// 0006](https://docs.rs/crate/diesel_sharded/latest/source/docs/decisions/0006-totals-and-top.md) has the figures). The reason is a fault
/// of MariaDB's C library. After the server has ended a query in the middle of its rows
/// (`max_statement_time`, `KILL QUERY`, an overflow of doubles), it waits forever when the same prepared statement is executed again. With
/// Oracle's library, Diesel reports the error of a prepared statement that failed once at each later execution, so the crate keeps no
/// statement prepared there. Call this function at the start of the program
///
/// - if all of its connections to MySQL are `diesel_async`'s, which do not use a C library; or
/// - if it links MariaDB's, and nothing interrupts its queries. Diesel keeps the application's other queries prepared in any case, and these
///   have the same fault.
///
/// It changes nothing on PostgreSQL and SQLite.
///
/// ```no_run
/// diesel_sharded::backend::keep_queries_on_mysql();
/// ```
pub fn keep_queries_on_mysql() {
    HAS_NO_FAULTY_CLIENT.store(true, Ordering::Relaxed);
}

impl Dialect {
    /// Whether any statement without rows may be kept prepared.
    pub(crate) fn keeps_statements(self) -> bool {
        let keeps_errors = self.has_faulty_client() && is_oracles();
        !self.mistakes_statements() && !keeps_errors
    }

    /// The same for a statement with rows.
    pub(crate) fn keeps_queries(self) -> bool {
        !self.mistakes_statements() && !self.has_faulty_client()
    }

    /// Whether the client may fail to execute a kept statement again. MariaDB's waits forever where one has failed in the middle of its rows,
    /// as after `max_statement_time` and `KILL QUERY`. These hit totals above all, because a total takes long for a parent with many shards.
    /// Oracle's client keeps the error of a failed statement, and Diesel takes it for an error of the next execution.
    /// [`keep_queries_on_mysql`] says that this process has no such client.
    pub(crate) fn has_faulty_client(self) -> bool {
        self.clients_have_faults() && !HAS_NO_FAULTY_CLIENT.load(Ordering::Relaxed)
    }
}

/// Whether the C library behind Diesel's `MysqlConnection` is Oracle's (9.7 was tried). A statement that failed once fails with the same
/// error whenever Diesel executes it again: `mysql_stmt_bind_param` leaves the error where Diesel then looks for one of its own.
fn is_oracles() -> bool {
    #[cfg(feature = "mysql")]
    {
        // SAFETY: it has no arguments, and returns a constant of the library.
        #[allow(unsafe_code)]
        let version = unsafe { mysqlclient_sys::mysql_get_client_version() };
        is_version_of_oracles(version)
    }
    #[cfg(not(feature = "mysql"))]
    false
}

/// Whether this is a version of Oracle's client: 90704 is 9.7.4. MariaDB's versions begin at 30000, and some clients report their server's
/// version, from 100000 on.
#[cfg(feature = "mysql")]
fn is_version_of_oracles(version: std::ffi::c_ulong) -> bool {
    (50_700..100_000).contains(&version)
}

#[cfg(all(test, feature = "mysql"))]
mod tests {
    use super::*;

    #[test]
    fn clients_are_known_by_their_versions() {
        assert!([50_744, 80_039, 90_704].map(is_version_of_oracles) == [true; 3]);
        assert!(
            [30_320, 30_410, 50_568, 101_119, 110_802].map(is_version_of_oracles) == [false; 5]
        );
    }
}
