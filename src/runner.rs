//! Carries out what a [`CountingAttempt`] decides.

use std::future::Future;

use diesel::result::QueryResult;

use crate::attempt::{CountingAttempt, Plan, Statement, Step};
use crate::error::Error;
use crate::io::{Held, Io};
use crate::retry::{Begun, Retry, TransactionOptions, begin};

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
    retry: Retry,
    sender: &mut impl Sender<M, Conn>,
) -> Result<usize, Error>
where
    M: Io<Conn>,
{
    let held = Held::<M, _>::new(conn);
    let counted = run(&mut *held.conn, plan, retry, sender).await;
    held.answered();
    counted
}

async fn run<M, Conn>(
    conn: &mut Conn,
    plan: Plan,
    retry: Retry,
    sender: &mut impl Sender<M, Conn>,
) -> Result<usize, Error>
where
    M: Io<Conn>,
{
    let options = TransactionOptions {
        isolation: plan.dialect.own_isolation(),
        ..Default::default()
    };
    let mut begun: Option<Begun> = None;
    let mut attempt = CountingAttempt::new(plan, retry);
    let mut outcome = Ok(0);
    loop {
        outcome = match attempt.next(outcome) {
            Step::Begin => match begin::<M, _>(conn, plan.dialect, options).await {
                Ok(transaction) => {
                    begun = Some(transaction);
                    Ok(0)
                }
                Err(error) => Err(error),
            },
            Step::Run(statement) => sender.send(conn, statement, attempt.shard()).await,
            Step::Commit => match begun {
                Some(begun) => match begun.check::<M, _>(conn, plan.dialect).await {
                    Ok(()) => begun.commit::<M, _>(conn).await.map(|()| 0),
                    Err(error) => Err(error),
                },
                None => Ok(0),
            },
            Step::Rollback => {
                if let Some(begun) = begun.take() {
                    begun.roll_back::<M, _>(conn).await;
                }
                Ok(0)
            }
            Step::Sleep(delay) => {
                M::sleep(attempt.retry(), delay).await;
                Ok(0)
            }
            Step::Finish(result) => return result,
        }
    }
}
