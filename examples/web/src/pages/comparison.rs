//! The load: one picture of all three modes.

use std::time::Duration;

use maud::{Markup, html};

use super::drawing::{bar, range};
use super::number::{grouped, milliseconds};
use crate::load::{MODES, Mode, Outcome, Progress};

pub fn picture(progress: &Progress) -> Markup {
    let outcomes = progress.outcomes.values();
    let fastest = outcomes.clone().map(|of| of.per_second).fold(0.0, f64::max);
    let longest = outcomes.map(|of| of.waits[1]).max().unwrap_or_default();
    html! {
        ul.speeds {
            li.scale aria-hidden="true" {
                span {}
                p { "Views a second" }
                p { "Time of a count: p50, p99" }
            }
            @for mode in &MODES {
                li { (of_mode(mode, progress.outcomes.get(mode.name), fastest, longest)) }
            }
        }
    }
}

fn of_mode(mode: &Mode, outcome: Option<&Outcome>, fastest: f64, longest: Duration) -> Markup {
    let per_second = outcome.map_or(0.0, |outcome| outcome.per_second);
    let waits = outcome.map(|outcome| outcome.waits).unwrap_or_default();
    let [p50, p99] = waits.map(|wait| wait.as_secs_f64());
    html! {
        div.what {
            strong { (mode.title) }
            code { (mode.code) }
        }
        div {
            (bar(per_second, fastest))
            p.number {
                @if outcome.is_some() {
                    span id={ "speed-" (mode.name) } { (grouped(per_second as i64)) } span.unit { " a second" }
                } @else {
                    span.unit { "not run yet" }
                }
            }
        }
        div {
            (range(p50, p99, longest.as_secs_f64()))
            p.number {
                @if outcome.is_some() {
                    span.unit { "p50 " } span id={ "p50-" (mode.name) } { (milliseconds(waits[0])) }
                    span.unit { " · p99 " } span id={ "p99-" (mode.name) } { (milliseconds(waits[1])) }
                }
            }
        }
        @if let Some(outcome) = outcome {
            p.note {
                "Counted " (grouped(outcome.counted)) ", and the total rose by " (grouped(outcome.rose_by))
                @if let Some(error) = &outcome.failed {
                    span.failed { "; a writer ended at an error: " (error) }
                }
            }
        }
    }
}
