//! Every interleaving that interrupts threads at most twice, apart from where they wait: more would take hours.

use diesel_sharded_interleavings::combining::Caller::{
    Awaits, Counts, CountsAlone, CountsOther, Fails, GivesUp, Impatient,
};
use diesel_sharded_interleavings::combining::each_amount_is_counted_once;
use diesel_sharded_interleavings::{handing_over, ranks};

macro_rules! interleavings {
    ($($name:ident: $threads:expr;)+) => {$(
        #[test]
        fn $name() {
            let mut checker = loom::model::Builder::new();
            checker.preemption_bound = Some(2);
            checker.check($threads);
        }
    )+};
}

interleavings! {
    three_callers_combine: || each_amount_is_counted_once(&[Counts, Counts, Counts]);
    two_counters_take_turns: || each_amount_is_counted_once(&[Counts, CountsOther, Counts]);
    tasks_combine_with_a_thread: || each_amount_is_counted_once(&[Awaits, Counts, Awaits]);
    a_batch_is_counted_by_each_alone: || each_amount_is_counted_once(&[Fails, Awaits, Fails]);
    a_lead_is_dropped_before_it_sends:
        || each_amount_is_counted_once(&[CountsAlone, Counts, CountsAlone]);
    a_caller_gives_up: || each_amount_is_counted_once(&[Counts, GivesUp, Counts]);
    a_caller_gives_up_what_is_offered:
        || each_amount_is_counted_once(&[CountsAlone, GivesUp, Counts]);
    a_caller_leaves_at_its_deadline:
        || each_amount_is_counted_once(&[CountsAlone, Impatient, Counts]);

    a_task_that_waits_is_woken: || handing_over::tasks_that_wait_are_woken(1);
    two_tasks_at_one_ticket_are_woken: || handing_over::tasks_that_wait_are_woken(2);
    a_task_is_not_left_waiting: handing_over::a_task_is_not_left_waiting;
    every_caller_is_counted_once_and_told: || handing_over::every_caller_is_told(2);
    who_finds_no_room_comes_with_the_next: || handing_over::every_caller_is_told(1);
    who_withdraws_is_not_counted: handing_over::who_withdraws_is_not_counted;
    what_was_let_in_before_the_close_is_taken:
        handing_over::what_was_let_in_before_the_close_is_taken;
    who_waits_for_room_is_refused_by_a_close:
        handing_over::who_waits_for_room_is_refused_by_a_close;
    a_flight_that_is_let_go_leaves_nobody_waiting:
        handing_over::a_flight_that_is_let_go_leaves_nobody_waiting;
    no_bell_is_lost: handing_over::no_bell_is_lost;

    as_many_ranks_as_threads: ranks::as_many_ranks_as_threads;
    fewer_ranks_than_threads: ranks::fewer_ranks_than_threads;
    threads_that_keep_their_ranks: ranks::threads_that_keep_their_ranks;
}
