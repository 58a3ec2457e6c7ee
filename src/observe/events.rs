//! Batches, caches and warnings.

use std::fmt::Display;
use std::time::{Duration, Instant};

use super::cache_read::CacheRead;
use super::metrics;
use super::spans::{self, Scope};
use crate::backend::Dialect;
use crate::conflict::Conflict;

/// A batch of a fold: so many parents are looked at.
#[inline]
pub(crate) fn fold(dialect: Dialect, table: &str, parents: usize) -> Scope {
    spans::fold(dialect, table, parents)
}

/// A fold has moved something to so many parents from so many shards, and removed so many shards.
#[inline]
pub(crate) fn folded(dialect: Dialect, table: &str, parents: usize, shards: usize, removed: usize) {
    metrics::folded(dialect, table, parents, shards, removed);
    spans::folded(parents, shards, removed);
}

/// A pass of a folder took so long, and succeeded or failed.
#[inline]
pub(crate) fn folder_passed(table: &'static str, time: Duration, succeeded: bool) {
    metrics::folder_passed(table, time, succeeded);
    if !succeeded {
        spans::folder_failed(table);
    }
}

/// A flush of a coalescer: so many counters, for so many callers who wait.
#[inline]
pub(crate) fn flush(counters: usize, callers: usize) -> Scope {
    metrics::flush(counters, callers);
    spans::flush(counters, callers)
}

/// The flush took so long.
#[inline]
pub(crate) fn flushed(time: Duration) {
    metrics::flushed(time);
}

/// A caller has waited for a coalescer since it `began`.
#[inline]
pub(crate) fn waited(began: Instant) {
    metrics::waited(began);
}

/// A coalescer's transaction met a conflict.
#[inline]
pub(crate) fn flush_conflict(dialect: Dialect, conflict: Conflict) {
    metrics::flush_conflict(dialect, conflict);
    spans::flush_conflict(dialect, conflict);
}

/// A coalescer lost something that nobody waited for.
#[inline]
pub(crate) fn lost() {
    metrics::lost();
    spans::lost();
}

/// A total was asked for.
#[inline]
pub(crate) fn cache_read(read: CacheRead) {
    metrics::cache_read(read);
}

/// A cache could not be used.
#[inline]
pub(crate) fn cache_unavailable(error: &dyn Display) {
    metrics::cache_unavailable();
    spans::cache_left_out();
    spans::cache_failed(error);
}

/// A cache held a value that is no total.
#[inline]
pub(crate) fn not_a_total(error: &dyn Display) {
    metrics::not_a_total();
    spans::cache_failed(error);
}

/// All shards of a key were being counted on at once.
#[inline]
pub(crate) fn crowded(table: &'static str) {
    metrics::crowded(table);
}

/// Warns an operator; not often.
pub(crate) fn more_shards_would_help(table: &'static str, shards: u16) {
    const TEXT: &str = "more shards would help: all of one key were being counted on at once";
    if !spans::warned(TEXT, table, shards) {
        log::warn!(target: "diesel_sharded", "{TEXT} (`{table}`, {shards} shards)");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    struct Lines(Mutex<Vec<String>>);

    impl log::Log for Lines {
        fn enabled(&self, _: &log::Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &log::Record<'_>) {
            let line = format!("{} {} {}", record.level(), record.target(), record.args());
            self.0.lock().unwrap().push(line);
        }

        fn flush(&self) {}
    }

    static LINES: Lines = Lines(Mutex::new(vec![]));

    #[test]
    fn a_warning_that_no_subscriber_listens_to_goes_to_log() {
        log::set_logger(&LINES).unwrap();
        log::set_max_level(log::LevelFilter::Warn);
        more_shards_would_help("seats_shards", 4);
        let lines = LINES.0.lock().unwrap();
        let line = lines.iter().find(|line| line.contains("`seats_shards`"));
        assert_eq!(
            line.map(String::as_str),
            Some(
                "WARN diesel_sharded more shards would help: all of one key were being counted on at once \
                 (`seats_shards`, 4 shards)"
            )
        );
    }
}
