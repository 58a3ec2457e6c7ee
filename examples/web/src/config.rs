//! The settings, from the arguments and the environment.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::Parser;

use crate::Result;

/// Where the site listens, where its database is, and how often it folds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub address: SocketAddr,
    pub database: Source,
    /// The time between two folds of all videos that were watched; `None` starts no folder.
    pub fold_every: Option<Duration>,
}

/// A video site whose views and likes are sharded counters
#[derive(Debug, Parser)]
pub struct Arguments {
    /// A private PostgreSQL in a temporary folder, stopped and deleted at the end
    #[arg(long, conflicts_with_all = ["mariadb", "database_url"])]
    postgres: bool,
    /// A private MariaDB or MySQL, likewise
    #[arg(long, conflicts_with = "database_url")]
    mariadb: bool,
    /// A file of SQLite, or the URL of a server; otherwise diesel_sharded_web.db in the temporary folder
    #[arg(long, env, hide_env_values = true)]
    database_url: Option<String>,
    /// The IP address to listen on
    #[arg(long, env, default_value_t = IpAddr::from(Ipv4Addr::LOCALHOST))]
    addr: IpAddr,
    /// The port, 0 for any that is free
    #[arg(long, env, default_value_t = 3000)]
    port: u16,
    /// The seconds between two folds, 0 for none by itself
    #[arg(long, env, default_value_t = 60)]
    fold_every: u64,
}

impl From<Arguments> for Config {
    fn from(arguments: Arguments) -> Self {
        let database = match arguments.database_url {
            Some(url) => Source::Url(url),
            None if arguments.postgres => Source::Private(Server::Postgres),
            None if arguments.mariadb => Source::Private(Server::Mariadb),
            None => {
                let file = std::env::temp_dir().join("diesel_sharded_web.db");
                Source::Url(file.display().to_string())
            }
        };
        let every = arguments.fold_every;
        Config {
            address: SocketAddr::new(arguments.addr, arguments.port),
            database,
            fold_every: (every > 0).then(|| Duration::from_secs(every)),
        }
    }
}

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
        let scheme = url.split_once("://").map_or("sqlite", |(scheme, _)| scheme);
        let (kind, feature, is_built_in) = match scheme {
            "sqlite" => (Kind::Sqlite, "sqlite", true),
            "postgres" | "postgresql" => (Kind::Postgres, "postgres", cfg!(feature = "postgres")),
            "mysql" => (Kind::Mysql, "mysql", cfg!(feature = "mysql")),
            other => {
                let known = "postgres://, mysql:// and a file's path for SQLite";
                return Err(format!("DATABASE_URL: {other}:// is none of {known}").into());
            }
        };
        let command = format!("cargo run --release -p diesel_sharded_web --features {feature}");
        let missing =
            || format!("DATABASE_URL: {scheme}:// needs the feature {feature}: {command}").into();
        is_built_in.then_some(kind).ok_or_else(missing)
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

    /// The command that starts the site on it, whatever this program is built for.
    pub fn command(self) -> String {
        let (feature, argument) = match self {
            Server::Postgres => ("postgres", "--postgres"),
            Server::Mariadb => ("mysql", "--mariadb"),
        };
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
}
