//! Many rows are counted on in one transaction.

use std::collections::BTreeSet;

use diesel::query_builder::QueryFragment;
use diesel::result::{Error as DieselError, QueryResult};

use crate::backend::ShardedBackend;
use crate::connection::{Link, LoadIo, TransactionOptions, in_transaction};
use crate::engine::{KEYS_IN_A_STATEMENT, KeyedTable, RetryLoop, explain, retry_loop};
use crate::error::Error;
use crate::model::{ShardedColumn, ShardedTable};
use crate::operation::row_counter::{IntegerField, ready_to_add};
use crate::operation::shard_counts;
use crate::placement::{Choice, Process, Subject};
use crate::policy::Attempts;

use super::builder::{CountMany, CountedMany};
use super::missing::InsertMissing;
use super::on_shard::{OnShard, count_shards, create_shards, there};

/// How the keys are counted on. Each mode costs more than the one before, and follows it where that cannot count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Many keys in one statement; all shards exist.
    Together,
    /// The same, after another statement that creates the missing shards.
    Creating,
    /// Key by key, since some of them are one to the database.
    EachAlone,
}

impl<C: ShardedColumn, Ins, Run> CountMany<C, Ins, Run> {
    pub(super) async fn count<DB, M, Conn>(
        self,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<CountedMany<C::Table>>
    where
        C: IntegerField<DB>,
        C::Table: KeyedTable<DB> + ShardedTable<Key: Ord, KeyValues: QueryFragment<DB>>,
        Ins: InsertMissing<C::Table, DB>,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let amount = |(key, n)| Some((key, i64::try_from(n).ok()?));
        let amounts: Option<Vec<_>> = self.amounts.into_iter().map(amount).collect();
        let Some(amounts) = amounts else {
            let source =
                DieselError::QueryBuilderError("amounts add up to more than an i64".into());
            return Err(Error::Overflow { source }.into());
        };
        let retry = self.retry.unwrap_or_default();
        let (dialect, inside) = (link.dialect(), in_transaction(link)?);
        let mut counting = Counting::<C, Ins> {
            amounts,
            insert: self.insert,
            shards: shard_counts::known::<C::Table>(std::iter::once(C::NAME)),
            choices: vec![],
            attempts: Attempts::start(retry.clone()),
        };
        counting.choose(link)?;
        let options = TransactionOptions::of_a_count(dialect);
        let mut mode = match inside && dialect.missing_row_locks_gap() {
            true => Mode::Creating,
            false => Mode::Together,
        };
        loop {
            let mut is_first = true;
            let repeated = RetryLoop::transaction(link, retry.clone(), options)?;
            let counted = retry_loop!(link, repeated, {
                if !std::mem::take(&mut is_first) {
                    counting.leave_shards();
                }
                counting.attempt::<DB, _, _>(link, mode).await
            });
            mode = match (counted, mode) {
                (Err(DieselError::RollbackTransaction), Mode::Together) => Mode::Creating,
                (Err(DieselError::RollbackTransaction), Mode::Creating) => Mode::EachAlone,
                (counted, _) => {
                    return counted
                        .map_err(|error| explain::<C::Table, DB>(&link.backend(), error));
                }
            };
        }
    }
}

/// Counts on many rows, under way.
struct Counting<C: ShardedColumn, Ins> {
    amounts: Vec<(<C::Table as ShardedTable>::Key, i64)>,
    insert: Ins,
    /// How many shards there are to choose from.
    shards: u16,
    /// The shard of each key, in their order.
    choices: Vec<Choice>,
    attempts: Attempts,
}

impl<C: ShardedColumn, Ins> Counting<C, Ins> {
    /// Chooses a shard for each key, as a count of its own would.
    fn choose<DB, M, Conn>(&mut self, link: &mut Link<'_, M, Conn>) -> QueryResult<()>
    where
        C: IntegerField<DB>,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        for (key, n) in &self.amounts {
            let subject = Subject {
                timed: false, // a wait may have been for any of the keys
                ..ready_to_add::<C, DB>(key.clone(), *n).plan(link)?.subject()
            };
            let choice = Choice::new(subject, Process::this(), &self.attempts);
            self.choices.push(choice);
        }
        Ok(())
    }

