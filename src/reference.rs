//! Reference pages: tables to look something up in, beside the [guide](crate::guide).
//!
//! 1. [Surroundings](surroundings): server and session settings, and what holds with them
//! 2. [Comparison](comparison): slotted counters, Redis write-behind, triggers, event rows and others
//! 3. [Benchmarks](benchmarks): what was measured, and how
//! 4. [Cases](cases): a package registry's downloads and a link aggregator's votes, before and after

use crate::guide::chapters as pages;

pages! {
    surroundings = "reference/surroundings.md",
    comparison = "reference/comparison.md",
    cases = "reference/cases.md",
}

#[doc = include_str!("reference/benchmarks.md")]
///
/// <div class="charts"><style>.charts svg { max-width: 100%; height: auto }</style>
#[doc = include_str!("../docs/benchmarks/one-hot-row.svg")]
/// </div>
pub mod benchmarks {}
