//! The C library behind Diesel's `MysqlConnection`.

/// Whether this process links Oracle's client (9.7 was tried). A statement that failed once fails with the same error whenever Diesel executes it
/// again: `mysql_stmt_bind_param` leaves the error where Diesel then looks for one of its own.
pub(super) fn is_oracles() -> bool {
    #[cfg(feature = "mysql")]
    {
        // SAFETY: it takes nothing, and returns a constant of the library.
        #[allow(unsafe_code)]
        let version = unsafe { mysqlclient_sys::mysql_get_client_version() };
        is_version_of_oracles(version)
    }
    #[cfg(not(feature = "mysql"))]
    false
}

/// Whether this is a version of Oracle's client: 90704 is 9.7.4. Those of MariaDB's begin at 30000, and some report their server's, from 100000
/// on.
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
