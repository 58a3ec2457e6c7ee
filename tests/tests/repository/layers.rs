//! The layers of the library, as ARCHITECTURE.md lists them: each imports only from those further down.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use diesel_sharded_tests::documents::file;

use super::documents::below;

const MAP: &str = include_str!("../../../ARCHITECTURE.md");

/// The rows of the map's table below this head.
fn rows(head: &str) -> impl Iterator<Item = &'static str> {
    let (_, rows) = MAP.split_once(head).expect("the table");
    rows.lines().take_while(|line| line.starts_with('|'))
}

/// The folders and files below `src/`, from the front page down. Those of one row are one layer.
fn layers() -> Vec<Vec<&'static str>> {
    let rows = rows("| below `src/` | layer |\n|---|---|\n");
    let names = rows.map(|row| row.split('|').nth(1).expect("a cell").split('`'));
    let names = names.map(|cell| cell.skip(1).step_by(2));
    let name = |path: &'static str| path.trim_end_matches('/').trim_end_matches(".rs");
    names.map(|names| names.map(name).collect()).collect()
}

/// The names behind a path, such as `crate::`, in the code that users compile.
fn imported(path: &str, source: &str) -> Vec<String> {
    let (code, _tests) = source.split_once("#[cfg(test)]").unwrap_or((source, ""));
    let lines = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join(" ");
    let name = |path: &str| {
        let is_end = |c: char| !c.is_alphanumeric() && c != '_';
        path.trim().split(is_end).next().expect("a part").to_owned()
    };
    let paths = code.split(path).skip(1);
    let names = paths.flat_map(|path| match path.strip_prefix('{') {
        Some(group) => group.split('}').next().expect("a part").split(','),
        None => path.split('\0'), // one alone
    });
    names.map(name).collect()
}

/// The imports of a file of the layer `of` from layers above it.
fn upward(of: usize, layers: &[Vec<&str>], source: &str) -> Vec<String> {
    let layer = |name: &str| layers.iter().position(|names| names.contains(&name));
    let mut names = imported("crate::", source);
    names.retain(|name| layer(name).is_some_and(|other| other < of));
    names
}

#[test]
fn arrows_between_layers_run_one_way() {
    let layers = layers();
    let source = file("src");
    let mut wrong = vec![];
    for path in below(&source, &[".rs"]) {
        let within = path.strip_prefix(&source).expect("below src");
        let top = Path::new(within.iter().next().expect("a name")).file_stem();
        let top = top.and_then(|top| top.to_str()).expect("a name");
        if top == "test_schema" || within.ends_with("tests.rs") {
            continue; // tests alone
        }
        let of = layers.iter().position(|names| names.contains(&top));
        let of = of.unwrap_or_else(|| panic!("{top} is in no row of the table in ARCHITECTURE.md"));
        let text = fs::read_to_string(&path).expect("a source");
        let names = upward(of, &layers, &text);
        wrong.extend(
            names
                .iter()
                .map(|name| format!("{} imports {name}", within.display())),
        );
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// The files that are left when those are taken away that import none of the rest, again and again.
fn in_a_circle(mut imports: BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    loop {
        let left: BTreeSet<_> = imports.keys().cloned().collect();
        imports.retain(|_, of| !of.is_disjoint(&left));
        if imports.len() == left.len() {
            return left.into_iter().collect();
        }
    }
}

/// A name that is no file's is one that `mod.rs` hands on.
#[test]
fn arrows_inside_the_backend_run_one_way() {
    let folder = file("src/backend");
    let mut imports = BTreeMap::<String, BTreeSet<String>>::new();
    for path in below(&folder, &[".rs"]) {
        let within = path.strip_prefix(&folder).expect("below it");
        if within.ends_with("tests.rs") {
            continue;
        }
        let name = |part: &Path| part.with_extension("").display().to_string();
        let top = name(Path::new(within.iter().next().expect("a name")));
        let text = fs::read_to_string(&path).expect("a source");
        let text = text.replace("$crate::", ""); // of an application's code
        let text = text.split("mod tests {").next().expect("a part");
        let mut names = imported("crate::backend::", text);
        if within.iter().count() == 1 {
            names.extend(imported("use super::", text));
        }
        imports.entry(top).or_default().extend(names);
    }
    let files: BTreeSet<_> = imports.keys().cloned().collect();
    for (of, names) in &mut imports {
        let file = |name: String| match files.contains(&name) {
            true => name,
            false => "mod".to_owned(),
        };
        *names = std::mem::take(names).into_iter().map(file).collect();
        names.remove(of);
    }
    let others = files.into_iter().filter(|name| name != "mod");
    imports.insert("mod".to_owned(), others.collect());
    assert_eq!(in_a_circle(imports), ["mod"; 0]);
}

#[test]
fn words_are_at_home_where_the_map_says() {
    let rows: Vec<_> = rows("| word | meaning | at home in |\n|---|---|---|\n").collect();
    assert!(rows.len() <= 40, "{} words are too many", rows.len());
    for row in rows {
        let home = row.rsplit('`').nth(1).expect("a file");
        assert!(file("src").join(home).is_file(), "{row}");
    }
}

#[test]
fn a_circle_is_found() {
    let circle = |last: &str| {
        let arrows = [("a", "b"), ("b", "c"), ("c", last)];
        in_a_circle(BTreeMap::from(arrows.map(|(from, to)| {
            (from.to_owned(), BTreeSet::from([to.to_owned()]))
        })))
    };
    assert_eq!(circle("a"), ["a", "b", "c"]);
    assert_eq!(circle("d"), [""; 0]);
}

#[test]
fn an_arrow_upwards_is_found() {
    let layers = [
        vec!["counting", "upkeep"],
        vec!["engine", "placement"],
        vec!["model"],
    ];
    let source = "use crate::model::Field;\n// crate::counting\nfn f() { crate::upkeep::fold() }\n\
        pub(crate) use crate::placement;\n#[cfg(test)]\nuse crate::counting;";
    assert_eq!(upward(1, &layers, source), ["upkeep"]);
    assert_eq!(upward(0, &layers, source), [""; 0]);
    assert_eq!(
        upward(2, &layers, "use crate::{model, engine::count};"),
        ["engine"]
    );
}
