//! The load: one picture of all three modes.

use std::time::Duration;

use maud::{Markup, html};

use super::drawing::{bar, range};
use super::number::{counted, grouped, milliseconds};
use crate::load::{Mode, Outcome, Plan, Progress, Running, Stage, per_second};

/// One sentence, the same for as long as a mode runs.
pub fn status(progress: &Progress) -> Markup {
    html! {
        @match &progress.stage {
            Stage::NotRunYet => "Not run yet.",
            Stage::Connecting(plan) => { "Starting: " (counted(plan.writers.into(), "writer")) " connect." },
            Stage::Running(plan, mode) => {
                "At work: " (mode.title()) ", "
                (plan.modes.iter().position(|of| of == mode).map_or(1, |place| place + 1)) " of " (plan.modes.len()) "."
            },
            Stage::Finished(plan) => { "Finished: " (described(plan)) "." },
            Stage::Failed(error) => { "The load did not run: " (error) },
        }
    }
}

/// `32 writers for 3 seconds in each mode`.
fn described(plan: &Plan) -> String {
    let writers = counted(plan.writers.into(), "writer");
    let time = counted(plan.time.as_secs(), "second");
    let each = if plan.modes.len() > 1 {
        " in each mode"
    } else {
        ""
    };
    format!("{writers} for {time}{each}")
}

struct Row<'a> {
    mode: Mode,
    running: Option<&'a Running>,
    outcome: Option<&'a Outcome>,
}

impl Row<'_> {
    fn per_second(&self) -> Option<f64> {
        let running = self
            .running
            .map(|running| per_second(running.counted, running.since));
        running.or_else(|| {
            self.outcome
                .map(|outcome| per_second(outcome.counted, outcome.took))
        })
    }

    fn p99(&self) -> Option<Duration> {
        Some(self.outcome?.waits?.p99)
    }
}

pub fn picture(progress: &Progress) -> Markup {
    let rows = Mode::ALL.map(|mode| Row {
        mode,
        running: progress
            .running
            .as_ref()
            .filter(|running| running.mode == mode),
        outcome: progress.outcomes[mode as usize].as_ref(),
    });
    let fastest = rows.iter().filter_map(Row::per_second).fold(0.0, f64::max);
    let longest = rows.iter().filter_map(Row::p99).max();
    html! {
        ul.speeds {
            li.scale aria-hidden="true" {
                span {}
                p { "Views a second" }
                p { "Time of a count: p50, p99" }
            }
            @for row in &rows { li { (of_mode(row, fastest, longest)) } }
            li.scale aria-hidden="true" {
                span {}
                p { span { "0" } span { @if fastest > 0.0 { (grouped(fastest as i64)) } } }
                p { span { "0" } span { @if let Some(longest) = longest { (milliseconds(longest)) } } }
            }
        }
    }
}

fn of_mode(row: &Row<'_>, fastest: f64, longest: Option<Duration>) -> Markup {
    let waits = row.outcome.and_then(|outcome| outcome.waits);
    html! {
        div.what {
            strong { (row.mode.title()) }
            code { (row.mode.code()) }
        }
        div {
            (bar(row.per_second().unwrap_or(0.0), fastest))
            p.number {
                span id={ "speed-" (row.mode.name()) } {
                    @match row.per_second() {
                        Some(speed) => (grouped(speed as i64)),
                        None => span.unit { "not run yet" },
                    }
                }
                @if row.per_second().is_some() { span.unit { " a second" } }
            }
        }
        div {
            @let [p50, p99] = waits.map_or([0.0; 2], |waits| [waits.p50, waits.p99].map(|wait| wait.as_secs_f64()));
            (range(p50, p99, longest.map_or(0.0, |longest| longest.as_secs_f64())))
            p.number {
                @if let Some(waits) = waits {
                    span.unit { "p50 " } span id={ "p50-" (row.mode.name()) } { (milliseconds(waits.p50)) }
                    span.unit { " · p99 " } span id={ "p99-" (row.mode.name()) } { (milliseconds(waits.p99)) }
                }
            }
        }
        @if let Some(running) = row.running {
            p.note { "At work: " (grouped(running.counted)) " counted, " (running.left.as_secs_f64().ceil()) " s left" }
        } @else if let Some(outcome) = row.outcome {
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
