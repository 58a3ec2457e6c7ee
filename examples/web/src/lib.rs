//! A video site whose views and likes are sharded counters: a library, so that its tests start it in their own process.

mod config;
mod database;
mod error;
mod live;
mod load;
mod metrics;
mod models;
mod origin;
mod pages;
mod private_server;
mod schema;
mod site;
mod trending;
mod visitor;

pub use config::{Arguments, Config, Server, Source};
pub use site::Site;

pub type Error = Box<dyn std::error::Error + Send + Sync>;
pub type Result<T> = std::result::Result<T, Error>;
