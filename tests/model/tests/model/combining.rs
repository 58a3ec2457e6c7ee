//! The slots where callers combine: the interleavings of a few threads, by a model checker.

use diesel_sharded_model::slots::Caller::{
    self, Awaits, Counts, CountsAlone, CountsOther, Fails, GivesUp, Impatient,
};
use diesel_sharded_model::slots::each_amount_is_counted_once;

use super::interleavings::model;

fn callers(callers: &'static [Caller]) {
    model(move || each_amount_is_counted_once(callers));
}

#[test]
fn three_callers_combine() {
    callers(&[Counts, Counts, Counts]);
}

#[test]
fn two_counters_take_turns() {
    callers(&[Counts, CountsOther, Counts]);
}

#[test]
fn tasks_combine_with_a_thread() {
    callers(&[Awaits, Counts, Awaits]);
}

#[test]
fn a_batch_is_counted_by_each_alone() {
    callers(&[Fails, Awaits, Fails]);
}

#[test]
fn a_lead_is_dropped_before_it_sends() {
    callers(&[CountsAlone, Counts, CountsAlone]);
}

#[test]
fn a_caller_gives_up() {
    callers(&[Counts, GivesUp, Counts]);
}

#[test]
fn a_caller_gives_up_what_is_offered() {
    callers(&[CountsAlone, GivesUp, Counts]);
}

#[test]
fn a_caller_leaves_at_its_deadline() {
    callers(&[CountsAlone, Impatient, Counts]);
}
