//! The documents: their links lead somewhere, the guide's chapters are in one order, and the repository's address stands in one place.

#[path = "documents/markdown.rs"]
mod markdown;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use diesel_sharded_tests::documents::{file, read};

use markdown::{anchors, links};

/// The files in a folder, and in those below it, whose names end like this.
pub fn below(folder: &Path, ends: &[&str]) -> Vec<PathBuf> {
    let mut files = vec![];
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        match path.is_dir() {
            true if name == "target" || name == ".git" => {}
            true => files.extend(below(&path, ends)),
            false if ends.iter().any(|end| name.ends_with(end)) => files.push(path),
            false => {}
        }
    }
    files
}

/// The repository's address, where it is known: links to it lead to files here.
fn address() -> Option<String> {
    let manifest = read("Cargo.toml");
    let (_, rest) = manifest.split_once("\nrepository = \"")?;
    let (address, _) = rest.split_once('"')?;
    Some(address.to_owned())
}

/// Where docs.rs shows the crate's own documentation, and the files of its package.
const DOCUMENTATION: &str = "https://docs.rs/diesel_sharded/latest/diesel_sharded/";
const PACKAGE: &str = "https://docs.rs/crate/diesel_sharded/latest/source/";

/// The file that a link of a page leads to: one of this repository, perhaps by its address or by that of its documentation.
fn target(page: &Path, link: &str, address: Option<&str>) -> Option<PathBuf> {
    let here = ["blob", "raw"].map(|kind| format!("{}/{kind}/HEAD/", address.unwrap_or("none")));
    if let Some(chapter) = link.strip_prefix(DOCUMENTATION) {
        let of_book = ["guide/", "reference/"]
            .iter()
            .any(|book| chapter.starts_with(book));
        let chapter = chapter.trim_end_matches('/');
        let end = if chapter.contains('/') { "md" } else { "rs" };
        return of_book.then(|| file(format!("src/{chapter}.{end}")));
    }
    let mut here = here.iter().map(String::as_str).chain([PACKAGE]);
    match here.find_map(|here| link.strip_prefix(here)) {
        Some(path) => Some(file(path)),
        None if link.contains(':') => None,
        None if link.is_empty() => Some(page.to_owned()),
        None => Some(page.with_file_name("").join(link)),
    }
}

/// Whether a link of a page leads nowhere: its file, or the heading there, is missing.
fn is_broken(page: &Path, link: &str, address: Option<&str>) -> bool {
    let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
    let Some(target) = target(page, file, address) else {
        return false;
    };
    let leads = target.exists() && (anchor.is_empty() || anchors(&read(target)).contains(anchor));
    !leads
}

