//! The line on a terminal that shows how far a command is.

use std::fmt::Write;

use diesel::prelude::*;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::args::Form;

/// A bar on a terminal, whose rows are counted for it; nothing where the standard error goes to a file, or was not asked for.
pub fn bar(
    form: Form,
    what: &str,
    count: impl FnOnce() -> QueryResult<u64>,
) -> QueryResult<ProgressBar> {
    let target = ProgressDrawTarget::stderr();
    if form.quiet || target.is_hidden() {
        return Ok(ProgressBar::hidden());
    }
    let bar = ProgressBar::with_draw_target(Some(count()?), target).with_message(what.to_owned());
    let template = "{msg} {pos}/{len} rows, {rate} rows/s, {eta} left [{wide_bar}]";
    let bar = match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style.progress_chars("=> ").with_key("rate", rate)),
        Err(_) => bar, // it is a constant
    };
    bar.tick(); // shows it before the first batch is done
    Ok(bar)
}

fn rate(state: &ProgressState, to: &mut dyn Write) {
    let _ = write!(to, "{:.0}", state.per_sec()); // a line on a terminal cannot report that it fails
}
