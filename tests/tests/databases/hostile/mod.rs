//! Hostile input: names, keys and amounts that nobody would think of, on every database. Any input
//! is either taken for exactly what it is, or refused by a clear error, and nothing has changed then.
//!
//! Error texts fed to the classifier and attributes fed to the derive are in the unit tests of these
//! (`src/backend`, `derive/src/lib.rs`).
//!
//! `HOSTILE=100` runs 100 times as many cases; together with the unit tests that is more than a million:
//!
//! ```sh
//! HOSTILE=100 cargo test --release --workspace --all-features hostile
//! ```

use diesel_sharded::Error;
use proptest::prelude::*;

use super::Conn;
use super::cases::{database_with_counters as database, dialect, for_all};

mod bounds;
mod keys;
mod names;
mod numbers;

/// Marks with a meaning somewhere: in SQL, in a pattern, in C.
const MARKS: &[&str] = &[
    "\0", "'", "\"", "`", "\\", "\\'", "%", "_", ";", "--", "/*", "*/", "#", " ", "\t", "\n", "$1",
    "?", ":a", "{}", "{0}", "%s", "NULL", "NaN", "\\x00", "page:",
];

/// Letters that some collation takes for others, or for none, and the ends of UTF-8's lengths.
const LETTERS: &[&str] = &[
    "a", "A", "é", "e\u{301}", "ß", "ss", "i", "İ", "ı", "😀", "\u{FEFF}", "\u{202E}", "\u{7F}",
    "\u{80}", "\u{7FF}", "\u{FFFF}",
];

/// The last character, and phrases.
const PHRASES: &[&str] = &[
    "\u{10FFFF}",
    "' OR 1=1 --",
    "'; DROP TABLE diesel_sharded_counters; --",
];

fn fragments() -> impl Strategy<Value = &'static str> {
    proptest::sample::select([MARKS, LETTERS, PHRASES].concat())
}

/// Texts of up to so many pieces: fragments with a meaning, and any characters.
fn texts(pieces: usize) -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        3 => fragments().prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    proptest::collection::vec(piece, 0..pieces).prop_map(|pieces| pieces.concat())
}

fn is_overflow(error: diesel::result::Error) -> bool {
    matches!(Error::from(error), Error::Overflow { .. })
}
