//! The number of one field or counter, and how the database keeps it.

use std::borrow::Cow;
use std::marker::PhantomData;

use diesel::prelude::*;

use super::sql::{DeleteNumber, Only, UpsertNumber, explained, load, within};
use crate::backend::BackendOf;
use crate::connection::{
    Blocking, Io, Link, LoadIo, TransactionOptions, in_any_transaction, paired,
};
use crate::engine::{RetryLoop, retry_loop};
use crate::error::Error;
use crate::model::{MAX_SHARDS, ShardedTable, TotalColumn};
use crate::policy::RetryPolicy;

/// The number of shards of one field, or of one named counter, as the database keeps it.
///
/// A change takes effect in this process at once, except inside a transaction. Other processes see it when they
/// [`refresh`](super::refresh()), at the interval at which they [`follow`](super::follow()), and for named counters after 10 s,
/// outside transactions. No total changes. If the database holds no number, the derive's number is used. An update of several
/// fields at once chooses from the largest of their numbers.
#[derive(Debug, Clone)]
#[must_use = "a number does nothing until it is read or changed"]
pub struct ShardCount<Run = Blocking> {
    number: Number,
    run: PhantomData<fn() -> Run>,
}

impl<Run> ShardCount<Run> {
    /// The largest number of shards.
    pub const MAX: u16 = MAX_SHARDS;

    /// The number of a sharded field.
    pub fn of<C: TotalColumn>(_column: C) -> Self {
        Self::of_number(Number {
            table: Cow::Borrowed(<C::Table as ShardedTable>::SHARDS_TABLE.as_str()),
            counter: C::NAME.into(),
            default: <C::Table as ShardedTable>::SHARDS,
        })
    }

    pub(crate) fn of_number(number: Number) -> Self {
        ShardCount {
            number,
            run: PhantomData,
        }
    }
}

paired! {
    impl<> ShardCount<Run>
    where
        DB: BackendOf<Conn>,
    {
        /// The number in the database.
        ///
        /// ```sql
        /// SELECT … FROM "diesel_sharded_shard_numbers" WHERE "shards_table" = $1 AND "counter" = $2
        /// ```
        ///
        /// # Errors
        /// The database's; [`MissingShardsTable`](Error::MissingShardsTable) if the library's migrations have not run.
        pub fn get(&self, link: Link) -> QueryResult<u16> {
            self.number.get(link).await
        }

        /// Raises the number to `n`, but never lowers it, and returns the resulting number. Racing calls leave the largest.
        ///
        /// ```sql
        /// INSERT INTO "diesel_sharded_shard_numbers" ("shards_table", "counter", "shards") VALUES ($1, $2, $3)
        /// ON CONFLICT ("shards_table", "counter") DO UPDATE SET "shards" =
        ///     CASE WHEN "diesel_sharded_shard_numbers"."shards" < $4 THEN $5 ELSE "diesel_sharded_shard_numbers"."shards" END
        /// -- MySQL, MariaDB: ON DUPLICATE KEY UPDATE `shards` = CASE …
        /// ```
        ///
        /// # Errors
        /// [`InvalidShardCount`](Error::InvalidShardCount) unless `n` is from 1 to 4096; else as [`get`](Self::get).
        pub fn increase(&self, link: Link, n: u16) -> QueryResult<u16> {
            self.number.write(n, true, link).await
        }

        /// Sets the number to `n`, up or down. Shards beyond it are still read; [`fold`](crate::fold()) removes them.
        ///
        /// ```sql
        /// INSERT INTO "diesel_sharded_shard_numbers" ("shards_table", "counter", "shards") VALUES ($1, $2, $3)
        /// ON CONFLICT ("shards_table", "counter") DO UPDATE SET "shards" = $4
        /// -- MySQL, MariaDB: ON DUPLICATE KEY UPDATE `shards` = ?
        /// ```
        ///
        /// # Errors
        /// As [`increase`](Self::increase).
        pub fn resize(&self, link: Link, n: u16) -> QueryResult<()> {
            self.number.write(n, false, link).await.map(drop)
        }
    }
}

/// Whose number it is, and what it is where nobody has changed it.
#[derive(Debug, Clone)]
pub(crate) struct Number {
    pub(super) table: Cow<'static, str>,
    pub(super) counter: Vec<u8>,
    pub(super) default: u16,
}

impl Number {
    /// Of a field that a tool has found in the database, where the derive's number is not known.
    pub(crate) fn described(table: &str, field: &[u8]) -> Self {
        Number {
            table: Cow::Owned(table.to_owned()),
            counter: field.into(),
            default: 1, // `increase` begins with no less
        }
    }

    /// Of one counter among others in the same column. The zero keeps it apart from a field's: no column's name has one.
    pub(crate) fn of_counter<T: ShardedTable>(counter: &[u8]) -> Self {
        Number {
            table: Cow::Borrowed(T::SHARDS_TABLE.as_str()),
            counter: [b"\0", counter].concat(),
            default: T::SHARDS,
        }
    }

    pub(crate) async fn get<M, Conn>(&self, link: &mut Link<'_, M, Conn>) -> QueryResult<u16>
    where
        M: LoadIo<Conn>,
    {
        let reading = RetryLoop::read(link, RetryPolicy::default())?;
        retry_loop!(link, reading, self.read(false, link).await)
    }

    async fn read<M, Conn>(&self, locked: bool, link: &mut Link<'_, M, Conn>) -> QueryResult<u16>
    where
        M: LoadIo<Conn>,
    {
        let only = Only::Number(self, locked);
        let number = load(link, only).await?.into_iter().next();
        Ok(number.map_or(self.default, |(_, _, number)| within(number)))
    }

    pub(crate) async fn write<M, Conn>(
        &self,
        n: u16,
        only_up: bool,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<u16>
    where
        M: LoadIo<Conn>,
    {
        if !(1..=MAX_SHARDS).contains(&n) {
            return Err(Error::InvalidShardCount { number: n }.into());
        }
        let first = match only_up {
            true => n.max(self.default),
            false => n,
        };
        let inside = in_any_transaction(link).await?;
        let options = TransactionOptions::guarded();
        let repeated = RetryLoop::transaction(link, RetryPolicy::default(), options)?;
        let number = retry_loop!(link, repeated, {
            let upsert = UpsertNumber {
                of: self,
                first: i32::from(first),
                then: i32::from(n),
                only_up,
            };
            let upserted = link.execute(upsert).await;
            upserted.map_err(|error| explained(link, error))?;
            self.read(true, link).await
        })?;
        if !inside {
            self.learn(number); // what a caller's transaction changes is not committed yet
        }
        Ok(number)
    }

    /// Forgets the number, so that the default holds again.
    pub(crate) async fn forget<M, Conn>(&self, link: &mut Link<'_, M, Conn>) -> QueryResult<()>
    where
        M: Io<Conn>,
    {
        let deleted = link.execute(DeleteNumber(self)).await;
        deleted.map_err(|error| explained(link, error))?;
        self.unlearn();
        Ok(())
    }
}
