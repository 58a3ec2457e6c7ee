//! The settings, from the arguments and the environment.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::Parser;

use crate::source::{Server, Source};

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
