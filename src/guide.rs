//! A guide: from the first count to leaving again.
//!
//! The documentation of each item says exactly what it does and which SQL it sends. This guide says which item to use, in
//! which order, and why. Its chapters stand alone; the first three are worth reading in order.
//!
//! | chapter | answers |
//! |---|---|
//! | [Why](why) | what a hot row costs, and what shards change about it |
//! | [First use](first_use) | the smallest complete application |
//! | [How it works](how_it_works) | base, shards and total; the one statement; a diagram |
//! | [Choosing shards](choosing_shards) | how many, and who chooses which |
//! | [Transactions](transactions) | counts inside `conn.transaction(..)`, and trying again |
//! | [Which isolation](isolation) | for PostgreSQL, MySQL and MariaDB, SQLite, and clusters |
//! | [Folding](folding) | shards into the plain column, and how often |
//! | [Named counters](named_counters) | counters without a table of yours |
//! | [Coalescing](coalescing) | the counts of many threads in one commit |
//! | [Async](asynchronous) | the same on `diesel_async`, and what cancelling does |
//! | [MultiConnection](multi_connection) | one binary for several databases |
//! | [Migrating](migrating) | from a plain column to shards in three deploys, without a stop |
//! | [Leaving](leaving) | and back, also in three |
//! | [Surroundings](surroundings) | settings of the server and the session, and what holds in them |
//! | [Grants](grants) | the privileges that each operation needs, as `GRANT` statements |
//! | [FAQ](faq) | what else people ask |
//! | [Comparison](comparison) | slotted counters, Redis write-behind, triggers, event rows and others |
//!
//! All examples run on SQLite, most with the table and the model of [First use](first_use); on PostgreSQL and MySQL the same Rust
//! code runs.

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
    choosing_shards = "guide/choosing_shards.md",
    transactions = "guide/transactions.md",
    isolation = "guide/isolation.md",
    folding = "guide/folding.md",
    named_counters = "guide/named_counters.md",
    coalescing = "guide/coalescing.md",
    asynchronous = "guide/asynchronous.md",
    multi_connection = "guide/multi_connection.md",
    migrating = "guide/migrating.md",
    leaving = "guide/leaving.md",
    surroundings = "guide/surroundings.md",
    grants = "guide/grants.md",
    faq = "guide/faq.md",
    comparison = "guide/comparison.md",
}
