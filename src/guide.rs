//! A guide: seven short chapters, to read in order, from the first increment to operation.
//!
//! The documentation of each item states what it does and which SQL it sends. The guide says which item to use, in which order,
//! and why. All else is in the [reference](crate::reference), to look up when you need it.
//!
#![doc = include_str!("guide/diagram.svg")]
//!
//! 1. [Why](why): when a row is hot, and what shards change
//! 2. [Start](start): the words, the first increment, an axum handler, how it works
//! 3. [Read](reading): totals, models, forms, reports, and who still reads the base
//! 4. [Adopt](adopting): three deploys in and three out, with a checklist
//! 5. [Errors and retries](errors): what to repeat, what to answer over HTTP, requests that come twice
//! 6. [Test](testing): your application on PostgreSQL and SQLite, and what SQLite cannot show
//! 7. [Operate](operations): background folds, shards or combiner, pools, locks, backups, alerts, security
//!
//! The examples run on SQLite; most use the table and the model of [Start](start). The same Rust code runs on PostgreSQL and MySQL.

macro_rules! chapters {
    ($($chapter:ident = $file:literal),* $(,)?) => {$(
        #[doc = include_str!($file)]
        pub mod $chapter {}
    )*};
}
pub(crate) use chapters;

chapters! {
    why = "guide/why.md",
    start = "guide/start.md",
    reading = "guide/reading.md",
    adopting = "guide/adopting.md",
    errors = "guide/errors.md",
    testing = "guide/testing.md",
    operations = "guide/operations.md",
}
