//! Servers started from installed binaries, each in a temporary folder, on a free port of 127.0.0.1.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use diesel::prelude::*;

use crate::Server;

/// Starts a server that runs as long as this process, or says what is not installed.
pub fn start(server: Server) -> Result<String, String> {
    let installed = match server {
        Server::Postgres => postgres("fsync=off", Messages::Two)?,
        Server::SyncedPostgres => postgres("fsync=on", Messages::Two)?,
        Server::Mysql => mysql("--innodb-flush-log-at-trx-commit=0")?,
    };
    keep_on(installed.start());
    installed.wait_until_it_answers();
    Ok(installed.address)
}

/// A server with an empty data folder, ready to run.
#[derive(Debug)]
pub struct Installed {
    server: Server,
    command: Vec<OsString>,
    owner: Option<(u32, u32)>,
    environment: Vec<(&'static str, OsString)>,
    pub folder: PathBuf,
    /// As [`Server::address`].
    pub address: String,
}

impl Installed {
    /// Starts it; the keeper starts it again, after a crash, for each line on its standard input.
    pub fn start(&self) -> Child {
        let environment = self.environment.iter();
        let environment: Vec<_> = environment
            .map(|(name, value)| (*name, value.as_os_str()))
            .collect();
        keeper_of(self.command.clone(), self.owner, &self.folder, &environment)
    }

    pub fn wait_until_it_answers(&self) {
        let address = &self.address;
        match self.server {
            Server::Postgres | Server::SyncedPostgres => wait_for(&self.folder, || {
                PgConnection::establish(&format!("{address}/postgres"))
            }),
            Server::Mysql => wait_for(&self.folder, || {
                MysqlConnection::establish(&format!("{address}/mysql"))
            }),
        }
    }

    /// The id of the process that was started last.
    pub fn process(&self) -> u32 {
        let file = self.folder.join("process");
        let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        text.trim().parse().expect("a process id")
    }
}

/// The languages that PostgreSQL may speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Messages {
    English,
    /// German too, which takes some seconds.
    Two,
}

/// PostgreSQL, with one more setting.
pub fn postgres(setting: &str, messages: Messages) -> Result<Installed, String> {
    let bin = postgres_programs()?;
    let mut postgres = postgres_with(&bin, &[setting], |data, owner| {
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
            ]));
    });
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

/// PostgreSQL with these settings, which nothing can override, on data that `create` has put there.
pub fn postgres_with(
    bin: &Path,
    settings: &[&str],
    create: impl FnOnce(&Path, Option<(u32, u32)>),
) -> Installed {
    let folder = folder();
    let owner = unprivileged("postgres");
    hand_over(&folder, owner);
    let data = folder.join("data");
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
    for setting in [
        "listen_addresses=127.0.0.1",
        "max_connections=300",
        "shared_preload_libraries=pg_stat_statements",
        "max_prepared_transactions=10",
    ]
    .iter()
    .chain(settings)
    {
        command.extend(["-c".into(), setting.into()]);
    }
    Installed {
        server: Server::Postgres,
        command,
        owner,
        environment: vec![],
        folder,
        address: format!("postgres://postgres@127.0.0.1:{port}"),
    }
}

/// Where MariaDB puts its temporary tables. A server in another namespace may have the same process id, and so the same names.
const TMPDIR: &str = "TMPDIR";

/// MariaDB or MySQL, with one more setting.
pub fn mysql(flush: &str) -> Result<Installed, String> {
    let missing = "no MariaDB or MySQL server is installed: apt-get install mariadb-server";
    let server = find("mariadbd").or_else(|| find("mysqld")).ok_or(missing)?;
    let folder = folder();
    let owner = unprivileged("mysql");
    hand_over(&folder, owner);
    let data = folder.join("data");
    match find("mariadb-install-db") {
        Some(install) => run(as_user(install, owner)
            .env(TMPDIR, &folder)
            .args([
                "--no-defaults",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
            ])
            .arg(option("--tmpdir=", &folder))
            .arg(option("--datadir=", &data))),
        None => run(as_user(server.clone(), owner)
            .args(["--no-defaults", "--initialize-insecure"])
            .arg(option("--datadir=", &data))),
    }
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
        flush,
        "--sync-binlog=0",
        "--skip-name-resolve",
    ] {
        mysql.push(setting.into());
    }
    Ok(Installed {
        server: Server::Mysql,
        command: mysql,
        owner,
        environment: vec![(TMPDIR, folder.clone().into_os_string())],
        folder,
        address: format!("mysql://root@127.0.0.1:{port}"),
    })
}

