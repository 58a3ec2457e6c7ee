//! The check itself, on small crates with a known house.

use std::collections::BTreeSet;

use super::arrows::{Arrows, arrows_of};
use super::circles::{between_folders, circles, folders_below};
use super::failures;
use super::modules::Crate;

type Files<'a> = [(&'a str, &'a str)];

fn read(files: &Files<'_>) -> Crate {
    let read = |path: &str| {
        let mut files = files.iter();
        files.find_map(|(file, text)| (*file == path).then(|| (*text).to_owned()))
    };
    Crate::read("src/lib.rs", &read)
}

fn drawn(files: &Files<'_>) -> Vec<String> {
    let arrows = arrows_of(&read(files));
    arrows
        .keys()
        .map(|(from, to)| format!("{from} -> {to}"))
        .collect()
}

fn circle_of(arrows: &Arrows) -> Vec<&str> {
    let circles = circles(arrows);
    let nodes: BTreeSet<_> = circles
        .into_iter()
        .flat_map(|circle| circle.nodes)
        .collect();
    nodes.into_iter().collect()
}

#[test]
fn a_circle_is_found_with_the_lines_that_close_it() {
    let arrows = arrows_of(&read(&[
        ("src/lib.rs", "mod a; mod b; mod c; mod d;"),
        ("src/a.rs", "pub struct A;\nuse crate::b::B;"),
        ("src/b.rs", "use super::c::{self, C};\npub struct B;"),
        (
            "src/c.rs",
            "pub fn c() { crate::a::A::new(); }\npub struct C;",
        ),
        ("src/d.rs", "use crate::a::A;"),
    ]));
    assert_eq!(circle_of(&arrows), ["src/a.rs", "src/b.rs", "src/c.rs"]);
    let text = circles(&arrows)[0].describe();
    for arrow in [
        "src/a.rs -> src/b.rs  (line 2: use crate::b::B;)",
        "src/b.rs -> src/c.rs  (line 1: use super::c::{self, C};)",
        "src/c.rs -> src/a.rs  (line 1: pub fn c() { crate::a::A::new(); })",
    ] {
        assert!(text.contains(arrow), "{text}");
    }
}

#[test]
fn a_facade_is_looked_through() {
    let files = [
        (
            "src/lib.rs",
            "mod a; mod b; pub use a::{A, Other as Renamed}; pub use b::*;",
        ),
        (
            "src/a/mod.rs",
            "mod own; mod other; pub use self::own::A; pub(crate) use other::*;",
        ),
        ("src/a/own.rs", "use crate::B; pub struct A;"),
        ("src/a/other.rs", "use super::A; pub struct Other;"),
        ("src/b.rs", "use crate::Renamed; pub struct B;"),
    ];
    assert_eq!(
        drawn(&files),
        [
            "src/a/other.rs -> src/a/own.rs",
            "src/a/own.rs -> src/b.rs",
            "src/b.rs -> src/a/other.rs",
        ]
    );
}

#[test]
fn an_import_through_a_private_import_leads_to_the_definition() {
    let files = [
        ("src/lib.rs", "mod a; mod b;"),
        ("src/a.rs", "mod child; use crate::b::{self, B};"),
        ("src/a/child.rs", "use super::B; fn f() { super::b::f(); }"),
        ("src/b.rs", "pub struct B; pub fn f() {}"),
    ];
    let arrows = ["src/a.rs -> src/b.rs", "src/a/child.rs -> src/b.rs"];
    assert_eq!(drawn(&files), arrows);
}

#[test]
fn an_exception_that_is_no_longer_needed_fails() {
    let check = |found, allowed| failures(found, "LIST", allowed, |name| name == "bad.rs");
    assert_eq!(check("", &["bad.rs"]), "");
    assert_eq!(check("worse.rs: bad\n", &["bad.rs"]), "worse.rs: bad\n");
    let unneeded = "good.rs is in order: remove it from LIST\n";
    assert_eq!(check("", &["bad.rs", "good.rs"]), unneeded);
}

#[test]
fn a_parent_that_uses_what_it_hands_on_draws_an_arrow() {
    let child = ("src/a/b.rs", "use super::A; pub struct B(A);");
    let facade = "mod b; pub use self::b::B; pub struct A;";
    let user = "mod b; pub use self::b::B; pub struct A; impl A { fn b() -> Option<B> { None } }";
    let of = |parent| drawn(&[("src/lib.rs", "mod a;"), ("src/a.rs", parent), child]);
    assert_eq!(of(facade), ["src/a/b.rs -> src/a.rs"]);
    assert_eq!(
        of(user),
        ["src/a.rs -> src/a/b.rs", "src/a/b.rs -> src/a.rs"]
    );
}

