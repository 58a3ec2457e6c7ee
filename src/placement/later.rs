//! Times that an application's clock may be too short for.

use std::time::{Duration, Instant};

/// A time so much later; the time itself where the clock goes no further.
pub(super) fn later(time: Instant, span: Duration) -> Instant {
    time.checked_add(span).unwrap_or(time)
}