pub fn option(name: &str, path: &Path) -> String {
    format!("{name}{}", path.display())
}

/// A new folder that the server's keeper deletes.
pub fn folder() -> PathBuf {
    tempfile::Builder::new()
        .prefix("diesel-sharded-")
        .tempdir()
        .expect("a temporary folder")
        .keep()
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// The user and group for a server that will not run as root: those of `name`, or of "nobody". `None` if we are not root.
pub fn unprivileged(name: &str) -> Option<(u32, u32)> {
    let we_are_root = fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0);
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = |name: &str| {
        let line = users
            .lines()
            .find(|line| line.split(':').next() == Some(name))?;
        let mut ids = line.split(':').skip(2).map_while(|id| id.parse().ok());
        Some((ids.next()?, ids.next()?))
    };
    we_are_root.then(|| {
        user(name)
            .or_else(|| user("nobody"))
            .expect("a user other than root")
    })
}

pub fn hand_over(folder: &Path, owner: Option<(u32, u32)>) {
    if let Some((user, group)) = owner {
        chown(folder, Some(user), Some(group)).expect("the folder's owner can be set");
    }
}

pub fn as_user(program: PathBuf, owner: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(program);
    command.current_dir("/");
    if let Some((user, group)) = owner {
        command.uid(user).gid(group);
    }
    command
}

pub fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Starts `command` under a keeper that stops it and deletes its folder as soon as this process is gone, however that ended.
/// (Where the server is paused then, the kernel sends a hangup to both.)
pub fn spawn(
    command: Vec<OsString>,
    owner: Option<(u32, u32)>,
    folder: &Path,
    environment: &[(&str, &OsStr)],
) {
    keep_on(keeper_of(command, owner, folder, environment));
}

/// The same, until the keeper's standard input is closed; for each further line on it, the command is started once more. The
/// keeper reaps no server before it ends itself, so that the id which it kills cannot belong to another process by then.
fn keeper_of(
    command: Vec<OsString>,
    owner: Option<(u32, u32)>,
    folder: &Path,
    environment: &[(&str, &OsStr)],
) -> Child {
    const KEEPER: &str = r#"folder=$1; shift
        trap '' HUP INT TERM
        while read -r start; do
            (trap - HUP INT TERM; exec "$@") >>"$folder/log" 2>&1 </dev/null & server=$!
            echo $server >"$folder/process"
        done
        kill -CONT $(cat /proc/$server/task/*/children) 2>/dev/null
        kill -QUIT $server 2>/dev/null; kill -KILL $server 2>/dev/null; wait $server 2>/dev/null
        rm -rf "$folder""#;
    let mut keeper = as_user("/bin/sh".into(), owner);
    keeper
        .arg("-c")
        .arg(KEEPER)
        .arg("keeper")
        .arg(folder)
        .args(command);
    keeper.envs(environment.iter().copied());
    let mut keeper = start_keeper(&mut keeper);
    start_again(&mut keeper);
    keeper
}

/// Lets a keeper start its server.
pub fn start_again(keeper: &mut Child) {
    let input = keeper.stdin.as_mut().expect("it is piped");
    writeln!(input, "start").expect("the keeper runs");
}

/// Starts a keeper, whose standard input closes when this process ends.
pub fn keep(keeper: &mut Command) {
    keep_on(start_keeper(keeper));
}

fn start_keeper(keeper: &mut Command) -> Child {
    keeper
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0) // Ctrl-C reaches us only
        .spawn()
        .expect("/bin/sh")
}

fn keep_on(keeper: Child) {
    static KEEPERS: Mutex<Vec<Child>> = Mutex::new(vec![]);
    KEEPERS
        .lock()
        .expect("no panic while it is held")
        .push(keeper);
}

pub fn wait_for<T, E: std::fmt::Display>(folder: &Path, mut connect: impl FnMut() -> Result<T, E>) {
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        match connect() {
            Ok(_) => return,
            Err(_) if Instant::now() < patience => std::thread::sleep(Duration::from_millis(50)),
            Err(error) => {
                let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
                panic!("the server did not start: {error}\n{log}");
            }
        }
    }
}

pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// The folder with the greatest number for a name.
fn newest(folder: &Path) -> Option<PathBuf> {
    fs::read_dir(folder)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .max_by_key(|path| {
            let name = path.file_name().map(OsStr::to_string_lossy);
            name.and_then(|name| name.parse::<u32>().ok())
        })
}
