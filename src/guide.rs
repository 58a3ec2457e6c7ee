//! A guide: from the first count to leaving again.
//!
//! The documentation of each item states what it does and which SQL it sends. This guide says which item to use, in which
//! order, and why.
//!
#![doc = include_str!("guide/diagram.svg")]
//!
//! Each chapter can be read by itself. The first three belong together, and each ends with a link to the next one.
//!
//! Begin:
//!
//! 1. [Why](why): what a hot row costs, and what shards change about it
//! 2. [First use](first_use): the smallest complete application
//! 3. [How it works](how_it_works): base, shards and total; the two statements; what always holds
//!
//! Count and read:
//!
//! 4. [Counting](counting): the updates that go to shards, and the queries that read totals
//! 5. [Models](models): structs that read totals, and structs that are saved
//! 6. [SQL](sql): the shards table on each database
//! 7. [Choosing shards](choosing_shards): how many there are, and which one a count takes
//! 8. [Transactions](transactions): counts inside `conn.transaction(..)`, conflicts and retries
//! 9. [Isolation](isolation): the level to use on each database
//!
//! Operate:
//!
//! 10. [Folding](folding): shards into the plain column, and how often
//! 11. [Top lists](top): the rows with the most counts, exactly, and the index for it
//! 12. [Time](time): views by hour and day, rolling windows, what is trending, rate limits
//! 13. [Counter caches](counter_caches): the number of another table's rows, kept by triggers
//! 14. [Operations](operations): sets, limits, repairs, idempotency keys, caches, metrics
//! 15. [Named counters](named_counters): counters without a table of yours
//! 16. [Coalescing](coalescing): the counts of many threads in one commit
//! 17. [Async](asynchronous): the same on `diesel_async`, and what cancelling does
//! 18. [MultiConnection](multi_connection): one binary for several databases
//!
//! Move in and out:
//!
//! 19. [Migrating](migrating): from a plain column to shards in three deploys, without a stop
//! 20. [Leaving](leaving): the way back, also in three deploys
//!
//! Look up:
//!
//! 21. [Surroundings](surroundings): settings of the server and the session, and what holds with them
//! 22. [Grants](grants): the privileges that each operation needs, as `GRANT` statements
//! 23. [Benchmarks](benchmarks): what was measured, and how
//! 24. [Comparison](comparison): slotted counters, Redis write-behind, triggers, event rows and others
//! 25. [FAQ](faq): what else people ask
//!
//! All examples run on SQLite. Most use the table and the model of [First use](first_use). The same Rust code runs on
//! PostgreSQL and MySQL.

macro_rules! chapters {
    ($($chapter:ident = $file:literal),* $(,)?) => {$(
        #[doc = include_str!($file)]
        pub mod $chapter {}
    )*};
}

chapters! {
    why = "guide/why.md",
    first_use = "guide/first_use.md",
    how_it_works = "guide/how_it_works.md",
    counting = "guide/counting.md",
    models = "guide/models.md",
    sql = "guide/sql.md",
    choosing_shards = "guide/choosing_shards.md",
    transactions = "guide/transactions.md",
    isolation = "guide/isolation.md",
    folding = "guide/folding.md",
    top = "guide/top.md",
    time = "guide/time.md",
    counter_caches = "guide/counter_caches.md",
    operations = "guide/operations.md",
    named_counters = "guide/named_counters.md",
    coalescing = "guide/coalescing.md",
    asynchronous = "guide/asynchronous.md",
    multi_connection = "guide/multi_connection.md",
    migrating = "guide/migrating.md",
    leaving = "guide/leaving.md",
    surroundings = "guide/surroundings.md",
    grants = "guide/grants.md",
    comparison = "guide/comparison.md",
    faq = "guide/faq.md",
}

#[doc = include_str!("guide/benchmarks.md")]
///
/// <div class="charts"><style>.charts svg { max-width: 100%; height: auto }</style>
#[doc = include_str!("../docs/benchmarks/one-hot-row.svg")]
#[doc = include_str!("../docs/benchmarks/soak.svg")]
/// </div>
///
/// Next: [Comparison](comparison)
pub mod benchmarks {}
