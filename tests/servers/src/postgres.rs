//! PostgreSQL.

use std::fs;
use std::path::{Path, PathBuf};

use crate::installed::Installed;
use crate::machine::{
    Owner, as_user, find, folder, free_port, hand_over, newest, run, unprivileged,
};

/// The languages that PostgreSQL may speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Messages {
    English,
    /// German too, which takes some seconds.
    Two,
}

/// PostgreSQL with these settings, which nothing can override.
pub fn postgres(settings: &[&str], messages: Messages) -> Result<Installed, String> {
    let bin = postgres_programs()?;
    let mut postgres = postgres_with(&bin, settings, |data, owner| {
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
    })?;
    if messages == Messages::Two {
        // For the test that errors are recognized by more than their English text.
        let locales = postgres.folder.join("locales");
        fs::create_dir(&locales).map_err(|error| format!("{}: {error}", locales.display()))?;
        hand_over(&locales, postgres.owner)?; // to whom the keeper belongs, which deletes it
        run(as_user("localedef".into(), postgres.owner)
            .args(["-i", "de_DE", "-f", "UTF-8"])
            .arg(locales.join("de_DE.UTF-8")))?;
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

/// The same on data that `create` puts there.
pub fn postgres_with(
    bin: &Path,
    settings: &[&str],
    create: impl FnOnce(&Path, Option<Owner>) -> Result<(), String>,
) -> Result<Installed, String> {
    let folder = folder()?;
    let owner = unprivileged("postgres");
    let data = folder.join("data");
    let created = hand_over(&folder, owner).and_then(|()| create(&data, owner));
    let port = created.and_then(|()| free_port()).inspect_err(|_| {
        let _ = fs::remove_dir_all(&folder); // the error that comes back says more
    })?;
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
        .chain(settings)
    {
        command.extend(["-c".into(), setting.into()]);
    }
    Ok(Installed {
        command,
        owner,
        environment: vec![],
        folder,
        address: format!("postgres://postgres@127.0.0.1:{port}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_whose_data_cannot_be_created_is_deleted() {
        let mut folder = PathBuf::new();
        let failed = postgres_with(Path::new("/nothing"), &[], |data, owner| {
            data.parent().expect("a folder").clone_into(&mut folder);
            assert!(folder.is_dir());
            run(as_user("/bin/sh".into(), owner).args(["-c", "echo because >&2; exit 1"]))
        });
        let error = failed.unwrap_err();
        assert!(error.ends_with("because\n"), "{error}");
        assert!(folder.is_absolute() && !folder.exists());
    }
}
