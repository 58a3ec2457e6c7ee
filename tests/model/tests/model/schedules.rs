//! The library's threads, by thousands of random schedules.

use diesel_sharded_model::schedules::{hand_off, ranks};

/// Schedules of each kind.
const SCHEDULES: usize = 500;

/// Schedules at random, and with priorities that change a few times: these find each fault of so many ordered steps with a
/// probability that is known (PCT).
fn random(run: fn()) {
    shuttle::check_random(run, SCHEDULES);
    for changes in [2, 3, 5] {
        shuttle::check_pct(run, SCHEDULES, changes);
    }
}

macro_rules! random {
    ($($module:ident::$run:ident;)+) => {$(
        #[test]
        fn $run() {
            random($module::$run);
        }
    )+};
}

random! {
    hand_off::callers_who_wait_in_every_way;
    hand_off::callers_who_find_no_room;
    hand_off::callers_beside_a_close;
    hand_off::callers_who_are_refused;
    hand_off::bells_that_ring_at_once;
    hand_off::a_worker_that_lets_go;
    ranks::as_many_ranks_as_threads;
    ranks::fewer_ranks_than_threads;
    ranks::threads_that_keep_their_ranks;
}