#[test]
fn paths_draw_arrows_also_in_macros_and_attributes() {
    for code in [
        "use crate::b; fn f() { b::f(); }",
        "fn f() { super::b::f(); }",
        "fn f() -> crate::b::B { todo!() }",
        "fn f() { use crate::b::f; f(); }",
        "fn f() { println!(\"{}\", crate::b::f()); }",
        "fn f() { dbg!(Some { ..crate::b::f() }); }",
        "macro_rules! m { () => { $crate::b::f() }; }",
        "macro_rules! m { () => { use crate::{b::f}; }; }",
        "#[derive(crate::b::B)] struct S;",
        "#[some(with = crate::b::f)] struct S;",
        "fn f() { in_b!(); }",
        "use crate::in_b;",
        "use crate::b::*; fn f() -> B { todo!() }",
        "use this::b::B;",
    ] {
        let files = [
            ("src/lib.rs", "extern crate self as this; mod b; mod a;"),
            ("src/a.rs", code),
            (
                "src/b.rs",
                "#[macro_export] macro_rules! in_b { () => {} } pub fn f() {} pub struct B;",
            ),
        ];
        assert_eq!(drawn(&files), ["src/a.rs -> src/b.rs"], "{code}");
    }
}

#[test]
fn what_is_no_use_draws_no_arrow() {
    for code in [
        "// use crate::b::B;",
        "/// [`B`](crate::b::B)\npub struct A;",
        "use std::fs; fn f() { fs::read(\"b\").unwrap(); }",
        "use other::b::B;",
        "#[cfg(test)] mod tests { use crate::b::B; }",
        "#[cfg(all(test, feature = \"sqlite\"))] use crate::b::B;",
        "pub(in crate::b) struct A;",
        "pub use crate::b::B;",
        "use other::in_b; fn f() { in_b!(); }",
        "fn f() { println!(\"{}\", self.b.f()); }",
    ] {
        let files = [
            ("src/lib.rs", "mod a; mod b;"),
            ("src/a.rs", code),
            ("src/b.rs", "pub struct B; macro_rules! in_b { () => {} }"),
        ];
        assert_eq!(drawn(&files), [""; 0], "{code}");
    }
}

#[test]
fn folders_may_be_in_a_circle_where_files_are_not() {
    let of = read(&[
        ("src/lib.rs", "mod a; mod b; mod c;"),
        ("src/a/mod.rs", "pub mod one; pub mod two;"),
        ("src/a/one.rs", "use crate::b::B;"),
        ("src/a/two.rs", "pub struct Two;"),
        ("src/b.rs", "pub mod below; pub struct B;"),
        ("src/b/below.rs", "use crate::a::two::Two;"),
        ("src/c.rs", "use crate::a::two::Two;"),
    ]);
    let files: Vec<_> = of.files.iter().map(|file| file.path.clone()).collect();
    let arrows = arrows_of(&of);
    assert_eq!(circle_of(&arrows), [""; 0]);
    let folders = between_folders("src", &files, &arrows);
    assert_eq!(circle_of(&folders), ["src/a/", "src/b/"]);
}

#[test]
fn folders_within_a_folder_are_looked_at_too() {
    let of = read(&[
        ("src/lib.rs", "mod top;"),
        ("src/top/mod.rs", "pub mod a; pub mod b;"),
        ("src/top/a/mod.rs", "pub mod one; pub mod two;"),
        ("src/top/a/one.rs", "use crate::top::b::below::B;"),
        ("src/top/a/two.rs", "pub struct Two;"),
        ("src/top/b/mod.rs", "pub mod above; pub mod below;"),
        ("src/top/b/above.rs", "use crate::top::a::two::Two;"),
        ("src/top/b/below.rs", "pub struct B;"),
    ]);
    let files: Vec<_> = of.files.iter().map(|file| file.path.clone()).collect();
    let arrows = arrows_of(&of);
    assert_eq!(circle_of(&arrows), [""; 0]);
    let folders: Vec<_> = folders_below("src", &files).into_iter().collect();
    assert_eq!(folders, ["src", "src/top", "src/top/a", "src/top/b"]);
    assert_eq!(circle_of(&between_folders("src", &files, &arrows)), [""; 0]);
    let within = between_folders("src/top", &files, &arrows);
    assert_eq!(circle_of(&within), ["src/top/a/", "src/top/b/"]);
}

#[test]
fn files_of_tests_are_known() {
    let of = read(&[
        (
            "src/lib.rs",
            "//! Docs.\nmod a;\n\n#[cfg(test)]\nmod tests {\n    fn f() {}\n}\n#[cfg(test)]\nmod more_tests;\n",
        ),
        ("src/a.rs", "\n"),
        ("src/more_tests.rs", "mod below;\n"),
        ("src/more_tests/below.rs", ""),
    ]);
    let files: Vec<_> = of.files.iter().map(|file| &file.path[..]).collect();
    assert_eq!(files, ["src/lib.rs", "src/a.rs"]);
    let tests: Vec<_> = of.test_files.iter().collect();
    assert_eq!(tests, ["src/more_tests.rs", "src/more_tests/below.rs"]);
}
