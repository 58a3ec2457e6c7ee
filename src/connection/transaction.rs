//! The crate's own transactions and savepoints, and how each database begins and ends them.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use diesel::connection::TransactionManagerStatus;
use diesel::result::{DatabaseErrorKind, Error as DieselError, QueryResult};
use diesel::sql_types::Integer;

use super::link::{Io, Link};
use super::raw;
use crate::backend::{Dialect, ErrorDetail, Guard, Isolation, OpenQuestion};
use crate::conflict::ErrorClass;
use crate::error::{Error, database_error};
use crate::query_builder::fragments;

static OTHER_NODES_WRITE: AtomicBool = AtomicBool::new(false);

/// Sets whether other nodes of this process's databases accept writes too. Such a node may end a transaction without telling the client,
/// so transactions of several statements are guarded while this is set.
pub(crate) fn set_other_nodes_write(write: bool) {
    OTHER_NODES_WRITE.store(write, Ordering::Relaxed);
}

/// Whether other nodes accept writes too.
pub(crate) fn other_nodes_write() -> bool {
    OTHER_NODES_WRITE.load(Ordering::Relaxed)
}

/// The nesting depth of the transactions that Diesel knows of; 0 outside of any. Fails after the connection was lost, when Diesel does
/// not know the depth: then nothing may be sent on it.
pub(super) fn depth<M: Io>(link: &mut Link<'_, M>) -> QueryResult<u32> {
    if !link.dialect().notices_ends() {
        return Err(Error::DieselIsTooOld.into());
    }
    depth_of(link.transaction_status())
}

/// The [`depth`] in Diesel's own record.
pub(crate) fn depth_of(status: &TransactionManagerStatus) -> QueryResult<u32> {
    let depth = status.transaction_depth();
    let depth = depth.map_err(|source| Error::ConnectionLost { source })?;
    Ok(depth.map_or(0, NonZeroU32::get))
}

/// Whether a transaction is open that Diesel knows of.
pub(crate) fn in_transaction<M: Io>(link: &mut Link<'_, M>) -> QueryResult<bool> {
    Ok(depth(link)? > 0)
}

/// A statement or a query without binds.
pub(crate) struct Fixed(pub(crate) &'static str);

fragments! {
    [] Fixed: Query<Integer>, no query id [];
    |self, mut out| {
        out.push_sql(self.0);
        Ok(())
    };
}

/// How many times a statement that has to succeed is sent if it keeps being interrupted.
pub(super) const MOST_TRIES: u8 = 8;

/// Repeats a step while it is interrupted. (A macro, because no closure can lend the link to a future.)
macro_rules! again_if_interrupted {
    ($link:ident, $step:expr) => {{
        let mut tries = 1;
        loop {
            match $step {
                Err(error)
                    if tries < crate::connection::transaction::MOST_TRIES
                        && $link.dialect().may_succeed_again(&error) =>
                {
                    tries += 1;
                }
                done => break done,
            }
        }
    }};
}
pub(super) use again_if_interrupted;

/// Undoes a failed operation. If that fails too, marks the connection broken; the operation's error says more than this one.
pub(crate) async fn clean_up<M: Io>(link: &mut Link<'_, M>, sql: &str) {
    if again_if_interrupted!(link, link.batch_execute(sql).await).is_err() {
        link.transaction_status().set_in_error();
    }
}

/// How a transaction begins.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TransactionOptions {
    pub(crate) isolation: Option<Isolation>,
    /// Acquires SQLite's write lock at the first write, not at once.
    pub(crate) deferred: bool,
    /// Has a [`Guard`] in every process, not only in one whose stripe says that other nodes write too. A guard costs several round
    /// trips.
    pub(crate) guarded: bool,
    /// Is refused inside another transaction.
    pub(crate) outermost: bool,
    /// Runs only this crate's own statements, so Diesel need not know of it.
    pub(crate) own: bool,
}

impl TransactionOptions {
    /// For the crate's own rare operations.
    pub(crate) fn guarded() -> Self {
        TransactionOptions {
            guarded: true,
            ..Default::default()
        }
    }

    /// For increments that are committed together.
    pub(crate) fn of_a_count(dialect: Dialect) -> Self {
        TransactionOptions {
            isolation: dialect.own_isolation(),
            ..Default::default()
        }
    }
}

