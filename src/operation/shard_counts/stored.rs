//! The number in the database, read and changed.

use diesel::connection::LoadConnection;
use diesel::prelude::*;

use super::number::ShardCount;
use super::sql::{DeleteNumber, Only, UpsertNumber, explained, load, within};
use crate::backend::BackendOf;
use crate::connection::{Io, Link, LoadIo, TransactionOptions, in_any_transaction, now};
use crate::engine::{RetryLoop, retry_loop};
use crate::error::Error;
use crate::policy::RetryPolicy;

impl ShardCount {
    /// The number in the database.
    ///
    /// ```sql
    /// SELECT … FROM "diesel_sharded_shard_numbers" WHERE "shards_table" = $1 AND "counter" = $2
    /// ```
    ///
    /// # Errors
    /// The database's; [`MissingShardsTable`](Error::MissingShardsTable) if the library's migrations have not run.
    pub fn get<Conn>(&self, conn: &mut Conn) -> QueryResult<u16>
    where
        Conn: LoadConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        now(self.number(&mut Link::blocking(conn)))
    }

    pub(crate) async fn number<M, Conn>(&self, link: &mut Link<'_, M, Conn>) -> QueryResult<u16>
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
    pub fn increase<Conn>(&self, n: u16, conn: &mut Conn) -> QueryResult<u16>
    where
        Conn: LoadConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        now(self.write(n, true, &mut Link::blocking(conn)))
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
    pub fn resize<Conn>(&self, n: u16, conn: &mut Conn) -> QueryResult<()>
    where
        Conn: LoadConnection,
        Conn::Backend: BackendOf<Conn>,
    {
        now(self.write(n, false, &mut Link::blocking(conn))).map(drop)
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
        if !(1..=Self::MAX).contains(&n) {
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
