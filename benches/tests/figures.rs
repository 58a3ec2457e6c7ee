//! All figures in the documentation come from `docs/benchmarks/report.json`.

use std::collections::HashSet;
use std::fs;

use diesel_sharded_benches::figures::{blocks, documents};
use diesel_sharded_benches::pictures::{one_hot_row, path};
use diesel_sharded_benches::report::Report;

const UPDATE: &str = "UPDATE_FIGURES=1 cargo test -p diesel_sharded_benches --test figures";

fn is_update() -> bool {
    std::env::var_os("UPDATE_FIGURES").is_some()
}

#[test]
fn documents_have_the_figures_of_the_report() {
    let report = Report::read();
    let mut wrong = vec![];
    for document in documents() {
        match document.with_figures(&report) {
            Ok(text) if text == document.text => {}
            Ok(text) if is_update() => document.write(&text),
            Ok(_) => wrong.push(format!("{} has other figures", document.name)),
            Err(why) => wrong.push(why),
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\nWrite the figures anew: {UPDATE}",
        wrong.join("\n")
    );
}

#[test]
fn every_block_is_in_a_document() {
    let documents = documents();
    let used: HashSet<_> = documents
        .iter()
        .flat_map(|document| document.blocks())
        .collect();
    for (name, _) in blocks() {
        assert!(used.contains(name), "no document has the block {name:?}");
    }
}

#[test]
fn the_picture_shows_the_report() {
    let drawn = one_hot_row(&Report::read()).unwrap();
    if is_update() {
        fs::write(path(), &drawn).unwrap();
    }
    let kept = fs::read_to_string(path()).unwrap_or_default();
    assert!(
        drawn == kept,
        "docs/benchmarks/one-hot-row.svg shows other figures. Draw it anew: {UPDATE}"
    );
}
