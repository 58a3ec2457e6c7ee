//! The settings that the environment gives.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use crate::Result;

/// Where the site listens, where its database is, and how often it folds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub address: SocketAddr,
    pub database_url: String,
    /// The time between two folds of all videos that were watched.
    pub fold_every: Duration,
}

impl Config {
    /// `ADDR` is an IP address with a port or without, `PORT` a port, and `DATABASE_URL` a file of SQLite or the URL of a server,
    /// `FOLD_EVERY` a number of seconds.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
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
        let database_url = variable("DATABASE_URL").unwrap_or_else(|| {
            let file = std::env::temp_dir().join("diesel_sharded_web.db");
            file.display().to_string()
        });
        let fold_every = match variable("FOLD_EVERY") {
            None => 60,
            Some(seconds) => seconds
                .parse()
                .map_err(|_| format!("FOLD_EVERY: {seconds:?} is no number of seconds"))?,
        };
        Ok(Config {
            address,
            database_url,
            fold_every: Duration::from_secs(fold_every),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(variables: &[(&str, &str)]) -> Result<String> {
        let config = Config::from_environment(|name| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        });
        Ok(config?.address.to_string())
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
    fn a_value_that_does_not_parse_is_an_error_that_names_the_variable() {
        for name in ["ADDR", "PORT", "FOLD_EVERY"] {
            for value in ["", "99999999999999999999", "localhost", "-1"] {
                let error = address(&[(name, value)]).unwrap_err().to_string();
                assert!(error.starts_with(name), "{error}");
            }
        }
    }
}
