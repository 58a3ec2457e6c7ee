//! Carries out, on a synchronous connection, what a [`CountingAttempt`] decides.

use diesel::Connection;
use diesel::result::QueryResult;

use crate::attempt::{CountingAttempt, Plan, Statement, Step};
use crate::dialect::BackendOf;
use crate::error::Error;
use crate::retry::{Retry, TransactionOptions, begin};

/// Runs a counting update to its end; `run` sends one statement for one shard and tells how many rows it met.
pub(crate) fn count<Conn>(
    conn: &mut Conn,
    plan: Plan,
    retry: Retry,
    mut run: impl FnMut(&mut Conn, Statement, i32) -> QueryResult<usize>,
) -> Result<usize, Error>
where
    Conn: Connection,
    Conn::Backend: BackendOf<Conn>,
{
    let options = TransactionOptions {
        isolation: plan.dialect.own_isolation(),
        ..Default::default()
    };
    let mut begun = None;
    let mut attempt = CountingAttempt::new(plan, retry);
    let mut outcome = Ok(0);
    loop {
        outcome = match attempt.next(outcome) {
            Step::Begin => begin(conn, plan.dialect, options).map(|transaction| {
                begun = Some(transaction);
                0
            }),
            Step::Run(statement) => run(conn, statement, attempt.shard()),
            Step::Commit => begun.map_or(Ok(0), |begun| {
                begun.check(conn, plan.dialect)?;
                begun.commit(conn).map(|()| 0)
            }),
            Step::Rollback => {
                if let Some(begun) = begun.take() {
                    begun.rollback(conn);
                }
                Ok(0)
            }
            Step::Sleep(delay) => {
                attempt.retry().sleep(delay);
                Ok(0)
            }
            Step::Finish(result) => return result,
        }
    }
}