/// All Markdown files but the guide's chapters and the reference pages: these link to items of the documentation.
#[test]
fn links_lead_to_files_and_headings() {
    let of_books = file("src");
    let mut pages = below(&file(""), &[".md"]);
    pages.retain(|page| !page.starts_with(&of_books));
    assert!(pages.contains(&file("README.md")));
    let address = address();
    let mut wrong = vec![];
    for page in &pages {
        let text = read(page);
        let broken = links(&text).filter(|link| is_broken(page, link, address.as_deref()));
        wrong.extend(broken.map(|link| format!("{}: {link}", page.display())));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The README shows the handler of an example, which has tests.
#[test]
fn the_handler_in_the_readme_is_the_example_s() {
    let handler_of = |document| {
        let text = read(document);
        let (_, handler) = text.split_once("\nasync fn watch(").expect(document);
        let (handler, _) = handler.split_once("\n}\n").expect(document);
        handler.to_owned()
    };
    let example = handler_of("examples/frameworks/src/bin/axum.rs");
    assert_eq!(handler_of("README.md"), example);
}

/// The chapters of a book (the guide, or the reference pages) as its first page lists them: title and module.
fn chapters(book: &str) -> Vec<(String, String)> {
    let first_page = read(format!("src/{book}.rs"));
    let rows = first_page
        .lines()
        .filter_map(|line| line.strip_prefix("//! "));
    let rows = rows.filter_map(|line| {
        let (number, chapter) = line.split_once(". [")?;
        let (title, rest) = chapter.split_once("](")?;
        let (module, _) = rest.split_once(')')?;
        Some((number.parse::<usize>().ok()?, title, module))
    });
    let chapters = rows.enumerate().map(|(at, (number, title, module))| {
        assert_eq!(number, at + 1, "the number of {title}");
        (title.to_owned(), module.to_owned())
    });
    chapters.collect()
}

/// The list of modules and the first page have the same order, and no file of a chapter is left out. Each chapter begins with its title,
/// and each of the guide's leads to the next one.
#[test]
fn each_book_has_its_chapters_in_order() {
    for (book, list) in [("guide", "chapters! {"), ("reference", "pages! {")] {
        let chapters = chapters(book);
        assert!(chapters.len() > 1);
        for (at, (title, module)) in chapters.iter().enumerate() {
            let chapter = read(format!("src/{book}/{module}.md"));
            let begin = format!("{title}: ");
            assert!(chapter.starts_with(&begin), "{module}.md: `{begin}…`");
            let last = match chapters.get(at + 1) {
                _ if book != "guide" => continue,
                Some((title, module)) => format!("\n\nNext: [{title}]({module})"),
                None => "\n\nBack to the [first page](crate::guide)".to_owned(),
            };
            assert!(chapter.trim_end().ends_with(&last), "{module}.md: `{last}`");
        }
        let listed: Vec<_> = chapters.iter().map(|(_, module)| module.as_str()).collect();
        let files = below(&file("src").join(book), &[".md"]);
        let stem = |path: &PathBuf| path.file_stem().expect("a name").to_string_lossy().into();
        let files: BTreeSet<String> = files.iter().map(stem).collect();
        assert_eq!(
            files,
            listed.iter().map(|module| module.to_string()).collect()
        );
        let first_page = read(format!("src/{book}.rs"));
        let (_, modules) = first_page.split_once(list).expect("a list of modules");
        let modules = modules.lines().filter_map(|line| line.split_once(" = \""));
        let modules: Vec<_> = modules.map(|(module, _)| module.trim()).collect();
        // The charts of the benchmarks follow their text, after the list.
        let listed = listed.into_iter().filter(|name| *name != "benchmarks");
        assert_eq!(modules, listed.collect::<Vec<_>>());
    }
}

/// A link from one chapter to a heading of another: rustdoc checks that the page is there, and not the heading.
#[test]
fn links_between_chapters_lead_to_headings() {
    let mut of_chapters = vec![];
    for book in ["guide", "reference"] {
        let modules = chapters(book).into_iter().map(|(_, module)| module);
        of_chapters.extend(modules.map(|module| (format!("src/{book}/{module}.md"), module)));
    }
    let (mut seen, mut wrong) = (0, vec![]);
    for file in below(&file("src"), &[".md", ".rs"]) {
        let is_chapter = file.extension().is_some_and(|end| end == "md");
        for link in links(&read(&file)).filter(|link| !link.contains('/')) {
            let Some((page, anchor)) = link.split_once('#') else {
                continue;
            };
            let (path, name) = page.rsplit_once("::").unwrap_or(("", page));
            let is_of_book = match path {
                "" => is_chapter,
                path => path.ends_with("guide") || path.ends_with("reference"),
            };
            let target = of_chapters.iter().find(|(_, module)| module == name);
            let target = match (target, page) {
                (_, "") if is_chapter => &file,
                (Some((target, _)), _) if is_of_book => Path::new(target),
                _ => continue,
            };
            seen += 1;
            if !anchors(&read(target)).contains(anchor) {
                wrong.push(format!("{}: {link} has no such heading", file.display()));
            }
        }
    }
    assert!(seen > 20, "{seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Keep a Changelog, as tools read it: a level-two heading for each version, and under it one of six level-three headings.
#[test]
fn the_changelog_has_the_form_that_tools_read() {
    let changelog = read("CHANGELOG.md");
    let headings = changelog.lines().filter(|line| line.starts_with('#'));
    let headings: Vec<_> = headings.collect();
    assert_eq!(headings[..2], ["# Changelog", "## [Unreleased]"]);
    let kinds = "### Added, ### Changed, ### Deprecated, ### Removed, ### Fixed, ### Security";
    for heading in &headings[2..] {
        let is_kind = kinds.split(", ").any(|kind| kind == *heading);
        assert!(is_kind || heading.starts_with("## ["), "{heading}");
    }
}

/// The files that a release publishes, in a folder by themselves.
fn copy_of_packages() -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a folder");
    for path in [
        "Cargo.toml",
        "README.md",
        "CHANGELOG.md",
        "cli/Cargo.toml",
        "cli/README.md",
        "derive/Cargo.toml",
    ] {
        let to = copy.path().join(path);
        fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        fs::copy(file(path), to).expect("a copy");
    }
    copy
}

fn repository_sh(copy: &Path, argument: &str) -> Output {
    let mut script = Command::new(file("scripts/repository.sh"));
    let script = script.arg(argument).env("REPOSITORY_ROOT", copy);
    script.output().expect("bash")
}

#[test]
fn the_repositorys_address_is_set_in_one_place() {
    let copy = copy_of_packages();
    let is_set = || repository_sh(copy.path(), "--check").status.success();
    let read = |path: &str| fs::read_to_string(copy.path().join(path)).expect("a text");
    assert_eq!(is_set(), address().is_some());
    let wrong = repository_sh(copy.path(), "https://example.com/counters");
    assert!(!wrong.status.success());

    for address in [
        "https://github.com/OWNER/NAME",
        "https://github.com/OTHER/NAME.rs",
    ] {
        let set = repository_sh(copy.path(), address);
        assert!(set.status.success(), "{set:?}");
        assert!(is_set());
        let metadata = format!("repository = \"{address}\"\nhomepage = \"{address}\"\n");
        let metadata = format!("[workspace.package]\n{metadata}");
        assert!(read("Cargo.toml").contains(&metadata));
        for path in ["Cargo.toml", "cli/Cargo.toml", "derive/Cargo.toml"] {
            let fields = "repository.workspace = true\nhomepage.workspace = true\n";
            assert_eq!(read(path).matches(fields).count(), 1, "{path}");
        }
        let readme = read("README.md");
        let picture = format!("]({address}/raw/HEAD/docs/benchmarks/one-hot-row.svg)");
        assert!(readme.contains(&picture), "{readme}");
        let page = format!("]({address}/blob/HEAD/cli/README.md)");
        assert!(readme.contains(&page), "{readme}");
        // A registry's page has no files beside it, and shows a picture only from its raw address.
        for path in ["README.md", "cli/README.md"] {
            let text = read(path);
            for link in links(&text) {
                let stays = link.starts_with('#');
                assert!(stays || link.starts_with("https://"), "{path}: {link}");
                assert!(
                    !is_broken(&file(path), link, Some(address)),
                    "{path}: {link}"
                );
            }
            let pictures = text.split("![").skip(1);
            let mut pictures = pictures.filter_map(|picture| picture.split_once("]("));
            let raw = format!("{address}/raw/HEAD/");
            assert!(
                pictures.all(|(_, target)| target.starts_with(&raw)),
                "{path}"
            );
        }
    }
    assert!(!read("README.md").contains("OWNER"));

    // A link that somebody adds later.
    let added = read("README.md") + "\n[a page](docs/scale.md)\n";
    fs::write(copy.path().join("README.md"), added).expect("a text");
    assert!(!is_set());
}
