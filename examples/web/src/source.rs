//! The database that the site is to run on, as its operator names it.

use std::fs::OpenOptions;
use std::path::Path;

use crate::Result;

/// The kinds of databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Sqlite,
    Postgres,
    Mysql,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Sqlite => "SQLite",
            Kind::Postgres => "PostgreSQL",
            Kind::Mysql => "MySQL or MariaDB",
        }
    }

    /// The kind that a URL asks for, if the program is built for it.
    pub fn of(url: &str) -> Result<Self> {
        let scheme = url.split_once("://").map(|(scheme, _)| scheme);
        let (kind, feature, is_built_in) = match scheme {
            None | Some("sqlite") => (Kind::Sqlite, "sqlite", true),
            Some("postgres" | "postgresql") => {
                (Kind::Postgres, "postgres", cfg!(feature = "postgres"))
            }
            Some("mysql") => (Kind::Mysql, "mysql", cfg!(feature = "mysql")),
            Some(other) => {
                return Err(format!(
                    "DATABASE_URL: {other}:// is none of postgres://, mysql:// and a file's path for SQLite"
                )
                .into());
            }
        };
        match is_built_in {
            true => Ok(kind),
            false => Err(format!(
                "DATABASE_URL: {scheme}:// needs the feature {feature}: cargo run --release -p diesel_sharded_web --features {feature}",
                scheme = scheme.unwrap_or_default(),
            )
            .into()),
        }
    }
}

/// A server that is started for the site alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    Postgres,
    Mariadb,
}

impl Server {
    pub const ALL: [Server; 2] = [Server::Postgres, Server::Mariadb];

    /// The argument of the program.
    pub fn argument(self) -> &'static str {
        match self {
            Server::Postgres => "--postgres",
            Server::Mariadb => "--mariadb",
        }
    }

    pub fn is_built_in(self) -> bool {
        match self {
            Server::Postgres => cfg!(feature = "postgres"),
            Server::Mariadb => cfg!(feature = "mysql"),
        }
    }

    /// The command that starts the site on it, whatever this program is built for.
    pub fn command(self) -> String {
        let feature = match self {
            Server::Postgres => "postgres",
            Server::Mariadb => "mysql",
        };
        let argument = self.argument();
        format!("cargo run --release -p diesel_sharded_web --features {feature} -- {argument}")
    }
}

/// Where the database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A file of SQLite, or the URL of a server.
    Url(String),
    /// In a temporary folder, for as long as the site runs.
    Private(Server),
}

impl Source {
    /// Finds out what can be known before anything is created.
    pub fn check(&self) -> Result<()> {
        match self {
            Source::Url(url) => match Kind::of(url)? {
                Kind::Sqlite => check_file(url),
                Kind::Postgres | Kind::Mysql => Ok(()),
            },
            Source::Private(server) if !server.is_built_in() => {
                let (argument, command) = (server.argument(), server.command());
                Err(format!("{argument} is not built in: {command}").into())
            }
            Source::Private(server) if cfg!(not(unix)) => {
                let argument = server.argument();
                Err(format!("{argument} needs Unix: start a server, and set DATABASE_URL").into())
            }
            Source::Private(_) => Ok(()),
        }
    }
}

fn check_file(url: &str) -> Result<()> {
    let name = url.strip_prefix("sqlite://").unwrap_or(url);
    if name.is_empty() || name.contains(":memory:") {
        let text = "is no file: each connection would have a database of its own; name a file";
        return Err(format!("DATABASE_URL: {name:?} {text}").into());
    }
    let file = Path::new(name);
    if file.is_dir() {
        return Err(format!("DATABASE_URL: {name} is a folder: name a file in it").into());
    }
    if file.exists() {
        let opened = OpenOptions::new().append(true).open(file);
        return match opened {
            Ok(_) => Ok(()),
            Err(error) => Err(format!("DATABASE_URL: {name} cannot be written: {error}").into()),
        };
    }
    let folder = file
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    match folder.is_dir() {
        true => Ok(()),
        false => Err(format!(
            "DATABASE_URL: {name}: there is no folder {}: create it, or name a file in another one",
            folder.display()
        )
        .into()),
    }
}

/// A URL without its password.
pub fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let path = path.split('?').next().unwrap_or_default(); // parameters may have a password too
    let host = match host.rsplit_once('@') {
        Some((user, host)) => {
            let user = user.split(':').next().unwrap_or_default();
            format!("{user}@{host}")
        }
        None => host.to_owned(),
    };
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for (url, expected) in [
            ("postgres://a:b@c:5/d", "postgres://a@c:5/d"),
            ("postgres://a:b@c@d/e?password=f", "postgres://a@d/e"),
            ("mysql://root@127.0.0.1", "mysql://root@127.0.0.1"),
            ("postgres:///d", "postgres:///d"),
            ("/tmp/a@b.db", "/tmp/a@b.db"),
        ] {
            assert_eq!(shown(url), expected);
        }
    }

    #[test]
    fn a_file_that_cannot_be_one_is_told_and_not_created() {
        let folder = tempfile::TempDir::new().expect("a temporary folder");
        let at = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(at("file"), "").expect("a file");
        for (url, reason) in [
            (at(""), "is a folder"),
            (at("missing/site.db"), "there is no folder"),
            (at("file/site.db"), "there is no folder"),
            (":memory:".to_owned(), "name a file"),
            ("sqlite://".to_owned(), "name a file"),
        ] {
            let error = Source::Url(url.clone()).check().unwrap_err().to_string();
            assert!(
                error.contains(reason) && error.starts_with("DATABASE_URL: "),
                "{error}"
            );
        }
        for url in [
            at("file"),
            at("site.db"),
            format!("sqlite://{}", at("site.db")),
            "site.db".to_owned(),
        ] {
            Source::Url(url).check().unwrap();
        }
        assert_eq!(
            std::fs::read_dir(folder.path()).expect("a folder").count(),
            1
        );
    }

    #[test]
    fn a_server_that_is_not_built_in_has_a_command() {
        for server in Server::ALL {
            let checked = Source::Private(server).check();
            assert_eq!(checked.is_ok(), server.is_built_in());
            if let Err(error) = checked {
                assert!(error.to_string().ends_with(&server.command()), "{error}");
            }
        }
    }
}
