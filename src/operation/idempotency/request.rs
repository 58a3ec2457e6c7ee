//! An idempotency key, and a fingerprint of the request that it came with.

use std::fmt::{self, Write};
use std::hash::Hasher;

use diesel::query_builder::QueryFragment;
use diesel::result::Error as DieselError;
use fnv::FnvHasher;

use crate::backend::ShardedBackend;
use crate::error::Error;

/// A key, and what it came with.
#[doc(hidden)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub(crate) key: Vec<u8>,
    pub(crate) fingerprint: i64,
}

/// The longest key, in bytes.
const LONGEST: usize = 255;

impl Request {
    /// To add `n` to the counter that is cached as `counter`.
    pub(crate) fn to_add(key: &[u8], counter: &str, n: i64) -> Result<Self, Error> {
        Request::new(key, |text| write!(text, "{counter} by {n}"))
    }

    /// `describe` writes the content of the request, in the same words in every process.
    pub(crate) fn new(
        key: &[u8],
        describe: impl FnOnce(&mut Fingerprint) -> fmt::Result,
    ) -> Result<Self, Error> {
        let bytes = key.len();
        if !(1..=LONGEST).contains(&bytes) {
            return Err(Error::InvalidIdempotencyKey { bytes });
        }
        let mut fingerprint = Fingerprint(FnvHasher::default());
        let described = describe(&mut fingerprint);
        described.map_err(|error| Error::Diesel(DieselError::QueryBuilderError(error.into())))?;
        Ok(Request {
            key: key.to_vec(),
            fingerprint: i64::from_ne_bytes(fingerprint.0.finish().to_ne_bytes()),
        })
    }
}

/// Hashes the written text, to the same value in every process. (The standard library's hashes may change between its releases.)
pub(crate) struct Fingerprint(FnvHasher);

impl Write for Fingerprint {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl Fingerprint {
    pub(crate) fn write_fragment<DB>(&mut self, fragment: &impl QueryFragment<DB>) -> fmt::Result
    where
        DB: ShardedBackend,
    {
        DB::show(fragment, self)
    }
}
