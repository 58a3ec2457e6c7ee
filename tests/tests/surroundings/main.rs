//! What stands around the library on one database: settings, privileges, triggers, transactions that Diesel does not know, processes that
//! fork, backups, schedulers, Prometheus, online schema changes.

#![expect(
    clippy::duplicate_mod,
    reason = "the same cases, once for each kind of connections"
)]

mod backups;
mod changed_types;
mod fold_and_triggers;
mod forked;
mod grants;
#[cfg(feature = "observability")]
mod monitoring;
mod online_schema_change;
mod other_clients;
mod raw_transactions;
mod resisting_parents;
mod settings;
mod timers;
