//! Databases of several nodes, and what stands before a database: a Galera cluster, a group of MySQL servers, primaries with
//! a standby or replica, poolers and proxies. The library learns from these for the rest of a process, so no test of the exact statements is here.

#![expect(
    clippy::duplicate_mod,
    reason = "one set of operations for each kind of connection"
)]

mod cluster;
mod failover;
mod galera;
mod group_replication;
mod poolers;
