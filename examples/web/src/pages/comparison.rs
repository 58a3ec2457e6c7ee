//! The load: one picture of all three modes.

use std::time::Duration;

use maud::{Markup, html};

use super::drawing::{bar, range};
use super::number::{counted, grouped, milliseconds};
use crate::load::{MODES, Mode, Outcome, Plan, Progress, Run, Stage};

/// One sentence, the same for as long as a mode runs.
pub fn status(stage: &Stage) -> Markup {
    html! {
        @match stage {
            Stage::NotRunYet => "Not run yet.",
            Stage::Connecting(plan) => { "Starting: " (counted(plan.writers.into(), "writer")) " connect." },
            Stage::Running(plan, run) => {
                "At work: " (run.mode.title) ", "
                (plan.modes.iter().take_while(|mode| mode.name != run.mode.name).count() + 1) " of " (plan.modes.len()) "."
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
    mode: &'static Mode,
    running: Option<&'a Run>,
    outcome: Option<&'a Outcome>,
}

impl Row<'_> {
    fn per_second(&self) -> Option<f64> {
        let running = self.running.map(Run::per_second);
        running.or(self.outcome.map(Outcome::per_second))
    }
}

pub fn picture(progress: &Progress) -> Markup {
    let rows = MODES.each_ref().map(|mode| Row {
        mode,
        running: progress.running().filter(|run| run.mode.name == mode.name),
        outcome: progress.outcomes.get(mode.name),
    });
    let fastest = rows.iter().filter_map(Row::per_second).fold(0.0, f64::max);
    let waits = rows.iter().filter_map(|row| row.outcome?.waits);
    let longest = waits.map(|[_, p99]| p99).max();
    html! {
        ul.speeds {
            li.scale aria-hidden="true" {
                span {}
                p { "Views a second" }
                p { "Time of a count: p50, p99" }
            }
            @for row in &rows { li { (of_mode(row, fastest, longest.unwrap_or_default())) } }
            li.scale aria-hidden="true" {
                span {}
                p { span { "0" } span { @if fastest > 0.0 { (grouped(fastest as i64)) } } }
                p { span { "0" } span { @if let Some(longest) = longest { (milliseconds(longest)) } } }
            }
        }
    }
}

fn of_mode(row: &Row<'_>, fastest: f64, longest: Duration) -> Markup {
    let waits = row.outcome.and_then(|outcome| outcome.waits);
    html! {
        div.what {
            strong { (row.mode.title) }
            code { (row.mode.code) }
        }
        div {
            (bar(row.per_second().unwrap_or(0.0), fastest))
            p.number {
                span id={ "speed-" (row.mode.name) } {
                    @match row.per_second() {
                        Some(speed) => (grouped(speed as i64)),
                        None => span.unit { "not run yet" },
                    }
                }
                @if row.per_second().is_some() { span.unit { " a second" } }
            }
        }
        div {
            @let [p50, p99] = waits.unwrap_or_default().map(|wait| wait.as_secs_f64());
            (range(p50, p99, longest.as_secs_f64()))
            p.number {
                @if let Some([p50, p99]) = waits {
                    span.unit { "p50 " } span id={ "p50-" (row.mode.name) } { (milliseconds(p50)) }
                    span.unit { " · p99 " } span id={ "p99-" (row.mode.name) } { (milliseconds(p99)) }
                }
            }
        }
        @if let Some(run) = row.running {
            p.note { "At work: " (grouped(run.counted())) " counted, " (run.left().as_secs_f64().ceil()) " s left" }
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
