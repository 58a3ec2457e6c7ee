//! Faults while clients count, and a checker of every count's outcome. See the README.

pub mod backend;
pub mod checker;
pub mod client;
pub mod faults;
pub mod history;
pub mod lives;
pub mod operation;
pub mod place;
pub mod report;
pub mod round;
pub mod schema;
pub mod sql_store;
pub mod store;
pub mod workload;
