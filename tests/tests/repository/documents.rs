//! The documents: their links lead somewhere, the guide's chapters are in one order, and the repository's address stands in one place.

#[path = "documents/markdown.rs"]
mod markdown;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use markdown::{anchors, links};

fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path)).unwrap_or_else(|why| panic!("{path}: {why}"))
}

/// All Markdown files, by their paths from the root, but the guide's chapters and the reference pages: these link to items of the
/// documentation.
fn pages() -> Vec<String> {
    let mut pages = vec![];
    below(repository(), &[".md"], &mut pages);
    let mut pages: Vec<_> = pages
        .iter()
        .map(|path| path.strip_prefix(repository()).expect("a path below"))
        .map(|path| path.to_string_lossy().into_owned())
        .filter(|path| !path.starts_with("src/"))
        .collect();
    pages.sort();
    pages
}

/// The files in a folder, and in those below it, whose names end so.
pub fn below(folder: &Path, ends: &[&str], files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        match path.is_dir() {
            true if name == "target" || name == ".git" => {}
            true => below(&path, ends, files),
            false if ends.iter().any(|end| name.ends_with(end)) => files.push(path),
            false => {}
        }
    }
}

#[test]
fn links_lead_to_files_and_headings() {
    let pages = pages();
    assert!(pages.contains(&"README.md".to_owned()));
    let mut wrong = vec![];
    for page in &pages {
        let text = read(page);
        for link in links(&text).filter(|link| !link.contains(':')) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => repository().join(page),
                file => repository().join(page).with_file_name("").join(file),
            };
            if !target.exists() {
                wrong.push(format!("{page}: {link} does not exist"));
            } else if !anchor.is_empty() {
                let text = fs::read_to_string(&target).expect("a text with headings");
                if !anchors(&text).contains(anchor) {
                    wrong.push(format!("{page}: {link} has no such heading"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The chapters of a book (the guide, or the reference pages) as its first page lists them: title and module.
fn chapters(book: &str) -> Vec<(String, String)> {
    let first_page = read(&format!("src/{book}.rs"));
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

#[test]
fn each_chapter_leads_to_the_next_one() {
    let chapters = chapters("guide");
    assert!(chapters.len() > 10);
    for (at, (_, module)) in chapters.iter().enumerate() {
        let chapter = read(&format!("src/guide/{module}.md"));
        let last = match chapters.get(at + 1) {
            Some((title, module)) => format!("Next: [{title}]({module})"),
            None => "Back to the [first page](crate::guide)".to_owned(),
        };
        assert!(
            chapter.trim_end().ends_with(&format!("\n\n{last}")),
            "{module}.md does not end with `{last}`"
        );
    }
}

#[test]
fn each_chapter_begins_with_its_title() {
    for book in ["guide", "reference"] {
        for (title, module) in chapters(book) {
            let chapter = read(&format!("src/{book}/{module}.md"));
            assert!(
                chapter.starts_with(&format!("{title}: ")),
                "{module}.md begins with its title, `{title}: …`"
            );
        }
    }
}

/// The list of modules and the first page have the same order, and no file of a chapter is left out.
#[test]
fn each_book_has_its_chapters_in_order() {
    for (book, list) in [("guide", "chapters! {"), ("reference", "pages! {")] {
        let listed = chapters(book).into_iter().map(|(_, module)| module);
        let listed: Vec<_> = listed.collect();
        let files = fs::read_dir(repository().join("src").join(book)).expect("a folder");
        let files: BTreeSet<_> = files
            .map(|file| file.expect("a file").path())
            .filter(|path| path.extension().is_some_and(|end| end == "md"))
            .map(|path| path.file_stem().expect("a name").to_string_lossy().into())
            .collect();
        assert_eq!(files, listed.iter().cloned().collect());
        let first_page = read(&format!("src/{book}.rs"));
        let (_, modules) = first_page.split_once(list).expect("a list of modules");
        let modules = modules.lines().filter_map(|line| line.split_once(" = \""));
        let modules: Vec<_> = modules.map(|(module, _)| module.trim()).collect();
        // The charts of the benchmarks follow their text, behind the list.
        let listed: Vec<_> = listed.iter().filter(|name| *name != "benchmarks").collect();
        assert_eq!(modules, listed);
    }
}

/// A link from one chapter to a heading of another: rustdoc checks that the page is there, and not the heading.
#[test]
fn links_between_chapters_lead_to_headings() {
    let mut files = vec![];
    below(&repository().join("src"), &[".md", ".rs"], &mut files);
    let of_chapters: Vec<_> = ["guide", "reference"]
        .into_iter()
        .flat_map(|book| {
            chapters(book)
                .into_iter()
                .map(move |(_, module)| (book, module))
        })
        .collect();
    let (mut seen, mut wrong) = (0, vec![]);
    for file in files {
        let text = fs::read_to_string(&file).expect("a source");
        for link in links(&text).filter(|link| !link.contains('/')) {
            let Some((page, anchor)) = link.split_once('#') else {
                continue;
            };
            let name = page.rsplit("::").next().unwrap_or(page);
            let is_chapter = match page.contains("::") {
                true => page.contains("guide::") || page.contains("reference::"),
                false => file.extension().is_some_and(|end| end == "md"),
            };
            if !is_chapter {
                continue;
            }
            let target = match page {
                "" => file.clone(),
                _ => match of_chapters.iter().find(|(_, module)| module == name) {
                    Some((book, module)) => repository().join(format!("src/{book}/{module}.md")),
                    None => continue,
                },
            };
            seen += 1;
            let target = fs::read_to_string(target).expect("a chapter");
            if !anchors(&target).contains(anchor) {
                wrong.push(format!("{}: {link} has no such heading", file.display()));
            }
        }
    }
    assert!(seen > 20, "{seen}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The most characters of a line of code that rustdoc shows without a scroll bar, on a page that is 1280 wide.
const WIDEST_CODE: usize = 94;

/// The lines of code in the library's documentation that a reader sees. `docs/rustdoc.html` has SQL and texts break.
fn lines_of_code(text: &str, is_rust: bool) -> Vec<&str> {
    let (mut lines, mut in_code) = (vec![], None);
    for line in text.lines() {
        let line = match is_rust {
            true => {
                let line = line.trim_start();
                let line = line
                    .strip_prefix("///")
                    .or_else(|| line.strip_prefix("//!"));
                let Some(line) = line else { continue };
                line.strip_prefix(' ').unwrap_or(line)
            }
            false => line,
        };
        if let Some(language) = line.strip_prefix("```") {
            in_code = match in_code {
                Some(_) => None,
                None => Some(language),
            };
        } else if in_code.is_some_and(|language| !["sql", "text"].contains(&language)) {
            lines.extend((line != "#" && !line.starts_with("# ")).then_some(line));
        }
    }
    lines
}

#[test]
fn code_in_the_documentation_fits_the_page() {
    let mut files = vec![];
    below(&repository().join("src"), &[".md", ".rs"], &mut files);
    let (mut seen, mut wide) = (0, vec![]);
    for file in files {
        let text = fs::read_to_string(&file).expect("a source");
        let is_rust = file.extension().is_some_and(|end| end == "rs");
        let lines = lines_of_code(&text, is_rust);
        seen += lines.len();
        let lines = lines
            .iter()
            .filter(|line| line.chars().count() > WIDEST_CODE);
        wide.extend(lines.map(|line| format!("{}: {line}", file.display())));
    }
    assert!(seen > 900, "{seen}");
    assert!(wide.is_empty(), "{}", wide.join("\n"));
}

#[test]
fn the_architecture_lists_each_decision() {
    let architecture = read("ARCHITECTURE.md");
    let mut records = vec![];
    for record in fs::read_dir(repository().join("docs/decisions")).expect("a folder") {
        records.push(record.expect("a file").file_name());
    }
    records.sort();
    let mut from = 0;
    for record in records {
        let record = record.to_string_lossy();
        let row = format!("| [{}](docs/decisions/{record}) | ", &record[..4]);
        let at = architecture[from..].find(&row);
        from += at.unwrap_or_else(|| panic!("ARCHITECTURE.md has no row, or not in order: {row}"));
    }
}

/// Keep a Changelog, as tools read it: a level-two heading for each version, and under it one of six level-three headings.
#[test]
fn the_changelog_has_the_form_that_tools_read() {
    let changelog = read("CHANGELOG.md");
    let headings: Vec<_> = changelog
        .lines()
        .filter(|line| line.starts_with('#'))
        .collect();
    assert_eq!(headings[..2], ["# Changelog", "## [Unreleased]"]);
    const KINDS: [&str; 6] = [
        "### Added",
        "### Changed",
        "### Deprecated",
        "### Removed",
        "### Fixed",
        "### Security",
    ];
    for heading in &headings[2..] {
        assert!(
            KINDS.contains(heading) || heading.starts_with("## ["),
            "{heading}"
        );
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
        fs::copy(repository().join(path), to).expect("a copy");
    }
    copy
}

fn repository_sh(copy: &Path, argument: &str) -> Output {
    let mut script = Command::new(repository().join("scripts/repository.sh"));
    let script = script.arg(argument).env("REPOSITORY_ROOT", copy);
    script.output().expect("bash")
}

#[test]
fn the_repositorys_address_is_set_in_one_place() {
    let copy = copy_of_packages();
    let is_set = |copy: &Path| repository_sh(copy, "--check").status.success();
    let read = |path: &str| fs::read_to_string(copy.path().join(path)).expect("a text");

    let wrong = repository_sh(copy.path(), "https://example.com/counters");
    assert!(!wrong.status.success());

    for address in [
        "https://github.com/OWNER/NAME",
        "https://github.com/OTHER/NAME.rs",
    ] {
        let set = repository_sh(copy.path(), address);
        assert!(set.status.success(), "{set:?}");
        assert!(is_set(copy.path()));
        let metadata = format!("[workspace.package]\nrepository = \"{address}\"\n");
        assert!(read("Cargo.toml").contains(&metadata));
        let readme = read("README.md");
        let picture = format!("]({address}/raw/HEAD/docs/benchmarks/one-hot-row.svg)");
        assert!(readme.contains(&picture), "{readme}");
        let page = format!("]({address}/blob/HEAD/cli/README.md)");
        assert!(readme.contains(&page), "{readme}");
        assert!(links(&readme).all(|link| link.starts_with("https://")));
    }
    assert!(!read("README.md").contains("OWNER"));

    // A link that somebody adds later.
    let added = read("README.md") + "\n[a page](docs/scale.md)\n";
    fs::write(copy.path().join("README.md"), added).expect("a text");
    assert!(!is_set(copy.path()));
}

/// Where the address is known, links to it lead to files here.
#[test]
fn absolute_links_to_the_repository_lead_to_files() {
    let manifest = read("Cargo.toml");
    let Some((_, rest)) = manifest.split_once("\nrepository = \"") else {
        let copy = copy_of_packages();
        assert!(!repository_sh(copy.path(), "--check").status.success());
        return; // not known yet: the links are relative
    };
    let (address, _) = rest.split_once('"').expect("an address");
    for page in ["README.md", "cli/README.md"] {
        for link in links(&read(page)) {
            let path = ["blob", "raw"].map(|kind| format!("{address}/{kind}/HEAD/"));
            let path = path.iter().find_map(|address| link.strip_prefix(address));
            let Some(path) = path else { continue };
            assert!(repository().join(path).exists(), "{page}: {link}");
        }
    }
}
