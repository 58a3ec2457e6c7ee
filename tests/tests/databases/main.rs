//! What one operation or table does on the databases, beside other sessions, settings and rows that resist.

mod async_cached;
mod backups;
mod cached;
mod counter_caches;
mod cut_values;
mod recounts;
mod replaced_parents;
mod resisting_parents;
mod row_security;
mod server_modes;
mod shards_tables;
mod top_lists;
mod vanishing_keys;
