//! The part of `/admin` that is live.

use diesel_sharded::coalescer::Stats;
use diesel_sharded::shard_counts::ShardCount;
use maud::{Markup, html};

use super::drawing::{bar, column};
use super::number::{counted, grouped, short};
use crate::conflicts::{self, Conflicts};
use crate::error::PageError;
use crate::load::{Mode, Progress};
use crate::models::Shards;
use crate::schema::videos::dsl::views;
use crate::site::Shared;

/// As HTML without line breaks, since an event cannot carry them.
pub async fn read(shared: &Shared, video: i64) -> Result<String, PageError> {
    let read = move |conn: &mut _| {
        let number = ShardCount::of(views).get(conn)?;
        Ok((Shards::of(video, conn)?, number))
    };
    let (shards, number) = shared.database.run(read).await?;
    let panel = html! {
        (load(&shared.load.progress()))
        (of_video(&shards, number))
        div.pair {
            (of_conflicts(Conflicts::so_far()))
            (of_coalescer(&shared.coalescer.stats()))
        }
    };
    Ok(panel.into_string())
}

fn load(progress: &Progress) -> Markup {
    let speed = |mode: Mode| {
        progress.outcomes[mode as usize]
            .as_ref()
            .map(|outcome| outcome.per_second())
    };
    let greatest = Mode::ALL.into_iter().filter_map(speed).fold(0.0, f64::max);
    html! {
        section aria-labelledby="speed-title" {
            h2 id="speed-title" { "Views a second under the load" }
            @if let Some(error) = &progress.failed {
                p.failed { "The load did not run: " (error) }
            }
            ul.speeds {
                @for mode in Mode::ALL {
                    @let outcome = progress.outcomes[mode as usize].as_ref();
                    li {
                        div.what {
                            strong { (mode.title()) }
                            code { (mode.code()) }
                        }
                        (bar(outcome.map_or(0.0, |outcome| outcome.per_second()), greatest))
                        p.number id={ "speed-" (mode.name()) } {
                            @match outcome {
                                Some(outcome) => (grouped(outcome.per_second() as i64)),
                                None => "not run yet",
                            }
                        }
                        @if let Some((running, counted, left)) = progress.running && running == mode {
                            p.note { "At work: " (grouped(counted)) " counted, " (left) " s left" }
                        } @else if let Some(outcome) = outcome {
                            p.note {
                                (counted(outcome.writers.into(), "writer")) " counted " (grouped(outcome.counted)) " in "
                                (format!("{:.1}", outcome.took.as_secs_f64())) " s, and the total rose by " (grouped(outcome.rose_by))
                                @if let Some(error) = &outcome.failed {
                                    span.failed { "; a writer ended at an error: " (error) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn of_video(Shards { base, shards }: &Shards, number: u16) -> Markup {
    let on_shards: i64 = shards.iter().map(|(_, value)| value).sum();
    let greatest = shards.iter().map(|(_, value)| *value).max().unwrap_or(0);
    html! {
        section aria-labelledby="shards-title" {
            h2 id="shards-title" { "Shards of this video’s views" }
            dl.sum {
                div { dt { "Plain column" } dd id="base" { (grouped(*base)) } }
                div { dt { "+ " (counted(shards.len() as u64, "shard")) } dd id="on-shards" { (grouped(on_shards)) } }
                div { dt { "= Total" } dd id="total" { (grouped(base + on_shards)) } }
            }
            @if shards.is_empty() {
                p.empty { "There are none: it was folded, or nobody has watched it yet." }
            } @else {
                ol.shards {
                    @for (shard, value) in shards {
                        li title={ "shard " (shard) ": " (grouped(*value)) } {
                            span.value { (short(*value)) }
                            (column(*value, greatest))
                            span.shard { span.hidden { "in shard " } (shard) }
                        }
                    }
                }
            }
            p.note {
                "Writers choose from " strong id="number" { (number) } ", and use as many as they need. The coalescer keeps to one, \
                 which then towers over the others: fold, and run the sharded load alone, to see it spread."
            }
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
