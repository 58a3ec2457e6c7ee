//! The database that the site is to run on, as its operator names it.

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
