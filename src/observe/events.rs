//! Batches, caches and warnings.

use std::fmt::Display;
use std::time::{Duration, Instant};

use super::names::MORE_SHARDS;
use super::operation::outcome_of;
use super::sinks::{self, Scope};
use crate::backend::Dialect;

/// A batch of a fold: so many parents are looked at.
pub(crate) fn fold(dialect: Dialect, table: &str, parents: usize) -> Scope {
    let backend = dialect.name();
    Scope(span!(
        FOLD,
        backend = backend,
        table = table,
        parents = parents
    ))
}

/// A fold has moved something to so many parents from so many shards, and removed so many shards.
pub(crate) fn folded(dialect: Dialect, table: &str, parents: usize, shards: usize, removed: usize) {
    let backend = dialect.name();
    count!(
        FOLDED_PARENTS += parents, FOLDED_SHARDS += shards, SHARDS_REMOVED += removed;
        { backend = backend, table = table.to_owned() }
    );
    event!(
        FOLDED,
        parents = parents,
        shards = shards,
        removed = removed
    );
}

/// A pass of a folder took so long, and succeeded or failed.
pub(crate) fn folder_passed(table: &'static str, time: Duration, succeeded: bool) {
    count!(PASSES += 1, table = table, outcome = outcome_of(succeeded));
    measure!(PASS_TIME, time.as_secs_f64(), table = table);
    if !succeeded {
        event!(FOLDER_FAILED, table = table);
    }
}

/// A flush of a coalescer: so many counters.
pub(crate) fn flush(counters: usize) -> Scope {
    measure!(FLUSH_COUNTERS, counters as f64);
    Scope(span!(FLUSH, counters = counters))
}

/// The flush took so long.
pub(crate) fn flushed(time: Duration) {
    measure!(FLUSH_TIME, time.as_secs_f64());
}

/// A batch of so many callers is sent by one of them.
#[inline]
pub(crate) fn combined(dialect: Dialect, table: &'static str, callers: usize) {
    let backend = dialect.name();
    count!(COMBINED += callers, backend = backend, table = table);
    measure!(COMBINED_CALLERS, callers as f64);
}

/// A caller has waited for another since it `began`.
#[inline]
pub(crate) fn combined_wait(began: Instant) {
    measure!(COMBINED_WAIT, began.elapsed().as_secs_f64());
}

/// A count was not combined, though there is a combiner.
#[inline]
pub(crate) fn not_combined(dialect: Dialect, table: &'static str) {
    count!(NOT_COMBINED += 1, backend = dialect.name(), table = table);
}

/// A coalescer lost what was added to a counter.
pub(crate) fn lost() {
    count!(LOSSES += 1);
    event!(LOST);
}

/// The source of a total that was read through a cache.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CacheRead {
    /// The cache.
    Hit,
    /// The database.
    Miss,
    /// The database, inside a transaction.
    Bypassed,
}

/// A total was asked for.
#[inline]
pub(crate) fn cache_read(read: CacheRead) {
    match read {
        CacheRead::Hit => count!(CACHE_READS += 1, result = "hit"),
        CacheRead::Miss => count!(CACHE_READS += 1, result = "miss"),
        CacheRead::Bypassed => count!(CACHE_READS += 1, result = "bypassed"),
    }
}

/// A cache could not be used.
pub(crate) fn cache_unavailable(error: &dyn Display) {
    count!(CACHE_FAILURES += 1, failure = "unavailable");
    event!(CACHE_LEFT_OUT);
    event!(CACHE_FAILED, error = sinks::display(error));
}

/// A cache held a value that is no total.
pub(crate) fn not_a_total(error: &dyn Display) {
    count!(CACHE_FAILURES += 1, failure = "not_a_total");
    event!(CACHE_FAILED, error = sinks::display(error));
}

/// All shards of a key were being counted on at once.
pub(crate) fn crowded(table: &'static str) {
    count!(CROWDED += 1, table = table);
}

/// Warns an operator; not often. Where no subscriber listens, by `log`.
pub(crate) fn more_shards_would_help(table: &'static str, shards: u16) {
    if is_enabled!(MORE_SHARDS_WOULD_HELP) {
        event!(MORE_SHARDS_WOULD_HELP, table = table, shards = shards);
    } else {
        log::warn!(target: "diesel_sharded", "{MORE_SHARDS} (`{table}`, {shards} shards)");
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
