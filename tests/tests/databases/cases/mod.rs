//! The cases that every operation has to pass, on a connection and by an `api`: the blocking operations or the asynchronous ones.

use super::Conn;
use super::api;

mod bounded;
mod combine;
mod concurrency;
mod count_many;
mod counter_cache;
mod doubles;
mod fold;
mod histories;
mod idempotency;
mod in_schema;
mod keys;
mod life;
mod models;
mod named;
mod named_values;
mod one_cache;
mod or_insert;
mod peaks;
mod properties;
mod recipes;
mod returning;
mod row_counter;
mod set_once;
mod set_total;
mod shapes;
mod shard_choice;
#[path = "../support.rs"]
mod support;
mod top;
mod totals;
mod transactions;
mod trending;
mod unique;
mod verify;
mod view;
mod without_foreign_key;

pub use self::support::*;
