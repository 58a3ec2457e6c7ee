//! The house: arrows between files and folders form no circle.
//!
//! An arrow goes from a file to each file whose items it uses, through all re-exports. `mod name;` is no arrow.

#[path = "house/arrows.rs"]
mod arrows;
#[path = "house/circles.rs"]
mod circles;
#[path = "house/imports.rs"]
mod imports;
#[path = "house/modules.rs"]
mod modules;
#[path = "house/planted.rs"]
mod planted;
#[path = "house/resolve.rs"]
mod resolve;
#[path = "house/test_only.rs"]
mod test_only;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use arrows::arrows_of;
use circles::{between_folders, circles, folders_below};
use modules::Crate;

/// The root files of the crates that are checked.
const ROOTS: &[&str] = &[
    "src/lib.rs",
    "benches/contention/main.rs",
    "benches/cost.rs",
    "benches/counter_cache.rs",
    "benches/galera/main.rs",
    "benches/lib.rs",
    "benches/life.rs",
    "benches/simulation.rs",
    "benches/soak.rs",
    "benches/processes.rs",
    "benches/storage.rs",
    "benches/tests/figures.rs",
    "benches/totals.rs",
    "chaos/src/lib.rs",
    "chaos/src/main.rs",
    "chaos/tests/checker.rs",
    "cli/src/main.rs",
    "derive/src/lib.rs",
    "tests/model/src/lib.rs",
    "tests/servers/src/lib.rs",
];

/// Every file in these folders belongs to one of the crates.
const FOLDERS: &[&str] = &[
    "src",
    "benches",
    "chaos/src",
    "chaos/tests",
    "cli/src",
    "derive/src",
    "tests/model/src",
    "tests/servers/src",
];

/// Files that belong to none: the documentation includes their text.
const INCLUDED: &[&str] = &["src/guide/support.rs"];

/// Files, and folders with a `/` at their end, that may still be in a circle.
const ALLOWED_CIRCLES: &[&str] = &[];

fn read(path: &str) -> Option<String> {
    fs::read_to_string(repository().join(path)).ok()
}

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn crates() -> impl Iterator<Item = (&'static str, Crate)> {
    ROOTS.iter().map(|root| (*root, Crate::read(root, &read)))
}

#[test]
fn no_arrows_form_a_circle() {
    let mut in_circles = BTreeSet::new();
    let mut found = String::new();
    for (root, of) in crates() {
        let files = arrows_of(&of);
        let paths: Vec<_> = of.files.iter().map(|file| file.path.clone()).collect();
        let (top, _) = root.rsplit_once('/').expect("a root in a folder");
        let of_files = circles(&files);
        let between: Vec<_> = folders_below(top, &paths)
            .iter()
            .map(|folder| between_folders(folder, &paths, &files))
            .collect();
        let mut of_folders: Vec<_> = between.iter().flat_map(circles).collect();
        of_folders.retain(|circle| of_files.iter().all(|other| other.nodes != circle.nodes));
        for circle in of_files.into_iter().chain(of_folders) {
            in_circles.extend(circle.nodes.iter().map(|node| (*node).to_owned()));
            if circle
                .nodes
                .iter()
                .any(|node| !ALLOWED_CIRCLES.contains(node))
            {
                found += &format!("{}\n", circle.describe());
            }
        }
    }
    let is_needed = |name: &str| in_circles.contains(name);
    let failures = failures(&found, "ALLOWED_CIRCLES", ALLOWED_CIRCLES, is_needed);
    assert!(failures.is_empty(), "\n{failures}");
}

/// The violations that were found, and the exceptions that are no longer needed.
fn failures(found: &str, list: &str, allowed: &[&str], is_needed: impl Fn(&str) -> bool) -> String {
    let unneeded = allowed.iter().filter(|name| !is_needed(name));
    let unneeded = unneeded.map(|name| format!("{name} is in order: remove it from {list}\n"));
    found.to_owned() + &unneeded.collect::<String>()
}

/// A file that belongs to no crate would not be checked.
#[test]
fn every_file_belongs_to_a_crate() {
    let mut known = BTreeSet::new();
    for (_, of) in crates() {
        known.extend(of.files.into_iter().map(|file| file.path));
        known.extend(of.test_files);
    }
    let mut files = vec![];
    FOLDERS.iter().for_each(|folder| list(folder, &mut files));
    files.retain(|file| !known.contains(file) && !INCLUDED.contains(&file.as_str()));
    assert!(
        files.is_empty(),
        "add the roots of these files to ROOTS: {files:?}"
    );
}

fn list(folder: &str, files: &mut Vec<String>) {
    for entry in fs::read_dir(repository().join(folder)).expect("a folder") {
        let entry = entry.expect("an entry");
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        match entry.file_type().expect("a type").is_dir() {
            true => list(&path, files),
            false if path.ends_with(".rs") => files.push(path),
            false => {}
        }
    }
}
