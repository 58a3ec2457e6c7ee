//! Shards and parents that are missing when a count comes to them.

use super::Count;
use crate::connection::Io;
use crate::engine::failure::AttemptError;
use crate::engine::statement::{Sender, Statement};
use crate::error::Error;
use crate::observe::CountObserver;

/// How often an attempt creates a shard that a fold removes before the count. Then it creates the shard in a transaction.
const MOST_CREATED: u8 = 3;

impl<M, Conn, S, O> Count<'_, '_, M, Conn, S, O>
where
    M: Io<Conn>,
    S: Sender<M, Conn>,
    O: CountObserver,
{
    /// Creates the shard of a parent named by its key, and counts on it.
    ///
    /// A shard that is created at zero changes no total and needs no transaction, but a fold may remove it before the count. Then
    /// it is created again, and at last in a transaction, in which it is locked.
    pub(super) async fn create_and_count(&mut self) -> Result<usize, AttemptError> {
        if self.creates_alone() {
            for _ in 0..MOST_CREATED {
                let counted = match self.create().await? {
                    // Another connection has created it, or there is no such parent.
                    0 => self.send(Statement::CountPicked).await?,
                    _ => self.count_created().await?,
                };
                if counted > 0 || self.send(Statement::FindParent).await? == 0 {
                    return Ok(counted);
                }
            }
        }
        // A row may be inserted later on, which has to be taken back if the count fails.
        if !self.retry.is_open() && (!self.retry.is_inside() || self.plan.inserts) {
            self.begin().await?;
        }
        self.create().await?;
        self.count_created().await
    }

    fn creates_alone(&self) -> bool {
        self.retry.commits_by_itself() && self.plan.dialect.creates_alone() && !self.plan.inserts
    }

    /// Counts by key on a shard that was created.
    async fn count_created(&mut self) -> Result<usize, AttemptError> {
        match self.count_timed(Statement::CountByKey).await? {
            // The shards' table compares keys in another way than the parents' does, or there is no such parent.
            0 => self.send(Statement::CountPicked).await,
            counted => Ok(counted),
        }
    }

    /// Inserts the parent that is missing, and counts on it.
    pub(super) async fn insert_and_count(&mut self) -> Result<usize, AttemptError> {
        loop {
            // An insert that did nothing, though no parent is found, says why the second time.
            let insert = match self.plan.dialect.inserts_unless_there() && self.lost_races == 0 {
                true => Statement::InsertUnlessThere,
                false => Statement::Insert,
            };
            let inserted = self.send(insert).await? > 0;
            if !inserted {
                // A trigger that keeps the row out, or a query that finds none: there is nothing to count on.
                if insert == Statement::Insert {
                    return Ok(0);
                }
                self.lost_races += 1;
            }
            let counted = match self.plan.by_key {
                true => {
                    self.create().await?;
                    self.count_created().await?
                }
                false => self.count().await?,
            };
            if counted > 0 {
                return Ok(counted);
            }
            if inserted {
                return Err(AttemptError::Application(Error::InsertedOther.into()));
            }
        }
    }
}
