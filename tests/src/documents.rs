//! The repository's own files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// A file, by its path in the repository.
pub fn file(path: impl AsRef<Path>) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(path)
}

/// Its text.
pub fn read(path: impl AsRef<Path>) -> String {
    let path = file(path);
    fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// The rows of the tables of spans, events and metrics whose second column is one of `of`: name, type or level, names in the last column.
pub fn documented(of: &[&str]) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let docs = read("src/observability.rs");
    let rows = docs.lines().filter_map(|line| line.strip_prefix("//! | "));
    rows.filter_map(|row| {
        let cells: Vec<_> = row.trim_end_matches(" |").split(" | ").collect();
        let is_named = of.contains(cells.get(1)?);
        let names = cells.get(3).unwrap_or(&"").split('`').skip(1).step_by(2);
        is_named.then(|| {
            let names = names.map(str::to_owned).collect();
            let name_of_it = cells[0].trim_matches('`').to_owned();
            (name_of_it, (cells[1].to_owned(), names))
        })
    })
    .collect()
}
