//! Every interleaving that interrupts threads at most twice, apart from where they wait: more would take hours.

use diesel_sharded_interleavings::combining::Caller::{
    Beside, Counts, CountsAll, CountsAlone, CountsOther, Fails, GivesUp, GivesUpWoken, Impatient,
    ImpatientWoken, OutOfTime,
};
use diesel_sharded_interleavings::combining::each_amount_is_counted_once;
use diesel_sharded_interleavings::reserving;

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
    two_lead_beside_each_other: || each_amount_is_counted_once(&[Beside, Counts, Beside]);
    two_counters_take_turns: || each_amount_is_counted_once(&[Counts, CountsOther, Counts]);
    two_counters_are_counted_together: || each_amount_is_counted_once(&[CountsAll, CountsOther, Counts]);
    two_counters_are_given_back: || each_amount_is_counted_once(&[CountsAlone, CountsOther, CountsAlone]);
    four_callers_combine: || each_amount_is_counted_once(&[Counts, Counts, Counts, Counts]);
    a_batch_is_counted_by_each_alone: || each_amount_is_counted_once(&[Fails, Counts, Fails]);
    a_lead_is_dropped_before_it_sends:
        || each_amount_is_counted_once(&[CountsAlone, Counts, CountsAlone]);
    a_caller_gives_up: || each_amount_is_counted_once(&[Counts, GivesUp, Counts]);
    a_caller_gives_up_what_is_offered:
        || each_amount_is_counted_once(&[CountsAlone, GivesUp, Counts]);
    a_caller_gives_up_what_others_are_offered:
        || each_amount_is_counted_once(&[CountsAlone, GivesUpWoken, Counts, Counts]);
    a_caller_leads_beside_who_sleeps:
        || each_amount_is_counted_once(&[Counts, Impatient, Counts, Impatient]);
    a_caller_leads_beside_who_gives_back:
        || each_amount_is_counted_once(&[CountsAlone, Impatient, Counts]);
    a_caller_leads_in_place_of_who_gives_up:
        || each_amount_is_counted_once(&[CountsAlone, GivesUpWoken, Impatient, Counts]);
    a_task_leads_beside_who_gives_back:
        || each_amount_is_counted_once(&[CountsAlone, ImpatientWoken, CountsAlone, Impatient]);
    a_caller_out_of_time_leads_nobody:
        || each_amount_is_counted_once(&[CountsAlone, OutOfTime, Impatient, Counts]);
    two_take_over_beside_two_leaders:
        || each_amount_is_counted_once(&[Beside, Beside, Impatient, ImpatientWoken]);
    who_takes_over_gives_back: || each_amount_is_counted_once(&[Counts, CountsAlone, Impatient, GivesUpWoken]);
    leaders_of_all_counters_sleep:
        || each_amount_is_counted_once(&[CountsAll, CountsOther, Impatient]);

    as_many_shards_as_threads: reserving::as_many_shards_as_threads;
    fewer_shards_than_threads: reserving::fewer_shards_than_threads;
    threads_that_give_their_shards_up: reserving::threads_that_give_their_shards_up;
    threads_that_keep_their_shards: reserving::threads_that_keep_their_shards;
}
