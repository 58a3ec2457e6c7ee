//! Carries out what a [`CountingAttempt`] decides.

use std::future::Future;
use std::pin::pin;

use diesel::result::QueryResult;

use crate::connection::{CancelGuard, Io, OpenTransaction, TransactionOptions, begin, met_inside};
use crate::engine::attempt::{CountingAttempt, Plan, Statement, Step};
use crate::error::Error;
use crate::observe;
use crate::policy::RetryPolicy;

/// Sends the statements of a counting update.
pub(crate) trait Sender<M, Conn> {
    /// Sends one statement for one shard. The number of rows that it met.
    fn send(
        &mut self,
        conn: &mut Conn,
        statement: Statement,
        shard: i32,
    ) -> impl Future<Output = QueryResult<usize>>;
}

/// Runs a counting update to its end. The number of parents that it counted on.
pub(crate) async fn count<M, Conn>(
    conn: &mut Conn,
    plan: Plan,
    retry: RetryPolicy,
    sender: &mut impl Sender<M, Conn>,
) -> Result<usize, Error>
where
    M: Io<Conn>,
{
    let mut held = CancelGuard::<M, _>::new(conn);
    let counted = run(&mut *held.conn, &mut held.inside, plan, retry, sender).await;
    held.answered();
    counted
}

/// `inside`: in a caller's transaction.
async fn run<M, Conn>(
    conn: &mut Conn,
    inside: &mut bool,
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
                let beginning = begin::<M, _>(conn, plan.dialect, options);
                match told.within(beginning).await {
                    Ok(transaction) => {
                        if transaction.is_in_anothers() {
                            *inside = true;
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
                let sent = pin!(sender.send(conn, statement, attempt.shard()));
                told.within(sent).await
            }
            Step::Commit => match begun {
                Some(begun) => {
                    let alive = begun.check::<M, _>(conn, plan.dialect);
                    match told.within(alive).await {
                        Ok(()) => told.within(begun.commit::<M, _>(conn)).await.map(|()| 0),
                        Err(error) => Err(error),
                    }
                }
                None => Ok(0),
            },
            Step::Rollback => {
                if let Some(begun) = begun.take() {
                    told.within(begun.roll_back::<M, _>(conn)).await;
                }
                Ok(0)
            }
            Step::LookInside { ended } => {
                let looking = met_inside::<M, _>(conn, ended);
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
