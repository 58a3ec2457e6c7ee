//! Names of what belongs to a table, such as its triggers, shortened where they are too long for the database.

use std::hash::Hasher;

use fnv::FnvHasher;

use super::dialect::Dialect;

impl Dialect {
    /// The name, or a shorter one where the database does not accept it.
    #[doc(hidden)]
    pub fn fitting_name(self, name: String) -> String {
        match self.takes_name(&name) {
            true => name,
            false => shortened(&name, 63),
        }
    }
}

/// The beginning of a name and a hash of the whole, in this many bytes. Different names stay different.
pub(crate) fn shortened(name: &str, bytes: usize) -> String {
    let mut hash = FnvHasher::default();
    hash.write(name.as_bytes());
    let hash = format!("_{:016x}", hash.finish());
    let mut end = bytes - hash.len();
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].to_owned() + &hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_fit_stay() {
        for (dialect, fits) in [
            (Dialect::Postgres, "a".repeat(63)),
            (Dialect::Postgres, "ä".repeat(31)),
            (Dialect::Mysql, "a".repeat(64)),
            (Dialect::Mysql, "ä".repeat(64)),
            (Dialect::Sqlite, "a".repeat(300)),
        ] {
            assert_eq!(dialect.fitting_name(fits.clone()), fits);
        }
    }

    #[test]
    fn names_that_do_not_are_shortened_and_differ() {
        for (dialect, long) in [
            (Dialect::Postgres, "a".repeat(63)),
            (Dialect::Postgres, "ä".repeat(31)),
            (Dialect::Mysql, "a".repeat(64)),
            (Dialect::Mysql, "ä".repeat(64)),
        ] {
            let [keep, drop] =
                ["_keep", "_drop"].map(|end| dialect.fitting_name(long.clone() + end));
            assert_ne!(keep, drop);
            for name in [keep, drop] {
                assert!(name.len() <= 63, "{name}");
                assert!(name.starts_with(&long[..40]), "{name}");
            }
        }
    }
}
