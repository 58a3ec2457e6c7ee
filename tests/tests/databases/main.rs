//! The library's operations on the databases. The cases of `cases/` run in full on SQLite, PostgreSQL, MySQL or MariaDB; `contract.rs` runs
//! on other connections. Then what one operation does beside other sessions.

#![expect(
    clippy::duplicate_mod,
    reason = "the same cases, once for each kind of connections"
)]

mod cached;
mod combiners;
mod counter_caches;
mod cut_values;
mod mysql;
mod others;
mod postgres;
mod recounts;
mod shards_tables;
mod sqlite;
mod top_lists;
mod vanishing_keys;
