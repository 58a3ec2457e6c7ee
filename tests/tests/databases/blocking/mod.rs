//! Cases of what has only a blocking form.

use super::Conn;
use super::cases::{
    count, count_on_any_shard, database, database_with_counters, dialect, duration, on_threads,
    on_threads_beside, total_of, totals,
};

mod coalescer;
mod folder;
mod migrating;
mod replaced_parents;
mod tables;
