//! The public API is the one that `tests/public_api.txt` lists, so that a reviewer sees each change of it.
//!
//! The listing is read from the sources: items that `pub mod` and `pub use` reach from `src/lib.rs`, without `#[doc(hidden)]`, with
//! all features. `UPDATE_PUBLIC_API=1 cargo test -p diesel_sharded_tests --test repository` writes it anew.

#[path = "public_api/listing.rs"]
mod listing;
#[path = "public_api/modules.rs"]
mod modules;
#[path = "public_api/text.rs"]
mod text;

use std::fs;
use std::path::Path;

use listing::listing;
use modules::Module;

const LISTING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/public_api.txt");

#[test]
fn the_public_api_is_the_one_that_is_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/lib.rs");
    let is = listing(&Module::read_crate(&root));
    if std::env::var_os("UPDATE_PUBLIC_API").is_some() {
        fs::write(LISTING, &is).unwrap();
    }
    let listed = fs::read_to_string(LISTING).unwrap();
    let removed: Vec<_> = listed
        .lines()
        .filter(|line| !is.lines().any(|other| other == *line))
        .collect();
    let added: Vec<_> = is
        .lines()
        .filter(|line| !listed.lines().any(|other| other == *line))
        .collect();
    assert!(
        is == listed,
        "the public API differs from tests/public_api.txt:\n- {}\n+ {}\n\
         If it should, write the listing anew: UPDATE_PUBLIC_API=1 cargo test -p diesel_sharded_tests --test repository",
        removed.join("\n- "),
        added.join("\n+ "),
    );
}
