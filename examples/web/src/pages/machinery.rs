//! The folder, the coalescer, and the conflicts of this process.

use std::time::Duration;

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
    html! {
        section aria-labelledby="folder-title" {
            h2 id="folder-title" { "Folder" }
            p.note id="folder-interval" { (interval(folding.every)) }
            table {
                tbody {
                    tr.total { th scope="row" { "Views not folded yet" } td id="unfolded" { (grouped(unfolded.views)) } }
                    tr { th scope="row" { "Videos to fold" } td { (grouped(unfolded.videos)) } }
                }
                @if folding.every.is_some() { (of_passes(&folding.so_far())) }
            }
        }
    }
}

fn interval(every: Option<Duration>) -> String {
    match every {
        None => "Off: nothing folds by itself. FOLD_EVERY is 0.".to_owned(),
        Some(every) if every.as_secs() == 1 => {
            "Folds all videos by itself, every second.".to_owned()
        }
        Some(every) => format!(
            "Folds all videos by itself, every {}.",
            counted(every.as_secs(), "second")
        ),
    }
}

fn of_passes(folded: &Folded) -> Markup {
    let since_start = &folded.since_start;
    html! {
        tbody { (of_last_pass(folded.last.as_ref())) }
        tbody {
            tr.group { th colspan="2" scope="rowgroup" { "Since the start" } }
            tr { th scope="row" { "Passes" } td { (grouped(since_start.passes)) } }
            tr { th scope="row" { "Failed passes" } td { (grouped(since_start.failed_passes)) } }
            tr { th scope="row" { "Empty shards removed" } td { (grouped(since_start.shards_removed)) } }
        }
    }
}

fn of_last_pass(last: Option<&LastPass>) -> Markup {
    let Some(LastPass { began, outcome }) = last else {
        return html! { tr.group { th colspan="2" scope="rowgroup" id="last-pass" { "No pass yet" } } };
    };
    html! {
        tr.group { th colspan="2" scope="rowgroup" id="last-pass" { "Last pass, at " (began) " UTC" } }
        tr {
            th scope="row" { "Time" }
            td id="pass-time" {
                @match outcome {
                    None => "under way",
                    Some(pass) if pass.failed => span.failed { "failed" },
                    Some(pass) => (milliseconds(pass.took)),
                }
            }
        }
        @if let Some(pass) = outcome {
            tr { th scope="row" { "Videos folded" } td id="pass-folded" { (grouped(pass.videos)) } }
            tr { th scope="row" { "Empty shards removed" } td { (grouped(pass.shards_removed)) } }
            tr { th scope="row" { "Videos left: locked" } td { (grouped(pass.busy)) } }
            tr { th scope="row" { "Videos left: out of range" } td { (grouped(pass.unfit)) } }
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
    let mean = (stats.flushes > 0).then(|| stats.flush_time.div_f64(stats.flushes as f64));
    html! {
        section aria-labelledby="coalescer-title" {
            h2 id="coalescer-title" { "Coalescer" }
            table {
                tr.total { th scope="row" { "Callers in the queue" } td { (stats.queued_callers) } }
                tr { th scope="row" { "Counters in the queue" } td { (stats.queued_counters) } }
                tr { th scope="row" { "Flushes" } td { (grouped(stats.flushes)) } }
                tr { th scope="row" { "Callers flushed" } td { (grouped(stats.flushed_callers)) } }
                tr { th scope="row" { "Mean time of a flush" } td { (mean.map_or_else(|| "none yet".to_owned(), milliseconds)) } }
                tr { th scope="row" { "Conflicts" } td { (grouped(stats.conflicts)) } }
                tr { th scope="row" { "Counters that lost counts" } td { (grouped(stats.losses)) } }
            }
        }
    }
}
