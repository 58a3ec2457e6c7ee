//! Counting for others, on one's own connection.

use std::time::{Duration, Instant};

use diesel::result::{Error as DieselError, QueryResult};

use super::slots::{Entered, Lead, Outcome, Sent, Slots, Turn};
use super::{Combinable, CounterKey};
use crate::connection::{Io, Link, TransactionOptions, commits_by_itself};
use crate::engine::{self, Plan, RetryLoop, SendStep, Steps, retry_loop};
use crate::error::Error;
use crate::observe;
use crate::policy::RetryPolicy;

/// How long a caller waits for one who does not come: a leader may be a task that nobody polls.
const A_MOMENT: Duration = Duration::from_secs(1);

/// The part of a deadline that is left to a caller's own attempt.
fn own_attempt(deadline: Duration) -> Duration {
    deadline / 10
}

/// An update that is counted with its own amounts, or with the sums of a batch in their place. The engine and the combiner are compiled once
/// for each connection behind it.
pub(crate) trait Combined<M: Io<Conn>, Conn>: SendStep<M, Conn> {
    fn retry(&self) -> RetryPolicy;

    /// What its count depends on.
    fn plan(&self, link: &mut Link<'_, M, Conn>) -> QueryResult<Plan>;

    /// The count as others may share it; `None` if it counts alone.
    fn combinable(&self, in_transaction: bool, backend: &M::Backend) -> Option<Combinable>;

    /// Takes these sums, one for each field, in the place of the update's own amounts; or these again.
    fn add(&mut self, sums: Option<Vec<i64>>);

    fn explained(&self, backend: &M::Backend, error: DieselError) -> DieselError;
}

/// Counts, with others if they meet. Returns the number of rows counted.
pub(crate) async fn count<M, Conn, S>(
    link: &mut Link<'_, M, Conn>,
    update: &mut S,
) -> QueryResult<usize>
where
    M: Io<Conn>,
    S: Combined<M, Conn> + ?Sized,
{
    let plan = update.plan(link)?;
    let role = Role::of(update, plan.in_transaction, &link.backend()).await;
    role.carry_out(link, plan, update).await
}

/// What is left to do for a caller, and what it has waited, which is a part of its deadline.
pub(crate) enum Role {
    /// Nothing: another has counted for it.
    Counted(QueryResult<usize>),
    /// To count, and then for those who come meanwhile.
    Leads(Lead<CounterKey>, Duration),
    /// To count for those who wait, itself among them.
    LeadsOn(Lead<CounterKey>, Duration),
    Alone(Duration),
}

impl Role {
    /// The role of a count, after a wait for others if there are some. It needs no connection.
    pub(crate) async fn of<M, Conn, S>(
        update: &mut S,
        in_transaction: bool,
        backend: &M::Backend,
    ) -> Self
    where
        M: Io<Conn>,
        S: Combined<M, Conn> + ?Sized,
    {
        let mut began = None;
        let mut waited = Duration::ZERO;
        let role = loop {
            let count = match M::is_shared() {
                true => None, // it may be inside a transaction
                false => update.combinable(in_transaction, backend),
            };
            let Some(count) = count else {
                break Role::Alone(waited);
            };
            let slots = count.combiner.slots.own();
            let wait = match Slots::enter(slots, count.slot, count.key, &count.amounts) {
                Entered::Leads(lead) => break Role::Leads(lead, waited),
                Entered::Waits(wait) => wait,
            };
            let began = began.get_or_insert_with(Instant::now);
            let deadline = update.retry().deadline();
            let left = deadline.saturating_sub(waited);
            let wait = wait.without_lead(left <= A_MOMENT);
            let patience = left.min(A_MOMENT);
            let turn = M::wait(wait, patience).await;
            if let Turn::Left = turn {
                waited += patience; // by the runtime's clock, which may stand still
            }
            waited = waited.max(began.elapsed());
            match turn {
                Turn::Left if waited < deadline => {}
                Turn::Leads(lead) if waited < deadline - own_attempt(deadline) => {
                    break Role::LeadsOn(lead, waited);
                }
                // One attempt is left, which is its own: the lead is another's.
                Turn::Left | Turn::Leads(_) => break Role::Alone(waited),
                Turn::Ended(outcome) => {
                    break outcome.told().map_or(Role::Alone(waited), Role::Counted);
                }
            }
        };
        if let Some(began) = began {
            observe::combined_wait(began);
        }
        role
    }

