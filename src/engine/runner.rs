//! Carries out what a [`CountingAttempt`] decides.

use std::future::Future;
use std::pin::pin;

use diesel::result::QueryResult;

use crate::connection::{Io, Link, OpenTransaction, TransactionOptions, begin, met_inside};
use crate::engine::attempt::{CountingAttempt, Plan, Statement, Step};
use crate::error::Error;
use crate::observe;
use crate::policy::RetryPolicy;

/// Sends the statements of a counting update.
pub(crate) trait Sender<M: Io<Conn>, Conn> {
    /// Sends one statement for one shard. The number of rows that it met.
    fn send(
        &mut self,
        link: &mut Link<'_, M, Conn>,
        statement: Statement,
        shard: i32,
    ) -> impl Future<Output = QueryResult<usize>>;
}

/// Runs a counting update to its end. The number of parents that it counted on.
pub(crate) async fn count<M, Conn>(
    link: &mut Link<'_, M, Conn>,
    plan: Plan,
    retry: RetryPolicy,
    sender: &mut impl Sender<M, Conn>,
) -> Result<usize, Error>
where
    M: Io<Conn>,
{
    link.enter();
    let counted = run(link, plan, retry, sender).await;
    link.leave();
    counted
}

async fn run<M, Conn>(
    link: &mut Link<'_, M, Conn>,
    mut plan: Plan,
    retry: RetryPolicy,
    sender: &mut impl Sender<M, Conn>,
) -> Result<usize, Error>
where
    M: Io<Conn>,
{
    let options = TransactionOptions {
        isolation: plan.dialect.own_isolation(),
        ..Default::default()
    };
    let mut begun: Option<OpenTransaction> = None;
    let mut attempt = CountingAttempt::new(plan, retry);
    let mut told = observe::Update::begin(&plan);
    let mut outcome = Ok(0);
    loop {
        let step = attempt.next(outcome);
        told.step(&plan, &attempt, &step);
        outcome = match step {
            Step::Begin => {
                let beginning = begin(link, plan.dialect, options);
                match told.within(beginning).await {
                    Ok(transaction) => {
                        if transaction.is_in_anothers() {
                            link.is_inside();
                            plan.in_transaction = true;
                            attempt.is_inside();
                        }
                        begun = Some(transaction);
                        Ok(0)
                    }
                    Err(error) => Err(error),
                }
            }
            Step::Run(statement) => {
                let sent = pin!(sender.send(link, statement, attempt.shard()));
                told.within(sent).await
            }
            Step::Commit => match begun {
                Some(begun) => {
                    let alive = begun.check(link, plan.dialect);
                    match told.within(alive).await {
                        Ok(()) => told.within(begun.commit(link)).await.map(|()| 0),
                        Err(error) => Err(error),
                    }
                }
                None => Ok(0),
            },
            Step::Rollback => {
                if let Some(begun) = begun.take() {
                    told.within(begun.roll_back(link)).await;
                }
                Ok(0)
            }
            Step::LookInside { ended } => {
                let looking = met_inside(link, ended);
                told.within(looking).await.map(usize::from)
            }
            Step::Sleep(delay) => {
                M::sleep(attempt.attempts().retry(), delay).await;
                Ok(0)
            }
            Step::Finish(result) => return result,
        };
        told.came(&outcome);
    }
}
