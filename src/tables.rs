//! Tables: what creates, changes and drops tables, views, functions and triggers.

pub mod counter_cache;
pub mod described;
pub(crate) mod migrations;
pub(crate) mod shards_table;