    /// Does what is left to do. Returns the number of rows counted.
    pub(crate) async fn carry_out<M, Conn, S>(
        self,
        link: &mut Link<'_, M, Conn>,
        plan: Plan,
        update: &mut S,
    ) -> QueryResult<usize>
    where
        M: Io<Conn>,
        S: Combined<M, Conn> + ?Sized,
    {
        let mut leader = Leader {
            link,
            plan,
            waited: Duration::ZERO,
            update,
        };
        let counted = leader.carry_out(self).await;
        counted.map_err(|error| leader.update.explained(&leader.link.backend(), error))
    }
}

/// A caller who counts on its own connection.
struct Leader<'a, 'c, M: Io<Conn>, Conn, S: ?Sized> {
    link: &'a mut Link<'c, M, Conn>,
    plan: Plan,
    /// The part of the next count's deadline that has passed.
    waited: Duration,
    update: &'a mut S,
}

impl<M, Conn, S> Leader<'_, '_, M, Conn, S>
where
    M: Io<Conn>,
    S: Combined<M, Conn> + ?Sized,
{
    async fn carry_out(&mut self, role: Role) -> QueryResult<usize> {
        let (lead, waited) = match role {
            Role::Counted(counted) => return counted,
            Role::Alone(waited) => (None, waited),
            Role::Leads(lead, waited) => (Some(lead), waited),
            Role::LeadsOn(lead, waited) => {
                let began = Instant::now();
                self.waited = waited + own_attempt(self.update.retry().deadline());
                let outcome = self.count_for_others(lead).await;
                if let Some(counted) = outcome.and_then(Outcome::told) {
                    return counted;
                }
                (None, waited + began.elapsed())
            }
        };
        self.waited = waited;
        let counted = self.count().await;
        if let (Some(lead), Ok(_)) = (lead, &counted) {
            self.waited = Duration::ZERO;
            self.count_for_others(lead).await;
        }
        counted
    }

    fn retry(&self) -> RetryPolicy {
        let retry = self.update.retry();
        match self.waited {
            Duration::ZERO => retry,
            waited => {
                let left = retry.deadline().saturating_sub(waited);
                retry.with_deadline(left)
            }
        }
    }

    async fn count(&mut self) -> QueryResult<usize> {
        let retry = self.retry();
        let steps = &mut Steps(&mut *self.update);
        engine::count(self.link, self.plan, retry, steps).await
    }

    /// Counts the batches of a slot until nobody waits or others lead on. Returns the outcome of the first one, which holds the amounts of a
    /// caller who had waited; `None` if it was not sent, because the connection's transaction is somebody else's to commit.
    async fn count_for_others(&mut self, mut lead: Lead<CounterKey>) -> Option<Outcome> {
        let mut first = None;
        while lead.next(|key| key.handed::<M::Backend>().is_some()) {
            // The connection is this caller's alone until it returns: what holds now holds for all rounds.
            if first.is_none() && !matches!(commits_by_itself(self.link).await, Ok(true)) {
                break;
            }
            let batches = lead.send();
            if batches.is_empty() {
                continue; // all have left
            }
            for batch in &batches {
                observe::combined(self.plan.dialect, batch.key.table, batch.callers);
            }
            let outcomes = match batches.as_slice() {
                [batch] => vec![self.count_batch(batch).await],
                batches => self.count_batches(batches).await,
            };
            first = first.or_else(|| outcomes.first().cloned());
            let has_failed = outcomes.iter().any(|outcome| !outcome.is_counted());
            lead.end(outcomes);
            self.waited = Duration::ZERO; // who comes now has waited for nobody
            // A connection on which one failed is no place for the next; somebody else leads on.
            if has_failed {
                break;
            }
        }
        first
    }

    /// Counts the batches of several counters in one transaction. One that is at fault is left to its callers.
    async fn count_batches(&mut self, batches: &[Sent<CounterKey>]) -> Vec<Outcome> {
        let mut outcomes = vec![Outcome::Nothing; batches.len()];
        let mut left: Vec<usize> = (0..batches.len()).collect();
        while !left.is_empty() {
            let mut at = None;
            let together: Vec<_> = left.iter().map(|i| &batches[*i]).collect();
            match self.count_together(&together, &mut at).await {
                Ok(rows) => {
                    for (i, rows) in left.iter().zip(rows) {
                        outcomes[*i] = Outcome::Counted(rows);
                    }
                    break;
                }
                Err(error) => {
                    let error = Error::from(error);
                    match at {
                        Some(at) if !error.is_no_rows_fault() => drop(left.remove(at)),
                        _ => {
                            left.iter().for_each(|i| outcomes[*i] = Outcome::of(&error));
                            break;
                        }
                    }
                }
            }
        }
        outcomes
    }

    /// `at` tells, after an error, at which of the batches it came.
    async fn count_together(
        &mut self,
        batches: &[&Sent<CounterKey>],
        at: &mut Option<usize>,
    ) -> QueryResult<Vec<usize>> {
        let options = TransactionOptions {
            outermost: true,
            ..TransactionOptions::of_a_count(self.plan.dialect)
        };
        let retry = self.retry();
        let repeated = RetryLoop::transaction(self.link, retry.clone(), options)?;
        retry_loop!(self.link, repeated, {
            let mut rows = vec![];
            for (number, batch) in batches.iter().enumerate() {
                *at = Some(number);
                let counter = batch.key.handed::<M::Backend>();
                let (Some(counter), Some(sums)) = (counter, batch.amounts()) else {
                    return Err(DieselError::RollbackTransaction);
                };
                rows.push(counter.count(self.link, retry.clone(), sums, true).await?);
            }
            *at = None;
            Ok(rows)
        })
    }

    /// Counts the batch of one counter, by itself.
    async fn count_batch(&mut self, batch: &Sent<CounterKey>) -> Outcome {
        let Some(sums) = batch.amounts() else {
            return Outcome::Nothing; // each amount by itself fits
        };
        let retry = self.retry();
        let counted = match batch.key.handed::<M::Backend>() {
            Some(counter) => counter.count(self.link, retry, sums, false).await,
            None => {
                self.update.add(Some(sums));
                let counted = self.count().await;
                self.update.add(None);
                counted
            }
        };
        match counted.map_err(Error::from) {
            Ok(rows) => Outcome::Counted(rows),
            Err(error) => Outcome::of(&error),
        }
    }
}

impl Sent<CounterKey> {
    /// The sums, if they fit.
    fn amounts(&self) -> Option<Vec<i64>> {
        let sums = self.sums.iter().map(|sum| i64::try_from(*sum).ok());
        sums.collect()
    }
}

impl Outcome {
    fn of(error: &Error) -> Self {
        match error {
            Error::OutcomeUnknown { .. } => Outcome::Unknown(error.to_string().into()),
            _ => Outcome::Nothing,
        }
    }

    /// What its callers are told; `None` where each counts alone.
    fn told(self) -> Option<QueryResult<usize>> {
        match self {
            Outcome::Counted(rows) => Some(Ok(rows)),
            Outcome::Nothing => None,
            Outcome::Unknown(reason) => Some(Err(Error::outcome_unknown(&reason).into())),
        }
    }

    fn is_counted(&self) -> bool {
        matches!(self, Outcome::Counted(_))
    }
}
