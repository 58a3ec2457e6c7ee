//! A guide: from the first count to leaving again.
//!
//! The documentation of each item states what it does and which SQL it sends. This guide says which item to use, in which
//! order, and why.
//!
#![doc = include_str!("guide/diagram.svg")]
//!
//! The first three chapters belong together. Each of the others can be read by itself.
//!
//! Begin:
//!
//! 1. [Why](why): what a hot row costs, and what shards change about it
//! 2. [First use](first_use): the smallest complete application
//! 3. [How it works](how_it_works): base, shards and total; what always holds; the shards table
//!
//! Count and read:
//!
//! 4. [Counting](counting): the updates that go to shards, rows that may be missing, greatest values, sets
//! 5. [Reading](reading): totals, models, top lists, numbers by hour, caches, replicas
//! 6. [Folding](folding): shards into the plain column, and how often
//! 7. [Transactions](transactions): conflicts, retries, isolation, idempotency keys
//!
//! More:
//!
//! 8. [Many shards](hot_rows): how many a row has, and what the hottest rows need
//! 9. [Named counters and limits](named_counters): counters without a table of yours; seats, stock, rate limits
//! 10. [Counter caches](counter_caches): the number of another table's rows, kept by triggers or by hand
//! 11. [Async and pools](asynchronous): `diesel_async`, several databases, poolers, servers that fork
//!
//! Operate:
//!
//! 12. [Adopting and leaving](adopting): three deploys each way, without downtime
//! 13. [Operations](operations): the page for whoever runs the database: locks, backups, alerts, grants
//! 14. [FAQ](faq): other common questions
//!
//! The [reference](crate::reference) has the settings that were tested, a comparison with alternatives, and all benchmarks.
//!
//! All examples run on SQLite. Most use the table and the model of [First use](first_use). The same Rust code runs on
//! PostgreSQL and MySQL.

macro_rules! chapters {
    ($($chapter:ident = $file:literal),* $(,)?) => {$(
        #[doc = include_str!($file)]
        pub mod $chapter {}
    )*};
}
pub(crate) use chapters;

chapters! {
    why = "guide/why.md",
    first_use = "guide/first_use.md",
    how_it_works = "guide/how_it_works.md",
    counting = "guide/counting.md",
    reading = "guide/reading.md",
    folding = "guide/folding.md",
    transactions = "guide/transactions.md",
    hot_rows = "guide/hot_rows.md",
    named_counters = "guide/named_counters.md",
    counter_caches = "guide/counter_caches.md",
    asynchronous = "guide/asynchronous.md",
    adopting = "guide/adopting.md",
    operations = "guide/operations.md",
    faq = "guide/faq.md",
}
