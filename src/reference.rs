//! Reference pages, for looking things up. The [guide](crate::guide) is for reading in order.
//!
//! 1. [Counting](counting): the updates that go to shards, rows that may be missing, greatest values, sets
//! 2. [Lists](lists): top lists, pages and ranks
//! 3. [Folding](folding): shards into the plain column, doubles, triggers
//! 4. [Transactions](transactions): isolation, and transactions that Diesel does not know
//! 5. [Hot rows](hot_rows): the number of shards, combining, counting later
//! 6. [Named counters and limits](named_counters): counters without a table of yours; seats, stock, rate limits
//! 7. [Counter caches](counter_caches): the number of another table's rows, kept by triggers or by hand
//! 8. [Async and pools](asynchronous): `diesel_async`, several databases, poolers
//! 9. [A video site](video_site): recipes for its numbers
//! 10. [Shards table](shards_table): what it looks like on each database, and schemas
//! 11. [Grants](grants): the least privileges for each operation
//! 12. [Surroundings](surroundings): server and session settings, replicas, changes to tables, servers that fork, and what holds with them
//! 13. [Comparison](comparison): alternatives, and when each is better
//! 14. [Benchmarks](benchmarks): what was measured, and how
//! 15. [Cases](cases): a package registry's downloads and a link aggregator's votes, before and after

use crate::guide::chapters as pages;

pages! {
    counting = "reference/counting.md",
    lists = "reference/lists.md",
    folding = "reference/folding.md",
    transactions = "reference/transactions.md",
    hot_rows = "reference/hot_rows.md",
    named_counters = "reference/named_counters.md",
    counter_caches = "reference/counter_caches.md",
    asynchronous = "reference/asynchronous.md",
    video_site = "reference/video_site.md",
    shards_table = "reference/shards_table.md",
    grants = "reference/grants.md",
    surroundings = "reference/surroundings.md",
    comparison = "reference/comparison.md",
    cases = "reference/cases.md",
}

#[doc = include_str!("reference/benchmarks.md")]
///
/// <div class="charts"><style>.charts { overflow-x: auto } .charts svg { max-width: 100%; min-width: 840px; height: auto }</style>
#[doc = include_str!("../docs/benchmarks/one-hot-row.svg")]
/// </div>
pub mod benchmarks {}
