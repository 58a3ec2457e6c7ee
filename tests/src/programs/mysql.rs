//! MariaDB and MySQL.

use std::path::Path;

use super::{
    Installed, Owner, as_user, find, folder, free_port, hand_over, option, run, unprivileged,
};

/// Where MariaDB puts its temporary tables. A server in another namespace may have the same process id, and so the same names.
const TMPDIR: &str = "TMPDIR";

/// MariaDB or MySQL, with these settings besides; by default its binary log, if it has one, does not wait for the disk.
pub fn mysql(settings: &[&str]) -> Result<Installed, String> {
    let missing = "no MariaDB or MySQL server is installed: apt-get install mariadb-server";
    let server = find("mariadbd").or_else(|| find("mysqld")).ok_or(missing)?;
    let folder = folder();
    let owner = unprivileged("mysql");
    let data = folder.join("data");
    create(&server, &folder, &data, owner);
    let port = free_port();
    let mut mysql = vec![server.into_os_string(), "--no-defaults".into()];
    // A server that starts deletes the temporary tables of others in the same folder.
    mysql.push(option("--tmpdir=", &folder).into());
    mysql.push(option("--datadir=", &data).into());
    mysql.push(option("--socket=", &folder.join("socket")).into());
    mysql.push(option("--pid-file=", &folder.join("pid")).into());
    mysql.push(format!("--port={port}").into());
    for setting in [
        "--bind-address=127.0.0.1",
        "--max-connections=300",
        "--sync-binlog=0",
        "--skip-name-resolve",
    ] {
        mysql.push(setting.into());
    }
    mysql.extend(settings.iter().map(Into::into));
    Ok(Installed {
        command: mysql,
        owner,
        environment: vec![(TMPDIR, folder.clone().into_os_string())],
        folder,
        address: format!("mysql://root@127.0.0.1:{port}"),
    })
}

fn create(server: &Path, folder: &Path, data: &Path, owner: Option<Owner>) {
    hand_over(folder, owner);
    match find("mariadb-install-db") {
        Some(install) => run(as_user(install, owner)
            .env(TMPDIR, folder)
            .args([
                "--no-defaults",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ])
            .arg(option("--tmpdir=", folder))
            .arg(option("--datadir=", data))),
        None => run(as_user(server.to_owned(), owner)
            .args(["--no-defaults", "--initialize-insecure"])
            .arg(option("--datadir=", data))),
    }
}
