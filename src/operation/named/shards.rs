//! How many shards a named counter has.

use diesel::prelude::*;

use super::backend::CounterBackend;
use super::counter::Counter;
use super::table::counters;
use crate::connection::{Link, LoadIo, paired};
#[cfg(doc)]
use crate::error::Error;
use crate::operation::shard_counts::Number;

paired! {
    impl<> Counter<Run>
    where
        DB: CounterBackend<Conn, Run>,
    {
        /// How many shards writers choose from; 128 unless it was changed.
        ///
        /// # Errors
        /// See [`Counter`](Self#errors).
        pub fn shards(&self, link: Link) -> QueryResult<u16> {
            self.key()?;
            self.shard_count().get(link).await
        }

        /// Raises the number of shards to `n`, but never lowers it, and returns the resulting number. It takes effect in this process
        /// at once, in others when they follow: see [`shard_counts`](crate::shard_counts).
        ///
        /// # Errors
        /// See [`Counter`](Self#errors); [`InvalidShardCount`](Error::InvalidShardCount) unless `n` is from 1 to 4096.
        pub fn increase_shards(&self, link: Link, n: u16) -> QueryResult<u16> {
            self.key()?;
            self.shard_count().write(n, true, link).await
        }

        /// Sets the number of shards, up or down, and folds the counter, so that shards beyond the number are removed. No total
        /// changes.
        ///
        /// # Errors
        /// As [`increase_shards`](Self::increase_shards).
        pub fn resize(&self, link: Link, n: u16) -> QueryResult<()> {
            self.resized(n, link).await
        }
    }
}

impl<Run> Counter<Run> {
    pub(crate) async fn resized<DB, M, Conn>(
        &self,
        n: u16,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<()>
    where
        M: LoadIo<Conn, Backend = DB>,
        DB: CounterBackend<Conn, M>,
    {
        let key = self.key()?;
        self.shard_count().write(n, false, link).await?;
        DB::fold(link.conn, key, n).await.map(drop)
    }

    pub(crate) fn shard_count(&self) -> Number {
        Number::of_counter::<counters::table>(self.name.as_bytes())
    }
}
