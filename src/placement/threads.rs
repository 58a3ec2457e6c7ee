//! Threads by number, and the place among the shards that each keeps to.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    static NUMBER: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
    static PLACE: Cell<u64> = Cell::new(number());
}

/// This thread's number, which no other thread ever has.
pub(super) fn number() -> u64 {
    NUMBER.with(|number| *number)
}

/// The place that this thread keeps to, after `LongAdder`'s probe.
pub(super) fn place_of_this_thread(offset: u32, shards: u16) -> u16 {
    let place = u64::from(offset).wrapping_add(PLACE.get());
    (place % u64::from(shards.max(1))) as u16
}

/// Moves this thread to another place, if there is one.
pub(super) fn move_on(shards: u16, random: u64) {
    if let Some(others @ 1..) = u64::from(shards).checked_sub(1) {
        let steps = 1 + random % others;
        PLACE.set(PLACE.get().wrapping_add(steps));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_keeps_its_place_until_it_moves_on() {
        let here = || place_of_this_thread(3, 8);
        let first = here();
        assert_eq!(here(), first);
        for random in [0, 6, 7, u64::MAX] {
            let before = here();
            move_on(8, random);
            assert_ne!(here(), before);
            assert_eq!(here(), here());
        }
        move_on(1, 0);
        assert_eq!(place_of_this_thread(3, 1), 0);
    }

    #[test]
    fn threads_in_a_row_have_places_in_a_row() {
        let (one, two) = std::thread::spawn(|| {
            let other = std::thread::spawn(|| (number(), place_of_this_thread(0, u16::MAX)));
            (
                (number(), place_of_this_thread(0, u16::MAX)),
                other.join().unwrap(),
            )
        })
        .join()
        .unwrap();
        assert_ne!(one.0, two.0);
        assert_ne!(one.1, two.1);
    }
}