/// How a transaction ends after its work has succeeded with a value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ending<T> {
    Commit(T),
    RollBack(T),
}

impl<T> Ending<T> {
    /// Commits if the work is `done`.
    pub(crate) fn commit_if(done: bool, value: T) -> Self {
        match done {
            true => Ending::Commit(value),
            false => Ending::RollBack(value),
        }
    }
}

/// Begins a transaction, or a savepoint inside one. After an error neither is open.
pub(crate) async fn begin<M: Io>(
    link: &mut Link<'_, M>,
    options: TransactionOptions,
) -> QueryResult<OpenTransaction> {
    if M::is_shared() {
        return Err(Error::SharedConnection.into());
    }
    let (outer, dialect) = (depth(link)?, link.dialect());
    let nothing = OpenTransaction {
        outer,
        guard: None,
        savepoint: None,
        by_statements: false,
        commit_failed: false,
    };
    let by_statements = options.own && dialect.begins_by_statement();
    if outer > 0 {
        let by_statements = begin_by(link, by_statements, SAVEPOINT).await?;
        return Ok(OpenTransaction {
            by_statements,
            ..nothing
        });
    }
    let guard = match options.guarded || other_nodes_write() {
        true => dialect.guard(),
        false => None,
    };
    let isolation = options.isolation.and_then(|i| dialect.set_isolation(i));
    let (before, after) = match isolation {
        Some((sql, true)) => (Some(sql), None),
        Some((sql, false)) => (None, Some(sql)),
        None => (None, None),
    };
    let mut begun = OpenTransaction { guard, ..nothing };
    match prepare(link, dialect, guard, before).await {
        Ok(true) => {}
        Ok(false) => return savepoint(link, nothing, options).await,
        Err(error) => {
            forget_isolation(link, before).await;
            begun.lift_guard(link).await;
            return Err(error);
        }
    }
    match begin_by(link, by_statements, "START TRANSACTION").await {
        Ok(by_statement) => begun.by_statements = by_statement,
        Err(error) if dialect.has_detail(&error, ErrorDetail::RefusedInside) => {
            return savepoint(link, nothing, options).await;
        }
        Err(error) => {
            match dialect.classify(&error) {
                // A node that refuses to begin would refuse the rollback too.
                ErrorClass::NodeNotReady => {
                    forget_isolation(link, before).await;
                    begun.lift_guard(link).await;
                }
                // A server that interrupts `BEGIN` at its end has begun a transaction. Diesel does not know of it.
                _ if dialect.begins_by_statement() => {
                    begun.by_statements = true;
                    begun.roll_back(link).await;
                }
                _ => {}
            }
            return Err(error);
        }
    }
    match open(link, dialect, options, guard, after).await {
        Ok(()) => Ok(begun),
        Err(error) => {
            begun.roll_back(link).await;
            Err(error)
        }
    }
}

/// Inside this savepoint no other begins, so one name is enough.
const SAVEPOINT: &str = "SAVEPOINT diesel_sharded_own";

/// Whether this process has met a server, such as MySQL, that does not prepare `START TRANSACTION`.
static PREPARES_NO_BEGIN: AtomicBool = AtomicBool::new(false);

/// Begins a transaction or savepoint by a statement, without Diesel's knowledge; where that is impossible, through Diesel. Returns whether
/// a statement began it.
///
/// Diesel's own `BEGIN` and `COMMIT` cost three round trips each on MySQL, because Diesel switches multi-statement text on before them and
/// off after.
async fn begin_by<M: Io>(
    link: &mut Link<'_, M>,
    by_statements: bool,
    begin: &'static str,
) -> QueryResult<bool> {
    if by_statements && !PREPARES_NO_BEGIN.load(Ordering::Relaxed) {
        match link.execute(Fixed(begin)).await {
            Ok(_) => return Ok(true),
            Err(error) if link.dialect().has_detail(&error, ErrorDetail::Unprepared) => {
                PREPARES_NO_BEGIN.store(true, Ordering::Relaxed);
            }
            Err(error) => return Err(error),
        }
    }
    M::begin(link.conn).await.map(|()| false)
}

