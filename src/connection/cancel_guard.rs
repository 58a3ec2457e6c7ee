//! The guard of a connection whose operation may be dropped half-way.

use std::marker::PhantomData;

use super::link::Io;
use crate::backend::{BackendOf, ShardedBackend};

/// A connection while an operation's steps run on it.
///
/// A future that is dropped leaves its transaction open, in which whatever is counted next would be acknowledged and never committed; and
/// inside a caller's own nobody knows what would be committed with it. It leaves the answer to its last statement behind too:
/// tokio-postgres throws that away; mysql_async reads it in the place of the next statement's. It also leaves what MySQL is told before and
/// after a transaction (`SET autocommit`). Such a connection is broken: it takes no more, and a pool drops it. Only a statement that
/// commits by itself leaves a connection to PostgreSQL or SQLite as it was.
pub(crate) struct CancelGuard<'c, M, Conn>
where
    M: Io<Conn>,
{
    pub(crate) conn: &'c mut Conn,
    /// In a caller's transaction.
    pub(crate) inside: bool,
    answered: bool,
    io: PhantomData<M>,
}

impl<'c, M, Conn> CancelGuard<'c, M, Conn>
where
    M: Io<Conn>,
{
    pub(crate) fn new(conn: &'c mut Conn) -> Self {
        let inside = M::may_be_in_transaction(conn);
        CancelGuard {
            conn,
            inside,
            answered: false,
            io: PhantomData,
        }
    }

    /// No step is under way any more.
    pub(crate) fn answered(mut self) {
        self.answered = true;
    }
}

impl<M, Conn> Drop for CancelGuard<'_, M, Conn>
where
    M: Io<Conn>,
{
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let dialect = M::Backend::backend_of(self.conn).dialect();
        if self.inside
            || dialect.unread_reply_breaks_connection()
            || M::may_be_in_transaction(self.conn)
        {
            M::transaction_status(self.conn).set_in_error();
        }
    }
}
