//! Counting for others, on one's own connection.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use diesel::result::{Error as DieselError, QueryResult};

use super::admission::is_barred;
use super::handed::SendsHanded;
use super::shared_error::SharedError;
use super::slots::{Entered, Lead, Outcome, Running, Slots, Turn};
use super::sum::Sum;
use super::{CounterKey, Meeting};
use crate::connection::{Io, Link, TransactionOptions, commits_by_itself};
use crate::counting::update::Count;
use crate::engine::{self, PartOf, RetryLoop, retry_loop};
use crate::error::Error;
use crate::observe;
use crate::policy::RetryPolicy;
use crate::query_builder::{AddSums, Addend};

/// How long a caller waits for a leader who makes no progress: it may be a task that nobody polls.
const A_MOMENT: Duration = Duration::from_secs(1);

/// Counts, together with other callers if they meet. Returns the number of rows counted.
pub(crate) async fn count<M, U>(link: &mut Link<'_, M>, count: &mut Count<U>) -> QueryResult<usize>
where
    M: Io,
    U: SendsHanded<M> + ?Sized,
{
    if count.combine.is_with_nobody() {
        return engine::count(link, count.facts, count.retry.clone(), count).await;
    }
    count.facts.part_of = PartOf::of(link)?;
    let Some(meeting) = count.combine.on(link) else {
        return engine::count(link, count.facts, count.retry.clone(), count).await;
    };
    match Role::of(count, &meeting, &link.backend()).await {
        ControlFlow::Break(counted) => counted,
        ControlFlow::Continue(role) => role.carry_out(link, count).await,
    }
}

/// What is left to do for a caller if nobody has counted for it: it counts its own amount, and with a lead those of others too.
#[derive(Default)]
pub(crate) struct Role {
    lead: Option<Lead>,
    pub(crate) waited: Waited,
}

/// How long a caller has waited. This is part of its deadline.
#[derive(Default)]
pub(crate) struct Waited {
    time: Duration,
    /// The attempts at batches that held its amount.
    attempts: u32,
    /// The conflict that ended the last one.
    met: Option<SharedError>,
}

impl Waited {
    /// Notes that a batch with the caller's amount failed. Returns the caller's error if it may not try again.
    fn failed(&mut self, error: SharedError, retry: &RetryPolicy) -> Option<DieselError> {
        let (conflict, attempts) = error.persisted?;
        self.attempts = self.attempts.saturating_add(attempts);
        self.met = Some(error);
        let is_last =
            self.time >= retry.deadline() || self.attempts >= retry.most_attempts(conflict);
        is_last.then(|| self.error())
    }

    /// How long a caller waits for a connection: until its deadline if it has waited for others, else without a limit. Fails if no time is
    /// left.
    pub(crate) fn time_left(&self, deadline: Duration) -> QueryResult<Option<Duration>> {
        match deadline.saturating_sub(self.time) {
            _ if self.time.is_zero() => Ok(None),
            Duration::ZERO => Err(self.error()),
            left => Ok(Some(left)),
        }
    }

    /// Notes that the caller has waited for its connection.
    pub(crate) fn add(&mut self, time: Duration) {
        self.time += time;
    }

    /// The error of a caller whose time is up.
    pub(crate) fn error(&self) -> DieselError {
        let met = self.met.as_ref();
        let error = match met.and_then(|error| Some((error, error.persisted?))) {
            Some((error, (conflict, _))) => Error::ConflictPersisted {
                conflict,
                attempts: self.attempts,
                elapsed: self.time,
                source: error.source(),
            },
            None => Error::DeadlinePassed {
                waited: self.time,
                reason: "another caller was to count, or no connection was free".to_owned(),
            },
        };
        error.into()
    }
}

impl Role {
    /// The role of an increment, after it has waited for others if necessary; or its result, if another caller has counted for it. This needs no
    /// connection.
    pub(crate) async fn of<M, U>(
        count: &mut Count<U>,
        meeting: &Meeting,
        backend: &M::Backend,
    ) -> ControlFlow<QueryResult<usize>, Self>
    where
        M: Io,
        U: SendsHanded<M> + ?Sized,
    {
        let mut began = None;
        let mut waited = Waited::default();
        let lead = loop {
            let combinable = match M::is_shared() {
                true => None, // it may be inside a transaction
                false => count.combinable(meeting, count.update.clauses(0), backend),
            };
            let Some(own) = combinable else {
                break ControlFlow::Continue(None);
            };
            let now = Instant::now();
            let since = now.checked_sub(waited.time).unwrap_or(now);
            let slots = meeting.combiner.slots.own();
            let mut member = match Slots::enter(slots, own.slot, own.key, &own.amounts, since) {
                Entered::Leads(lead) => break ControlFlow::Continue(Some(lead)),
                Entered::Waits(member) => member,
            };
            let began = began.get_or_insert(now);
            let retry = &count.retry;
            let mut patience = A_MOMENT.min(retry.deadline().saturating_sub(waited.time));
            let turn = loop {
                let turn = M::wait(&mut member, patience).await;
                if turn.is_none() {
                    waited.time += patience; // by the runtime's clock, which may stand still
                }
                waited.time = waited.time.max(began.elapsed());
                let left = retry.deadline().saturating_sub(waited.time);
                match turn {
                    Some(turn) => break Some(turn),
                    None if !left.is_zero() => {
                        if let Some(lead) = member.take_over(A_MOMENT) {
                            break Some(Turn::Leads(lead));
                        }
                        patience = A_MOMENT.min(left);
                    }
                    None if member.leave() => break None,
                    // The batch was sent. Its leader has at most the same deadline, and then a moment to tell the outcome.
                    None if waited.time < retry.deadline().saturating_add(A_MOMENT) => {
                        patience = A_MOMENT;
                    }
                    None => {
                        observe::combined_wait(*began);
                        let reason = "the caller who counts for this one does not return";
                        return ControlFlow::Break(Err(Error::outcome_unknown(reason).into()));
                    }
                }
            };
            let has_time = waited.time < retry.deadline();
            match turn {
                Some(Turn::Leads(lead)) if has_time => break ControlFlow::Continue(Some(lead)),
                None | Some(Turn::Leads(_)) => break ControlFlow::Continue(None),
                Some(Turn::Done(Outcome::Failed(error))) => {
                    if let Some(error) = waited.failed(error, retry) {
                        break ControlFlow::Break(Err(error));
                    }
                    if !has_time {
                        break ControlFlow::Continue(None);
                    }
                }
                Some(Turn::Done(outcome)) => {
                    break match count.answer(outcome) {
                        Some(counted) => ControlFlow::Break(counted),
                        None => ControlFlow::Continue(None),
                    };
                }
            }
        };
        if let Some(began) = began {
            observe::combined_wait(began);
        }
        lead.map_continue(|lead| Role { lead, waited })
    }

    /// Does what is left to do. Returns the number of rows counted.
    pub(crate) async fn carry_out<M, U>(
        self,
        link: &mut Link<'_, M>,
        count: &mut Count<U>,
    ) -> QueryResult<usize>
    where
        M: Io,
        U: SendsHanded<M> + ?Sized,
    {
        let now = Instant::now();
        let began = now.checked_sub(self.waited.time).unwrap_or(now);
        let mut leader = Leader {
            link,
            count,
            began,
            since: began,
        };
        leader.carry_out(self).await
    }
}

/// A caller who counts on its own connection.
struct Leader<'a, 'c, M: Io, U: ?Sized> {
    link: &'a mut Link<'c, M>,
    count: &'a mut Count<U>,
    /// When its own call began.
    began: Instant,
    /// When the deadline of what it counts next began to run.
    since: Instant,
}

impl<M, U> Leader<'_, '_, M, U>
where
    M: Io,
    U: SendsHanded<M> + ?Sized,
{
    async fn carry_out(&mut self, role: Role) -> QueryResult<usize> {
        let Role { lead, mut waited } = role;
        let lead = match lead {
            Some(lead) if lead.was_member() => {
                let began = Instant::now();
                let outcome = self.count_for_others(lead).await;
                waited.time += began.elapsed();
                match outcome {
                    Some(Outcome::Failed(error)) => {
                        if let Some(error) = waited.failed(error, &self.count.retry) {
                            return Err(error);
                        }
                    }
                    outcome => {
                        let answer = outcome.and_then(|outcome| self.count.answer(outcome));
                        if let Some(counted) = answer {
                            return counted;
                        }
                    }
                }
                None
            }
            lead => lead,
        };
        self.since = self.began;
        let (facts, retry) = (self.count.facts, self.retry());
        let counted = engine::count(self.link, facts, retry, self.count).await;
        if let (Some(mut lead), Ok(_)) = (lead, &counted) {
            lead.has_counted();
            self.count_for_others(lead).await;
        }
        counted
    }

    fn retry(&self) -> RetryPolicy {
        self.count.retry.clone().waited(self.since.elapsed())
    }

    /// Counts the batches of a slot until nobody waits or others lead on. Returns the outcome of the first one, which holds the amounts of a
    /// leader who was a member; `None` if it was not run, because somebody else has to commit the connection's transaction.
    async fn count_for_others(&mut self, mut lead: Lead) -> Option<Outcome> {
        let mut first = None;
        let counts = |key: &CounterKey| key.handed::<M::Backend>().is_some();
        while lead.has_work(&counts) {
            // The connection belongs to this caller alone until it returns: one answer holds for all rounds.
            if first.is_none() {
                let asked = Instant::now();
                if is_barred(self.link) || !matches!(commits_by_itself(self.link).await, Ok(true)) {
                    break;
                }
                lead.answered(asked.elapsed());
            }
            let batches = lead.run(&counts);
            if batches.is_empty() {
                continue; // all have left
            }
            for batch in &batches {
                observe::combined(self.count.facts.dialect, batch.key.table, batch.members);
            }
            // The batch has waited as long as the first who joined it, and its leader has a deadline too. Whom it fails then combine again,
            // while they have time.
            let since = batches.iter().filter_map(|batch| batch.since);
            self.since = since.fold(self.began, Instant::min);
            let outcomes = match batches.as_slice() {
                [batch] if self.count.facts.dialect.has_row_locks() => {
                    vec![self.count_batch(batch).await]
                }
                batches => self.count_batches(batches).await,
            };
            first = first.or_else(|| outcomes.first().cloned());
            let has_failed = outcomes.iter().any(|outcome| !outcome.is_counted());
            lead.end(outcomes);
            // The next batch does not run on a connection on which one failed: somebody else leads.
            if has_failed {
                break;
            }
        }
        first
    }

    /// Counts the batches of one or several counters in a transaction, whose rollback undoes what an error of SQLite keeps. A batch that is
    /// at fault, or whose sums do not fit, is left to its callers.
    async fn count_batches(&mut self, batches: &[Running]) -> Vec<Outcome> {
        let mut outcomes = vec![Outcome::Nothing; batches.len()];
        let sums = |(i, batch): (usize, &Running)| Some((i, batch.addends()?));
        let mut left: Vec<_> = batches.iter().enumerate().filter_map(sums).collect();
        while !left.is_empty() {
            let mut at = None;
            match self.count_together(batches, &left, &mut at).await {
                Ok(rows) => {
                    for ((i, _), rows) in left.iter().zip(rows) {
                        outcomes[*i] = Outcome::Counted(rows);
                    }
                    break;
                }
                Err(error) => {
                    let error = Error::from(error);
                    match at {
                        Some(at) if !error.is_no_rows_fault() => drop(left.remove(at)),
                        _ => {
                            let outcome = Outcome::of(error);
                            left.iter()
                                .for_each(|(i, _)| outcomes[*i] = outcome.clone());
                            break;
                        }
                    }
                }
            }
        }
        outcomes
    }

    /// Counts these sums. The number beside each is the index of its batch. After an error, `at` is the position of the sums at which it
    /// occurred.
    async fn count_together(
        &mut self,
        batches: &[Running],
        together: &[(usize, Vec<Addend>)],
        at: &mut Option<usize>,
    ) -> QueryResult<Vec<usize>> {
        let options = TransactionOptions {
            outermost: true,
            ..TransactionOptions::of_a_count(self.count.facts.dialect)
        };
        let repeated = RetryLoop::transaction(self.link, self.retry(), options)?;
        self.link.owns_transaction = true;
        let counted = retry_loop!(self.link, repeated, {
            let mut rows = vec![];
            for (number, (i, sums)) in together.iter().enumerate() {
                *at = Some(number);
                rows.push(self.count_sums(&batches[*i], sums.clone()).await?);
            }
            *at = None;
            Ok(rows)
        });
        self.link.owns_transaction = false;
        counted
    }

    /// Counts the batch of one counter, by itself.
    async fn count_batch(&mut self, batch: &Running) -> Outcome {
        let Some(sums) = batch.addends() else {
            return Outcome::Nothing; // each amount fits by itself
        };
        match self.count_sums(batch, sums).await {
            Ok(rows) => Outcome::Counted(rows),
            Err(error) => Outcome::of(error.into()),
        }
    }

    /// Counts the sums of a batch.
    async fn count_sums(&mut self, batch: &Running, sums: Vec<Addend>) -> QueryResult<usize> {
        let retry = self.retry();
        let sums = Some(AddSums::new(batch.key.fields, sums));
        if let Some(anothers) = batch.key.handed::<M::Backend>() {
            let mut count = anothers.clone();
            count.sums = sums;
            return engine::count(self.link, count.facts, retry, U::hidden(&mut count)).await;
        }
        self.count.sums = sums;
        let facts = self.count.facts_for_all();
        let counted = engine::count(self.link, facts, retry, self.count).await;
        self.count.sums = None;
        counted
    }
}

impl Running {
    /// The sums, if they fit.
    fn addends(&self) -> Option<Vec<Addend>> {
        self.sums.iter().map(Sum::addend).collect()
    }
}

impl<U: ?Sized> Count<U> {
    /// The answer to the caller, whose amount was in a batch; `None` if it has to count alone.
    fn answer(&self, outcome: Outcome) -> Option<QueryResult<usize>> {
        match outcome {
            Outcome::Counted(0) if self.inserts_own => None,
            Outcome::Counted(rows) => Some(Ok(rows)),
            Outcome::Nothing | Outcome::Failed(_) => None,
            Outcome::Unknown(error) => {
                let source = error.source();
                Some(Err(Error::OutcomeUnknown { source }.into()))
            }
        }
    }
}

impl Outcome {
    fn of(error: Error) -> Self {
        match error {
            Error::OutcomeUnknown { source } => Outcome::Unknown(SharedError::of(source, None)),
            Error::ConnectionLost { source } => Outcome::Failed(SharedError::of(source, None)),
            Error::ConflictPersisted {
                conflict,
                attempts,
                source,
                ..
            } => Outcome::Failed(SharedError::of(source, Some((conflict, attempts)))),
            _ => Outcome::Nothing,
        }
    }
}
