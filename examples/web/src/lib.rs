//! A video site whose views and likes are sharded counters: a library, so that its tests start it in their own process.

mod config;
#[path = "../../support/connection.rs"]
mod connection;
mod database;
mod error;
mod load;
mod metrics;
mod models;
mod pages;
mod schema;
mod site;
mod visitor;

pub use config::Config;
pub use connection::{Error, Result};
pub use site::Site;