/// Sends the settings that come before `BEGIN`. Returns false if a transaction is open that Diesel does not know of.
async fn prepare<M: Io>(
    link: &mut Link<'_, M>,
    dialect: Dialect,
    guard: Option<Guard>,
    isolation: Option<&'static str>,
) -> QueryResult<bool> {
    let told_by_begin = matches!(dialect.asks_whether_open(), OpenQuestion::Batch(_));
    if isolation.is_none() && !told_by_begin && raw::is_open(link).await? {
        return Ok(false);
    }
    // The isolation level comes first: inside a transaction it is refused before anything has changed. Each setting is sent by itself:
    // MariaDB's client waits forever if a query is killed between two statements of one text.
    for sql in [isolation, guard.map(|guard| guard.before)]
        .into_iter()
        .flatten()
    {
        // A prepared statement costs one round trip. A batch costs three on MySQL, because Diesel switches batches on and off around it.
        match link.execute(Fixed(sql)).await {
            Ok(_) => {}
            Err(error) if dialect.has_detail(&error, ErrorDetail::RefusedInside) => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Resets the isolation level if it was set for a transaction that did not begin. Otherwise the caller's next transaction would get it.
async fn forget_isolation<M: Io>(link: &mut Link<'_, M>, isolation: Option<&'static str>) {
    let dialect = link.dialect();
    let (Some(_), Some(sql)) = (isolation, dialect.forgets_isolation()) else {
        return;
    };
    match again_if_interrupted!(link, link.execute(Fixed(sql)).await) {
        Ok(_) => {}
        // Then no level was set.
        Err(error) if dialect.has_detail(&error, ErrorDetail::RefusedInside) => {}
        Err(_) => link.transaction_status().set_in_error(),
    }
}

/// Begins a savepoint, instead of a transaction, inside a transaction that Diesel does not know of. Each savepoint has its own name:
/// MySQL forgets an earlier savepoint of the same name.
async fn savepoint<M: Io>(
    link: &mut Link<'_, M>,
    nothing: OpenTransaction,
    options: TransactionOptions,
) -> QueryResult<OpenTransaction> {
    if options.outermost {
        return Err(DieselError::AlreadyInTransaction);
    }
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let sql = format!("SAVEPOINT diesel_sharded_{number}");
    link.batch_execute(&sql).await?;
    Ok(OpenTransaction {
        savepoint: Some(number),
        ..nothing
    })
}

/// Sends the settings that follow `BEGIN`.
async fn open<M: Io>(
    link: &mut Link<'_, M>,
    dialect: Dialect,
    options: TransactionOptions,
    guard: Option<Guard>,
    isolation: Option<&'static str>,
) -> QueryResult<()> {
    match isolation {
        Some(sql) => link.batch_execute(sql).await?,
        // Behind a generic `Conn`, Diesel's transaction manager can only say `BEGIN`. This replaces that transaction by an immediate
        // one; to Diesel, both are a transaction at depth one. If it fails, no transaction is open, and Diesel notices.
        None if !options.deferred && dialect.begins_immediate() => {
            link.batch_execute("COMMIT; BEGIN IMMEDIATE").await?
        }
        None => {}
    }
    match guard {
        Some(guard) => link.batch_execute(guard.at_begin).await,
        None => Ok(()),
    }
}

/// An open transaction or savepoint. [`commit`](Self::commit) or [`roll_back`](Self::roll_back) has to end it.
#[derive(Debug, Clone, Copy)]
#[must_use]
pub(crate) struct OpenTransaction {
    outer: u32,
    guard: Option<Guard>,
    /// The number of a savepoint in a transaction that Diesel does not know of.
    savepoint: Option<u64>,
    /// Whether statements begin and end it, without Diesel's knowledge.
    by_statements: bool,
    /// Whether `COMMIT` failed. Diesel then sends a `ROLLBACK` too, so more than one statement may have ended the transaction.
    commit_failed: bool,
}

impl OpenTransaction {
    /// Whether a [`Guard`] watches it.
    pub(crate) fn is_guarded(&self) -> bool {
        self.guard.is_some()
    }

    /// Whether it is a savepoint in a transaction that Diesel does not know of.
    pub(crate) fn is_in_anothers(&self) -> bool {
        self.savepoint.is_some()
    }

    /// Asks, if there is a guard, whether the transaction is still open. If it is not, returns a conflict: nothing was committed.
    pub(crate) async fn check<M: Io>(
        &self,
        link: &mut Link<'_, M>,
        dialect: Dialect,
    ) -> QueryResult<()> {
        let Some(guard) = self.guard else {
            return Ok(());
        };
        let alive = link.batch_execute(guard.before_commit).await;
        alive.map_err(|error| match dialect.classify(&error) {
            ErrorClass::Other => database_error(
                DatabaseErrorKind::SerializationFailure,
                format!("the transaction was aborted meanwhile: {error}"),
            ),
            _ => error,
        })
    }

    /// Commits it. After an error the caller still has to roll it back.
    pub(crate) async fn commit<M: Io>(&mut self, link: &mut Link<'_, M>) -> QueryResult<()> {
        let is_savepoint = self.is_savepoint();
        let ended = match self.by_statements {
            _ if is_savepoint => self.release(link).await,
            true => link.execute(Fixed("COMMIT")).await.map(drop),
            false => M::commit(link.conn).await,
        };
        let Err(error) = ended else {
            self.lift_guard(link).await;
            return Ok(());
        };
        self.commit_failed = true;
        let dialect = link.dialect();
        let may_have_ended = match is_savepoint {
            true => !dialect.ends_transaction(&error),
            false => self.outer > 0,
        };
        if may_have_ended
            && dialect.may_succeed_again(&error)
            && matches!(self.undo(link).await, Err(gone) if dialect.has_detail(&gone, ErrorDetail::SavepointGone))
        {
            // It was released before the interruption.
            if is_savepoint {
                return Ok(());
            }
            // Diesel believes that its savepoint is open: the caller would commit the work inside.
            link.transaction_status().set_in_error();
        }
        Err(error)
    }

    /// Whether it is a savepoint that Diesel does not know of.
    fn is_savepoint(&self) -> bool {
        self.savepoint.is_some() || (self.by_statements && self.outer > 0)
    }

    /// Commits it if the work succeeded. Rolls it back if the work or the commit failed.
    pub(crate) async fn end<T, M: Io>(
        mut self,
        link: &mut Link<'_, M>,
        done: QueryResult<T>,
    ) -> QueryResult<T> {
        let done = match done {
            Ok(value) => self.commit(link).await.map(|()| value),
            Err(error) => Err(error),
        };
        if done.is_err() {
            self.roll_back(link).await;
        }
        done
    }

    /// Rolls it back if it is still open; after a failed `COMMIT`, Diesel may have rolled back already. If the rollback fails, Diesel marks
    /// the connection broken, and a pool drops it. That error is not reported: the one that led here says more.
    pub(crate) async fn roll_back<M: Io>(&self, link: &mut Link<'_, M>) {
        let dialect = link.dialect();
        if self.is_savepoint() {
            if self.take_back(link).await {
                let _ = self.release(link).await; // a savepoint that stays ends with the caller's transaction
            }
            return;
        }
        match depth(link) {
            _ if self.by_statements => clean_up(link, "ROLLBACK").await,
            Ok(open) if open > self.outer => {
                if let Some(guard) = self.guard {
                    let _ = link.batch_execute(guard.rollback).await; // Diesel's rollback shows whether the connection is usable
                }
                // A nested transaction that failed earlier may hide this failure from Diesel. SQLite may have ended the transaction at an
                // error; Diesel notices that.
                if M::roll_back(link.conn).await.is_err()
                    && self.outer == 0
                    && !matches!(depth(link), Ok(0))
                {
                    link.transaction_status().set_in_error();
                }
            }
            // After an interrupted COMMIT, diesel_async believes that the transaction has ended.
            Ok(_) if dialect.allows_idle_rollback() && self.outer == 0 => {
                clean_up(link, "ROLLBACK").await;
            }
            Ok(_) if dialect.begins_by_statement() => {
                self.take_back(link).await;
            }
            _ => {}
        }
        self.lift_guard(link).await;
        if self.commit_failed || self.guard.is_some() {
            raw::note_surplus(link).await;
        }
    }

    /// Rolls back to the savepoint. If that fails, breaks the connection: the caller would commit the work since then. Returns whether the
    /// savepoint still exists.
    async fn take_back<M: Io>(&self, link: &mut Link<'_, M>) -> bool {
        let undone = self.undo(link).await;
        if let Err(error) = &undone {
            // If the savepoint is gone, a conflict has ended the whole transaction.
            if !link.dialect().has_detail(error, ErrorDetail::SavepointGone) {
                link.transaction_status().set_in_error();
            }
        }
        undone.is_ok()
    }

    /// Rolls back to the savepoint, and tries again while that is interrupted.
    async fn undo<M: Io>(&self, link: &mut Link<'_, M>) -> QueryResult<()> {
        let savepoint = match self.savepoint {
            Some(number) => format!("ROLLBACK TO SAVEPOINT diesel_sharded_{number}"),
            None => format!("ROLLBACK TO SAVEPOINT diesel_savepoint_{}", self.outer),
        };
        again_if_interrupted!(
            link,
            match self.savepoint {
                None if self.by_statements => {
                    let undo = Fixed("ROLLBACK TO SAVEPOINT diesel_sharded_own");
                    link.execute(undo).await.map(drop)
                }
                _ => link.batch_execute(&savepoint).await,
            }
        )
    }

    async fn release<M: Io>(&self, link: &mut Link<'_, M>) -> QueryResult<()> {
        match self.savepoint {
            Some(number) => {
                let sql = format!("RELEASE SAVEPOINT diesel_sharded_{number}");
                link.batch_execute(&sql).await
            }
            None => {
                let release = Fixed("RELEASE SAVEPOINT diesel_sharded_own");
                link.execute(release).await.map(drop)
            }
        }
    }

    /// Removes the guard after the transaction. If that fails, marks the connection broken: without autocommit it would lose later
    /// statements.
    async fn lift_guard<M: Io>(&self, link: &mut Link<'_, M>) {
        let Some(guard) = self.guard else {
            return;
        };
        let lifted = match depth(link) {
            Ok(0) => link.batch_execute(guard.after).await.is_ok(),
            _ => false,
        };
        if !lifted {
            link.transaction_status().set_in_error();
        }
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use super::*;
    use crate::conflict::Conflict;
    use crate::connection::{in_transaction, now};
    use diesel::Connection;

    /// A guard in SQL that SQLite understands.
    fn guarded(after: &'static str) -> (diesel::SqliteConnection, OpenTransaction) {
        use diesel::connection::SimpleConnection;
        let mut conn = diesel::SqliteConnection::establish(":memory:").unwrap();
        let mysqls = Dialect::Mysql.guard().unwrap();
        let guard = Guard {
            rollback: "SELECT 1",
            after,
            ..mysqls
        };
        let options = TransactionOptions::guarded();
        let begun = now(begin(&mut Link::blocking(&mut conn), options)).unwrap();
        assert!(!begun.is_guarded());
        conn.batch_execute(guard.at_begin).unwrap();
        let guard = Some(guard);
        (conn, OpenTransaction { guard, ..begun })
    }

    #[test]
    fn a_transaction_that_is_gone_is_a_conflict() {
        use diesel::connection::SimpleConnection;
        let (mut conn, mut begun) = guarded("SELECT 1");
        let link = &mut Link::blocking(&mut conn);
        assert_eq!(now(begun.check(link, Dialect::Mysql)), Ok(()));
        assert_eq!(now(begun.commit(link)), Ok(()));
        let (mut conn, begun) = guarded("SELECT 1");
        conn.batch_execute("ROLLBACK; BEGIN").unwrap(); // as if without autocommit
        let link = &mut Link::blocking(&mut conn);
        let gone = now(begun.check(link, Dialect::Mysql)).unwrap_err();
        let conflict = ErrorClass::Conflict(Conflict::Deadlock);
        assert_eq!(Dialect::Mysql.classify(&gone), conflict);
        now(begun.roll_back(link));
        assert_eq!(in_transaction(link), Ok(false));
    }

    /// The commit stands, and the connection accepts no more statements.
    #[test]
    fn a_connection_whose_guard_stays_is_broken() {
        for commits in [true, false] {
            let (mut conn, mut begun) = guarded("no such statement");
            let link = &mut Link::blocking(&mut conn);
            match commits {
                true => assert_eq!(now(begun.commit(link)), Ok(())),
                false => now(begun.roll_back(link)),
            }
            assert!(in_transaction(link).is_err());
        }
    }
}
