//! Code that must not compile, and the messages that its author sees. `UPDATE_MESSAGES=1` writes the messages anew.
//!
//! The compiler gets the dependencies that this program is linked with, so nothing is compiled for the cases alone.

use std::path::Path;
use std::process::Command;
use std::{env, fs, thread};

/// The compiler's arguments for this program.
const ARGUMENTS: &[&str] = diesel_sharded_compiler_arguments::compiler_arguments!();

/// The compiler shows the library's code, whose files it knows by their places below this folder.
const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const CASES: &str = "tests/compile_fail/cases";

#[test]
fn messages() {
    let files = fs::read_dir(Path::new(WORKSPACE).join(CASES)).unwrap();
    let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    let cases: Vec<_> = names.filter(|name| name.ends_with(".rs")).collect();
    assert!(!cases.is_empty());
    let wrong: Vec<_> = thread::scope(|scope| {
        let check = |case| scope.spawn(move || check(&format!("{CASES}/{case}")));
        let checks: Vec<_> = cases.iter().map(check).collect();
        let outcomes = checks.into_iter().map(|check| check.join().unwrap());
        outcomes.filter_map(Result::err).collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Compares the compiler's messages about a case with the file beside it.
fn check(case: &str) -> Result<(), String> {
    let messages = comparable(&compile(case)?);
    let file = Path::new(WORKSPACE).join(case).with_extension("stderr");
    if env::var_os("UPDATE_MESSAGES").is_some() {
        fs::write(&file, &messages).unwrap();
    }
    let expected = fs::read_to_string(&file).unwrap_or_default();
    if messages == expected {
        return Ok(());
    }
    let same = messages.lines().zip(expected.lines());
    let line = same.take_while(|(now, then)| now == then).count() + 1;
    Err(format!(
        "{case}: the messages differ from their file from line {line} on:\n{messages}"
    ))
}

/// The compiler's messages about a case that it refuses.
fn compile(case: &str) -> Result<String, String> {
    let pairs = ARGUMENTS.windows(2);
    let dependencies = pairs.filter(|pair| ["--extern", "-L"].contains(&pair[0]));
    let compiled = Command::new("rustc")
        .current_dir(WORKSPACE)
        .args(["--edition=2024", "--emit=metadata", "--out-dir"])
        .arg(env!("CARGO_TARGET_TMPDIR"))
        .args(dependencies.flatten())
        // Types are written in full.
        .args(["--verbose", "--color=never", "--allow=dead_code", case])
        .output()
        .unwrap();
    match compiled.status.success() {
        true => Err(format!("{case} compiles")),
        false => Ok(String::from_utf8(compiled.stderr).unwrap()),
    }
}

/// Leaves out what changes while the messages stay: line numbers of the library, code of other crates, and the other types that implement a
/// trait, which depend on the features of the build.
fn comparable(messages: &str) -> String {
    let mut kept = String::new();
    // Line numbers take as many columns as the greatest one of a message.
    let mut columns = 0;
    let mut in_list = false;
    let mut in_case = true;
    let mut in_other_crate = false;
    for line in messages.lines() {
        if line.starts_with("error: aborting") {
            break;
        }
        let text = line.trim_start();
        let is_heading = !line.starts_with([' ', '.']) && !line.starts_with(char::is_numeric);
        if is_heading || text.starts_with("= ") {
            in_list = is_list_of_types(text);
            in_other_crate = false;
        }
        let mut shown = line;
        if let Some(place) = text.strip_prefix("--> ").or(text.strip_prefix("::: ")) {
            columns = line.len() - text.len();
            in_case = place.starts_with(CASES);
            in_other_crate = Path::new(place).is_absolute();
            if !in_case {
                let (file, _line_and_column) = line.split_once(".rs:").unwrap();
                shown = &line[..file.len() + ".rs".len()];
            }
        }
        if in_list || in_other_crate {
            continue;
        }
        if is_heading {
            kept.push_str(shown);
        } else {
            let (number, code) = match shown.strip_prefix("...") {
                Some(rest) => ("...   ", rest.get(columns..).unwrap_or_default()),
                None if in_case => (shown[..columns].trim(), &shown[columns..]),
                None => ("", &shown[columns..]),
            };
            kept.push_str(format!("{number:>3}{code}").trim_end());
        }
        kept.push('\n');
    }
    kept.trim_end().to_owned() + "\n"
}

/// Whether this part of a message lists the types that implement a trait.
fn is_list_of_types(text: &str) -> bool {
    text.contains("help: the following other types implement trait")
        || text.contains("help: the trait ") && text.contains("` is implemented for `")
}
