//! The folder, the coalescer, and the conflicts of this process.

use diesel_sharded::coalescer::Stats;
use maud::{Markup, html};

use super::number::{counted, grouped, milliseconds};
use crate::conflicts::{self, Conflicts};
use crate::folding::{Folded, Folding, LastPass};
use crate::models::Unfolded;

pub fn sections(
    folding: &Folding,
    unfolded: Unfolded,
    conflicts: Conflicts,
    coalescer: &Stats,
) -> Markup {
    html! {
        (of_folder(folding, unfolded))
        (of_coalescer(coalescer))
        (of_conflicts(conflicts))
    }
}

fn of_folder(folding: &Folding, unfolded: Unfolded) -> Markup {
    let Folded { last, since_start } = folding.so_far();
    html! {
        section aria-labelledby="folder-title" {
            h2 id="folder-title" { "Folder" }
            p.note { "Folds all videos by itself, every " (counted(folding.every.as_secs(), "second")) "." }
            table {
                tr.total { th scope="row" { "Views not folded yet" } td id="unfolded" { (grouped(unfolded.views)) } }
                tr { th scope="row" { "Videos to fold" } td { (grouped(unfolded.videos)) } }
                (of_last_pass(last.as_ref()))
                tr { th scope="row" { "Passes" } td { (grouped(since_start.passes)) } }
                tr { th scope="row" { "Failed passes" } td { (grouped(since_start.failed_passes)) } }
                tr { th scope="row" { "Shards removed" } td { (grouped(since_start.shards_removed)) } }
            }
        }
    }
}

fn of_last_pass(last: Option<&LastPass>) -> Markup {
    let outcome = last.and_then(|last| last.outcome.as_ref());
    html! {
        tr {
            th scope="row" { "Last pass" }
            td id="last-pass" {
                @match last {
                    None => "none yet",
                    Some(LastPass { began, outcome: None }) => { "at " (began) " UTC, under way" },
                    Some(LastPass { began, outcome: Some(pass) }) => {
                        "at " (began) " UTC" @if pass.failed { ", " span.failed { "failed" } } @else { ", took " (milliseconds(pass.took)) }
                    },
                }
            }
        }
        @if let Some(pass) = outcome {
            tr { th scope="row" { "It folded" } td id="pass-folded" { (counted(pass.videos, "video")) } }
            tr { th scope="row" { "It removed" } td { (counted(pass.shards_removed, "empty shard")) } }
            tr { th scope="row" { "It left, as locked" } td { (counted(pass.busy, "video")) } }
            tr { th scope="row" { "It left, as out of range" } td { (counted(pass.unfit, "video")) } }
        }
    }
}

fn of_conflicts(conflicts: Conflicts) -> Markup {
    let retries: u64 = conflicts.retried.iter().sum();
    html! {
        section aria-labelledby="conflicts-title" {
            h2 id="conflicts-title" { "Conflicts since the start" }
            table {
                @for ((_, name), count) in conflicts::KINDS.iter().zip(conflicts.retried) {
                    tr { th scope="row" { (name) } td { (grouped(count)) } }
                }
                tr.total { th scope="row" { "Tried again" } td { (grouped(retries)) } }
                tr { th scope="row" { "Given up" } td { (grouped(conflicts.given_up)) } }
            }
        }
    }
}

fn of_coalescer(stats: &Stats) -> Markup {
    let mean = stats.flush_time.as_secs_f64() * 1000.0 / stats.flushes.max(1) as f64;
    html! {
        section aria-labelledby="coalescer-title" {
            h2 id="coalescer-title" { "Coalescer" }
            table {
                tr.total { th scope="row" { "Callers in the queue" } td { (stats.queued_callers) } }
                tr { th scope="row" { "Counters in the queue" } td { (stats.queued_counters) } }
                tr { th scope="row" { "Flushes" } td { (grouped(stats.flushes)) } }
                tr { th scope="row" { "Callers flushed" } td { (grouped(stats.flushed_callers)) } }
                tr { th scope="row" { "A flush takes" } td { (format!("{mean:.1} ms")) } }
                tr { th scope="row" { "Conflicts" } td { (grouped(stats.conflicts)) } }
                tr { th scope="row" { "Lost" } td { (grouped(stats.losses)) } }
            }
        }
    }
}
