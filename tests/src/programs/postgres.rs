//! PostgreSQL.

use std::fs;
use std::path::{Path, PathBuf};

use super::{
    Installed, Owner, as_user, find, folder, free_port, hand_over, newest, run, unprivileged,
};

/// The settings that tests of statements and of two-phase commits need.
const SETTINGS: [&str; 2] = [
    "shared_preload_libraries=pg_stat_statements",
    "max_prepared_transactions=10",
];

/// The languages that PostgreSQL may speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Messages {
    English,
    /// German too, which takes some seconds.
    Two,
}

/// PostgreSQL, with one more setting, which nothing can override.
pub fn postgres(setting: &str, messages: Messages) -> Result<Installed, String> {
    let bin = postgres_programs()?;
    let mut postgres = postgres_with(&bin, |data, owner| {
        run(as_user(bin.join("initdb"), owner)
            .arg("-D")
            .arg(data)
            .args([
                "-U",
                "postgres",
                "--auth=trust",
                "--no-sync",
                "--encoding=UTF8",
                "--locale=C.UTF-8",
            ]))
    });
    postgres.command.extend(["-c".into(), setting.into()]);
    if messages == Messages::Two {
        // For the test that errors are recognized by more than their English text.
        let locales = postgres.folder.join("locales");
        fs::create_dir(&locales).expect("a folder for locales");
        hand_over(&locales, postgres.owner); // to whom the keeper belongs, which deletes it
        run(as_user("localedef".into(), postgres.owner)
            .args(["-i", "de_DE", "-f", "UTF-8"])
            .arg(locales.join("de_DE.UTF-8")));
        let locales = locales.into_os_string();
        postgres.environment.push(("LOCPATH", locales));
    }
    Ok(postgres)
}

/// The folder of PostgreSQL's programs, or what is not installed.
pub fn postgres_programs() -> Result<PathBuf, String> {
    let missing = "no PostgreSQL server is installed: apt-get install postgresql";
    newest(Path::new("/usr/lib/postgresql"))
        .map(|version| version.join("bin"))
        .filter(|bin| bin.join("postgres").exists())
        .or_else(|| Some(find("postgres")?.parent()?.to_owned()))
        .ok_or_else(|| missing.to_owned())
}

/// PostgreSQL on data that `create` puts there.
pub fn postgres_with(bin: &Path, create: impl FnOnce(&Path, Option<Owner>)) -> Installed {
    let folder = folder();
    let owner = unprivileged("postgres");
    let data = folder.join("data");
    hand_over(&folder, owner);
    create(&data, owner);
    let port = free_port();
    let mut command = vec![
        bin.join("postgres").into_os_string(),
        "-D".into(),
        data.into(),
    ];
    command.extend([
        "-k".into(),
        folder.clone().into(),
        "-p".into(),
        port.to_string().into(),
    ]);
    for setting in ["listen_addresses=127.0.0.1", "max_connections=300"]
        .iter()
        .chain(&SETTINGS)
    {
        command.extend(["-c".into(), setting.into()]);
    }
    Installed {
        command,
        owner,
        environment: vec![],
        folder,
        address: format!("postgres://postgres@127.0.0.1:{port}"),
    }
}
