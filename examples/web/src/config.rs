//! The settings, from the arguments and the environment.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::Result;
use crate::source::{Server, Source};

/// Where the site listens, where its database is, and how often it folds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub address: SocketAddr,
    pub database: Source,
    /// The time between two folds of all videos that were watched; `None` starts no folder.
    pub fold_every: Option<Duration>,
}

/// A year: the admin page counts in seconds.
const LONGEST_INTERVAL: u64 = 365 * 24 * 60 * 60;

impl Config {
    /// The text of `--help`.
    pub const HELP: &str = "\
A video site whose views and likes are sharded counters

Arguments:
  --postgres    on a private PostgreSQL in a temporary folder, stopped and deleted at the end
  --mariadb     on a private MariaDB or MySQL, likewise

Variables:
  DATABASE_URL  a file of SQLite (diesel_sharded_web.db in the temporary folder), or the URL of a server
  ADDR          an IP address, with a port or without (127.0.0.1)
  PORT          a port, 0 for any that is free (3000)
  FOLD_EVERY    the seconds between two folds, 0 for none by itself (60)
";

    /// Reads the arguments and the variables that [`HELP`](Self::HELP) names.
    pub fn read(
        arguments: impl IntoIterator<Item = String>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        let mut private = None;
        for argument in arguments {
            let server = Server::ALL
                .into_iter()
                .find(|server| server.argument() == argument);
            let server = server.ok_or_else(|| {
                format!("{argument:?} is none of the arguments --postgres, --mariadb and --help")
            })?;
            if private.replace(server).is_some() {
                return Err(format!("{argument}: the site runs on one server: name one").into());
            }
        }
        let port = match variable("PORT") {
            None => 3000,
            Some(port) => port
                .parse()
                .map_err(|_| format!("PORT: {port:?} is no port, which is a number up to 65535"))?,
        };
        let address = match variable("ADDR") {
            None => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port),
            Some(addr) => addr
                .parse()
                .or_else(|_| addr.parse().map(|ip: IpAddr| SocketAddr::new(ip, port)))
                .map_err(|_| format!("ADDR: {addr:?} is no IP address such as 0.0.0.0:8080"))?,
        };
        let database = match (private, variable("DATABASE_URL")) {
            (None, Some(url)) => Source::Url(url),
            (None, None) => {
                let file = std::env::temp_dir().join("diesel_sharded_web.db");
                Source::Url(file.display().to_string())
            }
            (Some(server), None) => Source::Private(server),
            (Some(server), Some(_)) => {
                let argument = server.argument();
                return Err(format!("{argument}: DATABASE_URL is set too: unset it").into());
            }
        };
        let fold_every = match variable("FOLD_EVERY") {
            None => 60,
            Some(seconds) => seconds
                .parse()
                .ok()
                .filter(|number| *number <= LONGEST_INTERVAL)
                .ok_or_else(|| {
                    format!(
                        "FOLD_EVERY: {seconds:?} is no number of seconds from 0 to {LONGEST_INTERVAL}"
                    )
                })?,
        };
        Ok(Config {
            address,
            database,
            fold_every: (fold_every > 0).then(|| Duration::from_secs(fold_every)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Config> {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned());
        Config::read(arguments, |name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn address(variables: &[(&str, &str)]) -> Result<String> {
        Ok(read(&[], variables)?.address.to_string())
    }

    #[test]
    fn an_argument_asks_for_a_private_server() {
        for server in Server::ALL {
            let config = read(&[server.argument()], &[]).unwrap();
            assert_eq!(config.database, Source::Private(server));
        }
        let config = read(&[], &[("DATABASE_URL", "a.db")]).unwrap();
        assert_eq!(config.database, Source::Url("a.db".to_owned()));
        let refused: [(&[_], &[_], _); 3] = [
            (&["--oracle"], &[], "is none of the arguments"),
            (&["--postgres", "--mariadb"], &[], "name one"),
            (
                &["--postgres"],
                &[("DATABASE_URL", "a.db")],
                "DATABASE_URL is set too",
            ),
        ];
        for (arguments, variables, reason) in refused {
            let error = read(arguments, variables).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn addresses_and_ports_go_together() {
        let addresses: [(&[_], &str); 5] = [
            (&[], "127.0.0.1:3000"),
            (&[("PORT", "80")], "127.0.0.1:80"),
            (&[("ADDR", "0.0.0.0")], "0.0.0.0:3000"),
            (&[("ADDR", "::1"), ("PORT", "80")], "[::1]:80"),
            (&[("ADDR", "0.0.0.0:8080"), ("PORT", "80")], "0.0.0.0:8080"),
        ];
        for (variables, expected) in addresses {
            assert_eq!(address(variables).unwrap(), expected);
        }
    }

    #[test]
    fn zero_seconds_start_no_folder() {
        let intervals = ["0", "1", "31536000"].map(|seconds| {
            let config = read(&[], &[("FOLD_EVERY", seconds)]).unwrap();
            config.fold_every.map(|every| every.as_secs())
        });
        assert_eq!(intervals, [None, Some(1), Some(31_536_000)]);
    }

    #[test]
    fn a_value_that_does_not_parse_is_an_error_that_names_the_variable() {
        for name in ["ADDR", "PORT", "FOLD_EVERY"] {
            for value in ["", "99999999999999999999", "31536001", "localhost", "-1"] {
                let error = address(&[(name, value)]).unwrap_err().to_string();
                assert!(error.starts_with(name), "{error}");
            }
        }
    }
}
