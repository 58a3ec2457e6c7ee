//! Counting for others, on one's own connection.

use std::time::Instant;

use diesel::result::{Error as DieselError, QueryResult};

use super::slots::{Entered, Lead, Outcome, Slots, Turn};
use super::{Combinable, CounterKey};
use crate::connection::{Io, Link, commits_by_itself};
use crate::engine::{self, Plan, SendStep, Steps};
use crate::error::Error;
use crate::observe;
use crate::policy::RetryPolicy;

/// Sends an update's statements with its own amounts, or with the sums of a batch in their place.
pub(crate) trait Combined<M: Io<Conn>, Conn>: SendStep<M, Conn> {
    /// Takes these sums, one for each field, in the place of the update's own amounts; or these again.
    fn add(&mut self, sums: Option<Vec<i64>>);
}

/// What is left to do for a caller.
pub(crate) enum Role {
    /// Nothing: another has counted for it.
    Counted(QueryResult<usize>),
    /// To count, and then for those who come meanwhile.
    Leads(Lead<CounterKey>),
    /// To count for those who wait, itself among them.
    LeadsOn(Lead<CounterKey>),
    /// To count alone, and in one attempt only if it has waited for long.
    Alone { one_attempt: bool },
}

impl Role {
    /// The role of a count, after a wait for others if there are some. It needs no connection.
    pub(crate) async fn of<M, Conn>(combinable: Option<Combinable>, retry: &RetryPolicy) -> Self
    where
        M: Io<Conn>,
    {
        let alone = |one_attempt| Role::Alone { one_attempt };
        let Some(count) = combinable else {
            return alone(false);
        };
        let slots = count.combiner.slots.own();
        let wait = match Slots::enter(slots, count.slot, count.key, &count.amounts) {
            Entered::Leads(lead) => return Role::Leads(lead),
            Entered::Waits(wait) => wait,
        };
        let began = Instant::now();
        let turn = M::wait(wait, retry.deadline()).await;
        observe::combined_wait(began);
        match turn {
            Turn::Ended(outcome) => Role::after(outcome),
            Turn::Leads(lead) => Role::LeadsOn(lead),
            Turn::Left => alone(true),
        }
    }

    fn after(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Counted(rows) => Role::Counted(Ok(rows)),
            Outcome::Nothing => Role::Alone { one_attempt: false },
            Outcome::Unknown(reason) => Role::Counted(Err(Error::outcome_unknown(&reason).into())),
        }
    }

    /// Does what is left to do. Returns the number of rows counted.
    pub(crate) async fn carry_out<M, Conn, S>(
        self,
        link: &mut Link<'_, M, Conn>,
        plan: Plan,
        mut retry: RetryPolicy,
        sender: &mut S,
    ) -> QueryResult<usize>
    where
        M: Io<Conn>,
        S: Combined<M, Conn> + ?Sized,
    {
        let role = match self {
            Role::LeadsOn(lead) => match count_for_others(link, plan, &retry, sender, lead).await {
                Some(outcome) => Role::after(outcome),
                None => Role::Alone { one_attempt: false },
            },
            role => role,
        };
        let lead = match role {
            Role::Counted(counted) => return counted,
            Role::Leads(lead) | Role::LeadsOn(lead) => Some(lead),
            Role::Alone { one_attempt: true } => {
                retry = retry.with_attempts(1);
                None
            }
            Role::Alone { one_attempt: false } => None,
        };
        let counted = engine::count(link, plan, retry.clone(), &mut Steps(sender)).await;
        if let (Some(lead), Ok(_)) = (lead, &counted) {
            count_for_others(link, plan, &retry, sender, lead).await;
        }
        counted
    }
}

/// Counts the batches of a slot until nobody waits or others lead on. Returns the outcome of the first one, which holds the amounts of a caller
/// who had waited; `None` if it was not sent, because the connection's transaction is somebody else's to commit.
async fn count_for_others<M, Conn, S>(
    link: &mut Link<'_, M, Conn>,
    plan: Plan,
    retry: &RetryPolicy,
    sender: &mut S,
    mut lead: Lead<CounterKey>,
) -> Option<Outcome>
where
    M: Io<Conn>,
    S: Combined<M, Conn> + ?Sized,
{
    let mut first = None;
    while lead.next() {
        // The connection is this caller's alone until it returns: what holds now holds for all rounds.
        if first.is_none() && !matches!(commits_by_itself(link).await, Ok(true)) {
            break;
        }
        let Some((sums, callers)) = lead.send() else {
            continue; // all have left
        };
        observe::combined(plan.dialect, plan.table, callers);
        let outcome = count_sums(link, plan, retry, sender, sums).await;
        first.get_or_insert_with(|| outcome.clone());
        lead.end(outcome.clone());
        // A connection on which this one failed is no place for the next; somebody else leads on.
        if !matches!(outcome, Outcome::Counted(_)) {
            break;
        }
    }
    first
}

async fn count_sums<M, Conn, S>(
    link: &mut Link<'_, M, Conn>,
    plan: Plan,
    retry: &RetryPolicy,
    sender: &mut S,
    sums: Vec<i128>,
) -> Outcome
where
    M: Io<Conn>,
    S: Combined<M, Conn> + ?Sized,
{
    let sums: Result<Vec<i64>, _> = sums.into_iter().map(i64::try_from).collect();
    let Ok(sums) = sums else {
        return Outcome::Nothing; // each amount by itself fits
    };
    sender.add(Some(sums));
    let counted = engine::count(link, plan, retry.clone(), &mut Steps(sender)).await;
    sender.add(None);
    match counted {
        Ok(rows) => Outcome::Counted(rows),
        Err(error) if is_unknown(&error) => Outcome::Unknown(error.to_string().into()),
        Err(_) => Outcome::Nothing,
    }
}

fn is_unknown(error: &DieselError) -> bool {
    let DieselError::QueryBuilderError(boxed) = error else {
        return false;
    };
    matches!(boxed.downcast_ref(), Some(Error::OutcomeUnknown { .. }))
}