    /// After a conflict, which may have been on any of the keys, the next attempt takes another shard of each.
    fn leave_shards(&mut self) {
        for choice in &mut self.choices {
            choice.met_conflict(&self.attempts);
            choice.again(&self.attempts);
        }
    }

    /// One attempt, in an open transaction. [`RollbackTransaction`](DieselError::RollbackTransaction) asks for the next mode.
    async fn attempt<DB, M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        mode: Mode,
    ) -> QueryResult<CountedMany<C::Table>>
    where
        C: IntegerField<DB>,
        C::Table: KeyedTable<DB> + ShardedTable<Key: Ord, KeyValues: QueryFragment<DB>>,
        Ins: InsertMissing<C::Table, DB>,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let mut counted = CountedMany::nothing();
        let chunks = self.amounts.chunks(KEYS_IN_A_STATEMENT);
        for (amounts, choices) in chunks.zip(self.choices.chunks(KEYS_IN_A_STATEMENT)) {
            let missing = match mode {
                Mode::EachAlone => self.count_each_alone::<DB, _, _>(link, amounts).await?,
                _ => {
                    let shards = choices.iter().map(Choice::shard);
                    let on_shards = OnShard::group(shards.zip(amounts.iter().cloned()));
                    self.count_together::<DB, _, _>(link, mode, amounts, on_shards)
                        .await?
                }
            };
            counted.rows += amounts.len() - missing.len();
            for (key, n) in missing {
                match self.insert.insert(&key) {
                    Some(insert) => {
                        let mut add =
                            ready_to_add::<C, DB>(key.clone(), n).or_insert(insert, self.shards);
                        counted.rows += add.count(link).await?;
                    }
                    None => counted.missing.push(key),
                }
            }
        }
        Ok(counted)
    }

    /// Counts on these keys by one statement. Returns those that have no row.
    async fn count_together<DB, M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        mode: Mode,
        amounts: &[(<C::Table as ShardedTable>::Key, i64)],
        on_shards: Vec<OnShard<<C::Table as ShardedTable>::Key>>,
    ) -> QueryResult<Vec<(<C::Table as ShardedTable>::Key, i64)>>
    where
        C: IntegerField<DB>,
        C::Table: KeyedTable<DB> + ShardedTable<Key: Ord, KeyValues: QueryFragment<DB>>,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        if mode == Mode::Creating {
            for on in &on_shards {
                let keys = on.amounts.iter().map(|(key, _)| key.clone()).collect();
                create_shards::<C::Table, DB, _, _>(link, keys, on.shard).await?;
            }
        }
        let counted = count_shards::<C, DB, _, _>(link, on_shards).await?;
        if counted == amounts.len() {
            return Ok(vec![]);
        }
        if mode == Mode::Together {
            return Err(DieselError::RollbackTransaction);
        }
        let keys = amounts.iter().map(|(key, _)| key.clone()).collect();
        let found = there::<C::Table, DB, _, _>(link, keys).await?;
        let found: BTreeSet<_> = found.into_iter().collect();
        let unfound = amounts.iter().filter(|(key, _)| !found.contains(key));
        let missing: Vec<_> = unfound.cloned().collect();
        if !found.is_empty() && !missing.is_empty() {
            // One that is there now is another name of a row that was found, or was inserted meanwhile.
            let keys = missing.iter().map(|(key, _)| key.clone()).collect();
            if !there::<C::Table, DB, _, _>(link, keys).await?.is_empty() {
                return Err(DieselError::RollbackTransaction);
            }
        }
        match counted + missing.len() == amounts.len() {
            true => Ok(missing),
            false => Err(DieselError::RollbackTransaction),
        }
    }

    /// Counts on these keys one by one. Returns those that have no row.
    async fn count_each_alone<DB, M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        amounts: &[(<C::Table as ShardedTable>::Key, i64)],
    ) -> QueryResult<Vec<(<C::Table as ShardedTable>::Key, i64)>>
    where
        C: IntegerField<DB>,
        C::Table: KeyedTable<DB>,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let mut missing = vec![];
        for (key, n) in amounts {
            if ready_to_add::<C, DB>(key.clone(), *n).count(link).await? == 0 {
                missing.push((key.clone(), *n));
            }
        }
        Ok(missing)
    }
}
