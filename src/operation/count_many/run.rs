//! Many rows are counted on in one transaction.

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
use super::ladder::{Addition, Climbed, Rung, count_together};
use super::missing::InsertMissing;

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
        let mut rung = match inside && dialect.missing_row_locks_gap() {
            true => Rung::Creating,
            false => Rung::Together,
        };
        loop {
            let (mut is_first, mut next) = (true, rung);
            let repeated = RetryLoop::transaction(link, retry.clone(), options)?;
            let counted = retry_loop!(link, repeated, {
                if !std::mem::take(&mut is_first) {
                    counting.leave_shards();
                }
                let climbed = counting.attempt::<DB, _, _>(link, rung).await;
                climbed.and_then(|climbed| {
                    climbed.map_err(|higher| {
                        next = higher;
                        DieselError::RollbackTransaction
                    })
                })
            });
            match counted {
                Err(DieselError::RollbackTransaction) if next != rung => rung = next,
                counted => {
                    return counted
                        .map_err(|error| explain::<C::Table, DB>(&link.backend(), error));
                }
            }
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

    /// One attempt, in an open transaction, which has to be undone where another rung is the result.
    async fn attempt<DB, M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        rung: Rung,
    ) -> QueryResult<Result<CountedMany<C::Table>, Rung>>
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
            let missing = match rung {
                Rung::EachAlone => self.count_each_alone::<DB, _, _>(link, amounts).await?,
                _ => {
                    let additions = amounts.iter().zip(choices);
                    let additions = additions.map(|((key, n), choice)| Addition {
                        key: key.clone(),
                        n: *n,
                        shard: choice.shard(),
                    });
                    let additions: Vec<_> = additions.collect();
                    match count_together::<C, DB, _, _>(link, rung, &additions).await? {
                        Climbed::Counted { missing } => missing,
                        Climbed::Again(rung) => return Ok(Err(rung)),
                    }
                }
            };
            counted.rows += amounts.len() - missing.len();
            for (key, n) in missing.into_iter().map(|number| &amounts[number]) {
                match self.insert.insert(key) {
                    Some(insert) => {
                        let mut add =
                            ready_to_add::<C, DB>(key.clone(), *n).or_insert(insert, self.shards);
                        counted.rows += add.count(link).await?;
                    }
                    None => counted.missing.push(key.clone()),
                }
            }
        }
        Ok(Ok(counted))
    }

    /// Counts on these keys one by one. Returns the numbers of those that have no row.
    async fn count_each_alone<DB, M, Conn>(
        &self,
        link: &mut Link<'_, M, Conn>,
        amounts: &[(<C::Table as ShardedTable>::Key, i64)],
    ) -> QueryResult<Vec<usize>>
    where
        C: IntegerField<DB>,
        C::Table: KeyedTable<DB>,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let mut missing = vec![];
        for (number, (key, n)) in amounts.iter().enumerate() {
            if ready_to_add::<C, DB>(key.clone(), *n).count(link).await? == 0 {
                missing.push(number);
            }
        }
        Ok(missing)
    }
}
