//! The names that counters may have.

use diesel::result::QueryResult;

use crate::error::Error;

/// The longest name, in bytes.
const LONGEST: usize = 255;

/// The name as the key of a counter.
pub(super) fn key(name: &str) -> QueryResult<Vec<u8>> {
    check(name)?;
    Ok(name.as_bytes().to_vec())
}

/// Whether a counter may have this name.
pub(super) fn check(name: &str) -> Result<(), Error> {
    match name.len() {
        1..=LONGEST => Ok(()),
        bytes => Err(Error::InvalidCounterName { bytes }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_1_to_255_bytes() {
        let refused = |name: &str| match key(name).map_err(Error::from) {
            Err(Error::InvalidCounterName { bytes }) => Some(bytes),
            _ => None,
        };
        assert_eq!(refused(""), Some(0));
        assert_eq!(refused(&"é".repeat(128)), Some(256));
        assert_eq!(refused(&"x".repeat(255)), None);
        assert_eq!(refused("\0"), None);
    }
}
