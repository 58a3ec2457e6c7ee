//! Whole transactions that are tried again, awaited; see [`retry`](crate::retry).

use std::error::Error as StdError;
use std::future::Future;

use diesel::result::Error as DieselError;
use diesel_async::AsyncConnection;

use super::{Async, BoxFuture};
use crate::dialect::BackendOf;
use crate::io::InUse;
use crate::retry::{Failed, Retry, Transaction};

/// Runs `f` in a transaction, and again from the start when it meets a conflict; see
/// [`retry::transaction`](crate::retry::transaction()), which sends the same.
///
/// `f` is an async closure that may be called again: it borrows what it reads, and changes nothing that it has borrowed (a
/// number of calls, say, is a `Cell` or an atomic; compilers cannot yet tell that the future of anything else is `Send`).
///
/// # Errors
/// As [`retry::transaction`](crate::retry::transaction())'s.
pub async fn transaction<Conn, T, E, F>(conn: &mut Conn, policy: Retry, f: F) -> Result<T, E>
where
    Conn: AsyncConnection,
    Conn::Backend: BackendOf<Conn>,
    for<'r> F: AsyncAttempt<&'r mut Conn, Result<T, E>> + Send,
    T: Send,
    E: From<DieselError> + StdError + Send + 'static,
{
    Transaction::new().retry(policy).run_async(conn, f).await
}

impl Transaction {
    /// Runs the async closure `f` on a connection of `diesel_async`; see
    /// [`asynchronous::retry::transaction`](transaction).
    ///
    /// # Errors
    /// As [`run`](Self::run)'s.
    pub fn run_async<'c, Conn, T, E, F>(
        self,
        conn: &'c mut Conn,
        mut f: F,
    ) -> BoxFuture<'c, Result<T, E>>
    where
        Conn: AsyncConnection,
        Conn::Backend: BackendOf<Conn>,
        for<'r> F: AsyncAttempt<&'r mut Conn, Result<T, E>> + Send + 'c,
        T: Send + 'c,
        E: From<DieselError> + StdError + Send + 'static,
    {
        Box::pin(async move {
            let mut repeated = self.repeated::<Async, _>(conn)?;
            let mut held = InUse::<Async, _>::new(conn);
            let conn = &mut *held.conn;
            let done = loop {
                let outcome = match repeated.begin::<Async, _, _>(conn).await {
                    Ok(()) => {
                        held.inside |= repeated.is_inside();
                        let attempted = repeated.scope().within(f.attempt(conn));
                        attempted.await.map_err(Failed::Body)
                    }
                    Err(failed) => Err(failed),
                };
                if let Some(done) = repeated.end::<Async, _, _, _>(conn, outcome).await {
                    break done;
                }
            };
            held.answered();
            done
        })
    }
}

/// An async closure that can be called more than once, and whose future is `Send`.
pub trait AsyncAttempt<T, R>: AsyncFnMut(T) -> R {
    /// Calls it.
    fn attempt(&mut self, argument: T) -> impl Future<Output = R> + Send;
}

impl<F, T, Fut, R> AsyncAttempt<T, R> for F
where
    F: AsyncFnMut(T) -> R + FnMut(T) -> Fut,
    Fut: Future<Output = R> + Send,
{
    fn attempt(&mut self, argument: T) -> impl Future<Output = R> + Send {
        self(argument)
    }
}
