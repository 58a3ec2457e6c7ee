//! The units and the line for cron in docs/operations: they are content with the exit codes that are no failures, and only with
//! these.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use diesel_sharded_tests::documents::read;

/// The codes with which the tool ends a command that did not fail, from its own source.
fn codes_of_the_tool() -> BTreeSet<u8> {
    let source = read("cli/src/error.rs");
    let (_, codes) = source.split_once("pub enum Ended {").expect("the codes");
    let (codes, _) = codes.split_once("\n}").expect("their end");
    let codes = codes.lines().filter_map(|line| line.split_once(" = "));
    let codes = codes.map(|(_, code)| code.trim_end_matches(',').parse().expect("a code"));
    codes.collect()
}

#[test]
fn the_unit_is_content_with_the_codes_of_the_tool() {
    let codes = codes_of_the_tool();
    assert!(codes.len() >= 3, "{codes:?}");
    let unit = read("docs/operations/diesel-sharded-fold.service");
    let line = unit
        .lines()
        .find_map(|line| line.strip_prefix("SuccessExitStatus="));
    let mut content: BTreeSet<u8> = line
        .expect("codes of success")
        .split(' ')
        .map(|code| code.parse().expect("a code"))
        .collect();
    content.insert(0);
    assert_eq!(content, codes);
}

fn executable(path: &Path, script: &str) {
    fs::write(path, format!("#!/bin/sh\n{script}\n")).expect("a script");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("permissions");
}

/// Runs the line's command as cron does, with a tool that says something and ends with `code`.
fn run_by_cron(code: u8) -> Output {
    let home = tempfile::tempdir().expect("a folder");
    executable(
        &home.path().join("diesel-sharded"),
        &format!("echo \"busy: $*\"; exit {code}"),
    );
    let table = read("docs/operations/diesel-sharded.cron");
    let line = table
        .lines()
        .find(|line| line.starts_with('*'))
        .expect("a line");
    // Five fields of time, and the user.
    let command = line.splitn(7, ' ').nth(6).expect("a command");
    assert!(!command.contains('%'), "cron takes % for the end of a line");
    let path = format!("{}:/usr/bin:/bin", home.path().display());
    Command::new("/bin/bash")
        .args(["-c", command])
        .env_clear()
        .env("HOME", home.path())
        .env("PATH", path)
        .output()
        .expect("bash")
}

#[test]
fn cron_mails_failures_alone() {
    let quiet = codes_of_the_tool();
    for code in [0, 1, 2, 3, 101, 130] {
        let ran = run_by_cron(code);
        let is_quiet = quiet.contains(&code);
        assert_eq!(ran.status.success(), is_quiet, "{code}: {ran:?}");
        let said = String::from_utf8_lossy(&ran.stdout);
        assert_eq!(
            said.contains("busy: fold --at-most-per-second"),
            !is_quiet,
            "{code}: {ran:?}"
        );
        assert!(ran.stderr.is_empty(), "{code}: {ran:?}");
    }
}
