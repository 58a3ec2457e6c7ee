//! Lines and times, as the report writes them.

use std::fmt::{Arguments, Write};
use std::time::Duration;

/// Adds a line to `text`.
pub fn line(text: &mut String, line: Arguments<'_>) {
    writeln!(text, "{line}").expect("a text takes any line");
}

pub fn short(latency: Duration) -> String {
    match latency.as_micros() {
        0..1000 => format!("{:.0} µs", micros(latency)),
        _ => format!("{:.1} ms", micros(latency) / 1000.0),
    }
}

pub fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1000.0
}
