//! The clock of the process, which jumps.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

/// The seconds by which the clock is off.
static OFF: AtomicI64 = AtomicI64::new(0);
/// Far from the earliest instant, so that the clock can go back.
static BEGAN: LazyLock<Instant> = LazyLock::new(|| Instant::now() + years(1000));

fn years(number: u64) -> Duration {
    Duration::from_secs(number * 365 * 24 * 3600)
}

/// The time by this clock.
pub(super) fn clock() -> Instant {
    let since = Instant::now() + years(1000) - *BEGAN;
    let off = OFF.load(Ordering::Relaxed);
    let by = Duration::from_secs(off.unsigned_abs());
    let now = *BEGAN + since;
    if off < 0 { now - by } else { now + by }
}

/// Moves the clock to another time, nearby or far away.
pub(super) fn jump() {
    let longest = [0, 1, 3_600, 86_400, 86_400 * 365 * 500][rand::random_range(0..5)];
    OFF.store(rand::random_range(-longest..=longest), Ordering::Relaxed);
}

/// Ends all jumps.
pub(super) fn set_right() {
    OFF.store(0, Ordering::Relaxed);
}
