//! The settings, from the arguments and the environment.

use std::net::{IpAddr, Ipv4Addr};

use clap::Parser;

/// A video site whose views and likes are sharded counters
#[derive(Debug, Clone, Parser)]
pub struct Config {
    /// A file of SQLite, or the URL of a server; otherwise diesel_sharded_web.db in the temporary folder
    #[arg(long, env, hide_env_values = true)]
    pub database_url: Option<String>,
    /// The IP address to listen on
    #[arg(long, env, default_value_t = IpAddr::from(Ipv4Addr::LOCALHOST))]
    pub addr: IpAddr,
    /// The port, 0 for any that is free
    #[arg(long, env, default_value_t = 3000)]
    pub port: u16,
    /// The seconds between two folds of all videos that were watched, 0 for none by itself
    #[arg(long, env, default_value_t = 60)]
    pub fold_every: u64,
}
