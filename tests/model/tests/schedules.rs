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

#[test]
fn callers_who_wait_in_every_way() {
    random(hand_off::callers_who_wait_in_every_way);
}

#[test]
fn callers_who_find_no_room() {
    random(hand_off::callers_who_find_no_room);
}

#[test]
fn callers_beside_a_close() {
    random(hand_off::callers_beside_a_close);
}

#[test]
fn callers_who_are_refused() {
    random(hand_off::callers_who_are_refused);
}

#[test]
fn bells_that_ring_at_once() {
    random(hand_off::bells_that_ring_at_once);
}

#[test]
fn a_worker_that_lets_go() {
    random(hand_off::a_worker_that_lets_go);
}

#[test]
fn as_many_ranks_as_threads() {
    random(ranks::as_many_ranks_as_threads);
}

#[test]
fn fewer_ranks_than_threads() {
    random(ranks::fewer_ranks_than_threads);
}

#[test]
fn threads_that_keep_their_ranks() {
    random(ranks::threads_that_keep_their_ranks);
}
