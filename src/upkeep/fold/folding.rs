//! Folding batch by batch, in key order, with no wait for a lock, or a short one.

use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::time::Instant;

use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{IntoUpdateTarget, QueryFragment, QueryId};
use diesel::result::Error as DieselError;
use diesel::sql_types::Integer;

use super::builder::{Fold, Folded};
use super::pace::Pace;
use crate::backend::{Dialect, ShardedBackend, Strength};
use crate::conflict::{Conflict, Failure};
use crate::connection::{Link, LoadIo, in_any_transaction};
use crate::engine::{
    KeyedTable, LockedParents, Moved, Parents, RetryLoop, Shards, TRIES_TO_LOCK, explain_keys,
    explain_of, locking, retry_loop,
};
use crate::error::Error;
use crate::model::{SHARD, ShardedTable, ShardsColumn};
use crate::policy::RetryPolicy;
use crate::query_builder::{KeysAre, Names, Sql, bind, sql, statements};
use crate::tables::shards_table::check_triggers;
use crate::unfit::Unfit;
use crate::{observe, shard_counts};

impl<Q: IntoUpdateTarget<Table: ShardedTable>, Run> Fold<Q, Run> {
    pub(crate) async fn folded<DB, T, W, M, Conn>(
        self,
        link: &mut Link<'_, M, Conn>,
        progress: &mut impl FnMut(&Folded<T>) -> ControlFlow<()>,
    ) -> QueryResult<Folded<T>>
    where
        Q: IntoUpdateTarget<Table = T, WhereClause = W>,
        T: KeyedTable<DB>,
        T::PrimaryKey: Expression,
        W: QueryFragment<DB> + QueryId,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        let inside = in_any_transaction(link).await?;
        let keep = match self.keep_shards {
            Some(number) => number,
            None => shard_counts::wished::<T, _, _>(link, inside).await?,
        };
        let folding = Folding {
            of: *T::TABLE,
            keep: Some(keep),
            cold_below: self.cold_below.filter(|shards| *shards > 0),
            retry: self.retry.unwrap_or_default(),
            dialect: link.dialect(),
            inside,
        };
        let batches = Batches {
            filter: self.query.into_update_target().where_clause,
            batch: self.batch,
            per_second: self.per_second,
        };
        let mut folded = Folded::nothing(T::FIELDS, self.after);
        let folding = folding.fold_all(&batches, &mut folded, link, progress);
        folding.await.map(|()| folded)
    }
}

/// The parents that are folded, and how many of them at once.
pub(crate) struct Batches<W> {
    pub(crate) filter: W,
    pub(crate) batch: usize,
    /// Without effect in a caller's transaction.
    pub(crate) per_second: Option<u32>,
}

impl<P> Folding<P> {
    /// Parents with shards from this one on may have shards to remove.
    fn first_to_remove(&self) -> Option<u16> {
        self.cold_below.map_or(self.keep, |_| Some(0))
    }

    /// A parent that is to have no shards keeps no rests in them.
    fn keeps_rests(&self) -> bool {
        self.keep != Some(0)
    }

    /// Goes on after the last parent that was `folded`, to the end or until `progress` breaks off.
    pub(crate) async fn fold_all<T, DB, W, M, Conn>(
        &self,
        batches: &Batches<W>,
        folded: &mut Folded<T, P::Key>,
        link: &mut Link<'_, M, Conn>,
        progress: &mut impl FnMut(&Folded<T, P::Key>) -> ControlFlow<()>,
    ) -> QueryResult<()>
    where
        P: Parents<DB>,
        W: QueryFragment<DB> + QueryId,
        M: LoadIo<Conn, Backend = DB>,
        DB: ShardedBackend,
    {
        if self.dialect.has_triggers() {
            let looking = RetryLoop::read(link, self.retry.clone())?;
            let names = self.of.names();
            retry_loop!(link, looking, check_triggers(names, link).await)?;
        }
        let per_second = batches.per_second.filter(|_| !self.inside);
        let mut pace = Pace::at_most_per_second(per_second, batches.batch);
        let batch = pace.batch();
        loop {
            let began = Instant::now();
            let mut due = began;
            let picking = RetryLoop::decision(link, self.retry.clone())?;
            let keys = retry_loop!(link, picking, {
                let after = folded.last.as_ref().map(|last| self.of.is_after(last));
                let pick = PickFoldable {
                    names: self.of.names(),
                    filter: &batches.filter,
                    after: after.as_ref().map(|after| after as &dyn QueryFragment<DB>),
                    first_to_remove: self.first_to_remove().map(i32::from),
                    keeps_rests: self.keeps_rests(),
                    limit: batch as i64,
                    key_sql: PhantomData,
                };
                P::load(link, pick).await
            });
            let keys =
                keys.map_err(|error| explain_keys(self.of.names(), &link.backend(), error))?;
            folded.finished = keys.len() < batch;
            if let Some(last) = keys.last().cloned() {
                let parents = keys.len();
                let table = self.of.names().shards_table.as_str();
                let told = observe::fold(self.dialect, table, parents);
                let moving = self.fold(keys, folded, link);
                told.within(moving).await?;
                folded.last = Some(last);
                folded.looked_at += parents as u64;
                if progress(folded).is_break() {
                    return Ok(());
                }
                due = pace.next(parents, began, Instant::now());
            }
            if folded.finished {
                return Ok(());
            }
            let wait = due.saturating_duration_since(Instant::now());
            M::sleep(&self.retry, wait).await;
        }
    }
}

statements! {
    /// Finds parents that have something to fold [on the primary](Names::on_primary); see [`fold`](fold()).
    ///
    /// Without a filter the shards table alone is read, so that rows without shards cost nothing.
    ///
    /// With a filter not `EXISTS`: planners turn that into a join that reads the whole shards table for every batch.
    ///
    /// A shard that holds a rest is no work: neither the base nor a removal takes it.
    struct PickFoldable<'a, ST> {
        names: Names<'a, DB>,
        filter: &'a dyn QueryFragment<DB>,
        after: Option<&'a dyn QueryFragment<DB>>,
        first_to_remove: Option<i32>,
        keeps_rests: bool,
        limit: i64,
        key_sql: PhantomData<ST>,
    }: Query<ST>;
    |self, mut out| {
        let table = self.names;
        let next = table.next_keys(self.after.as_ref(), &self.limit);
        table.on_primary().push(out.reborrow())?;
        if self.filter.is_noop(out.backend())? {
            let has_work = self.has_work(|name| table.under_alias().column(name));
            return table.keys_of_shards(sql! { has_work, next }).push(out);
        }
        sql!(out;
            table.select_keys_as_parent(&self.filter), " WHERE (SELECT 1 FROM ", table.under_alias().shards_of_parent(None),
            " AND ", self.has_work(|name| table.shards_column(name)), " LIMIT 1) IS NOT NULL", next)
    }
}

impl<ST, DB: ShardedBackend> PickFoldable<'_, ST, DB> {
    /// `(table.field <> 0 OR … OR table.shard >= $n)`, where `column` writes a column of the shards table.
    fn has_work<'b, C: Sql<'b, DB>>(&'b self, column: impl Fn(&'b str) -> C) -> impl Sql<'b, DB> {
        let may_be_rest = |field: &&ShardsColumn| self.keeps_rests && field.leaves_rests();
        sql! {
            "(", for field in (self.names.fields, " OR ") {
                column(&field.name), field.merge.is_filled(),
                if may_be_rest(&field) { " AND NOT ", self.names.is_rest(field, &column) }
            },
            if let Some(first) = &self.first_to_remove {
                " OR ", column(SHARD), " >= ", bind(Integer, first),
                for field in (self.names.fields.iter().filter(may_be_rest), "") { " AND ", column(&field.name), " = 0" }
            }, ")"
        }
    }
}

/// The settings of every batch of a fold.
pub(crate) struct Folding<P> {
    pub(crate) of: P,
    /// Empty shards numbered from here on are removed, or none.
    pub(crate) keep: Option<u16>,
    /// All shards are removed of a parent of which fewer than this were filled.
    pub(crate) cold_below: Option<u16>,
    pub(crate) retry: RetryPolicy,
    pub(crate) dialect: Dialect,
    /// In a caller's transaction, which cannot try again later.
    pub(crate) inside: bool,
}

/// Why a fold of several parents, or of one, failed.
enum Trouble {
    /// Another transaction holds a lock, or a conflict came up.
    Blocked(DieselError),
    /// A base does not accept the values of its shards.
    Unfit(Unfit),
    Other(DieselError),
}

impl<P> Folding<P> {
    /// Folds parents together if all their locks can be acquired at once; else one by one, and busy ones shard by shard.
    ///
    /// A parent alone may wait for its locks where the wait can be bounded: its writers wait that long at most, and those of other
    /// parents do not. In a caller's transaction, which keeps its locks, they are waited for together, and no shard is created behind them.
    async fn fold<T, M, Conn>(
        &self,
        keys: Vec<P::Key>,
        folded: &mut Folded<T, P::Key>,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<()>
    where
        P: Parents<M::Backend>,
        M: LoadIo<Conn>,
    {
        let mut left = vec![(keys, 0)];
        while let Some((keys, tries)) = left.pop() {
            let named = self.of.are(&keys);
            let (shards, retry) = self.together(keys.len());
            match self.fold_locked(&named, shards, retry, link).await {
                Ok((moved, removed, not_locked)) => {
                    folded.add(&moved, removed);
                    for key in not_locked {
                        match tries + 1 {
                            TRIES_TO_LOCK => folded.unfit.push((key, Unfit::NotLocked)),
                            tries => left.push((vec![key], tries)),
                        }
                    }
                }
                Err(error) => match (self.trouble(error), keys.len()) {
                    (Trouble::Other(error), _) => return Err(error),
                    // Some servers have ended the whole transaction.
                    (Trouble::Blocked(error), _) if self.inside => return Err(error),
                    (_, 2..) => {
                        left.extend(keys.into_iter().rev().map(|key| (vec![key], tries)));
                    }
                    (Trouble::Unfit(reason), _) => folded.refuse(keys, &reason),
                    (Trouble::Blocked(_), _) => {
                        self.fold_shard_by_shard(keys, folded, link).await?;
                    }
                },
            }
        }
        Ok(())
    }

    /// How the shards of so many parents are locked together, and how often that is tried.
    fn together(&self, parents: usize) -> (Shards, RetryPolicy) {
        let waits = parents == 1 && self.bound().is_some();
        let strength = match waits {
            _ if self.inside => Strength::Full,
            true => Strength::Exclusive,
            false => Strength::ExclusiveAtOnce,
        };
        // On SQLite there are no locks but that on the database.
        let retry = match self.dialect.has_row_locks() {
            true => RetryPolicy::never(),
            false => self.retry.clone(),
        };
        (Shards::all(strength), retry)
    }

    /// Bounds the waits of a transaction: for rows, and for a table that others may not write meanwhile, which no `NOWAIT` is about.
    /// Counts wait for the shards that are locked by then. Inside a caller's transaction the bound would outlive the fold.
    fn bound(&self) -> Option<&'static str> {
        let bound = self.dialect.bounds_waits_for_locks();
        bound.filter(|_| !self.inside)
    }

    /// Each shard in a transaction of its own, which holds no lock while it waits for its turn to try again. A shard that does
    /// not fit is retried as long as others change the base.
    async fn fold_shard_by_shard<T, M, Conn>(
        &self,
        keys: Vec<P::Key>,
        folded: &mut Folded<T, P::Key>,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<()>
    where
        P: Parents<M::Backend>,
        M: LoadIo<Conn>,
    {
        let named = self.of.are(&keys);
        let reading = RetryLoop::decision(link, self.retry.clone())?;
        let unlocked = LockedParents::locked(self.of, keys.clone()); // only their shards are looked for
        let shards = retry_loop!(link, reading, unlocked.shards(link).await);
        let mut left =
            shards.map_err(|error| explain_of(self.of.names(), &link.backend(), error))?;
        let (mut busy, mut tried, mut parents) = (false, usize::MAX, 0);
        let mut reason = None;
        while left.len() < tried {
            tried = left.len();
            let mut unfit = vec![];
            for shard in left {
                let shards = Shards {
                    only: Some(shard),
                    strength: Strength::ExclusiveAtOnce,
                };
                // One was blocked for as long as the policy allows, perhaps by the parent's lock: the others are not waited for again.
                let retry = match busy {
                    true => RetryPolicy::never(),
                    false => self.retry.clone(),
                };
                match self.fold_locked(&named, shards, retry, link).await {
                    Ok((moved, removed, _)) => {
                        parents = moved.parents.max(parents);
                        let moved = Moved {
                            parents: 0,
                            ..moved
                        };
                        folded.add(&moved, removed);
                    }
                    Err(error) => match self.trouble(error) {
                        Trouble::Unfit(unfits) => {
                            unfit.push(shard);
                            reason = Some(unfits);
                        }
                        Trouble::Blocked(_) => busy = true,
                        Trouble::Other(error) => return Err(error),
                    },
                }
            }
            left = unfit;
        }
        folded.parents += parents as u64;
        if let (false, Some(reason)) = (left.is_empty(), reason) {
            folded.refuse(keys, &reason);
        } else if busy {
            folded.busy.extend(keys);
        }
        Ok(())
    }

    /// Folds the parents whose locks can be acquired. The others that can be seen come back.
    async fn fold_locked<M, Conn>(
        &self,
        keys: &KeysAre<P::KeyIs>,
        shards: Shards,
        retry: RetryPolicy,
        link: &mut Link<'_, M, Conn>,
    ) -> QueryResult<(Moved, usize, Vec<P::Key>)>
    where
        P: Parents<M::Backend>,
        M: LoadIo<Conn>,
    {
        let locking = locking(link, retry)?;
        let folded = retry_loop!(link, locking, {
            if let Some(bound) = self.bound() {
                link.batch_execute(bound).await?;
            }
            let locked = LockedParents::lock(self.of, link, keys, shards).await?;
            let not_locked = locked.not_locked(link, keys).await?;
            // By one shard alone nobody can tell, and a parent that is folded so is busy.
            let by_contention = match self.cold_below.filter(|_| shards.only.is_none()) {
                Some(shards) => Some(locked.hot_and_cold(link, shards).await?),
                None => None,
            };
            let moved = locked.fold(link, self.keeps_rests()).await?;
            let mut removed = 0;
            let kept = by_contention.as_ref().map_or(&locked, |[hot, _]| hot);
            if let Some(first) = self.keep {
                removed += kept.remove_shards(link, first).await?;
            }
            if let Some([_, cold]) = &by_contention {
                removed += cold.remove_shards(link, 0).await?;
            }
            Ok((moved, removed, not_locked))
        });
        let (moved, removed, not_locked) =
            folded.map_err(|error| explain_of(self.of.names(), &link.backend(), error))?;
        let table = self.of.names().shards_table.as_str();
        observe::folded(self.dialect, table, moved.parents, moved.shards, removed);
        Ok((moved, removed, not_locked))
    }

    fn trouble(&self, error: DieselError) -> Trouble {
        let locks_rows = self.dialect.has_row_locks();
        let is_blocked = match self.dialect.classify(&error) {
            Failure::Conflict(Conflict::LockTimeout) => locks_rows,
            // A shard appeared beside those that were locked.
            Failure::Conflict(Conflict::Serialization) => self.dialect.unlocks_at_savepoints(),
            _ => false,
        };
        if is_blocked {
            return Trouble::Blocked(error);
        }
        match Error::from(error) {
            Error::Overflow { source } => Trouble::Unfit(self.dialect.refused(&source)),
            Error::Unfit { reason, .. } => Trouble::Unfit(reason),
            error @ Error::ConflictPersisted { .. } if locks_rows => Trouble::Blocked(error.into()),
            error => Trouble::Other(error.into()),
        }
    }
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;

    use super::*;
    use crate::test_schema::{assert_sql, downloads, videos};

    #[test]
    fn parents_are_picked_behind_the_last_one() {
        let filter = videos::table
            .filter(videos::slug.eq("a"))
            .into_update_target();
        let after = videos::table::key_after(&7);
        let pick = PickFoldable::<(), Pg> {
            names: Names::of::<videos::table>(),
            filter: &filter.where_clause,
            after: Some(&after),
            first_to_remove: Some(16),
            keeps_rests: true,
            limit: 100,
            key_sql: PhantomData,
        };
        assert_sql!(pick;
            Pg => r#"WITH "sharded_primary" AS (UPDATE "videos_shards" SET "shard" = 0 WHERE FALSE) SELECT "videos"."id" FROM (SELECT "videos"."id" FROM "videos" WHERE ("videos"."slug" = $1)) AS "videos" WHERE (SELECT 1 FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id" AND ("videos_shards"."views" <> 0 OR "videos_shards"."likes" <> 0 OR "videos_shards"."shard" >= $2) LIMIT 1) IS NOT NULL AND ("videos"."id" > $3) ORDER BY "videos"."id" LIMIT $4"#,
        );
        let all = downloads::table.into_update_target();
        let after = downloads::table::key_after(&(1, "x".to_owned()));
        let pick = PickFoldable::<(), Mysql> {
            names: Names::of::<downloads::table>(),
            filter: &all.where_clause,
            after: Some(&after),
            first_to_remove: Some(16),
            keeps_rests: true,
            limit: 100,
            key_sql: PhantomData,
        };
        assert_sql!(pick;
            Mysql => "SELECT `downloads`.`version`, `downloads`.`day` FROM (SELECT DISTINCT `downloads`.`version`, `downloads`.`day` FROM `download \"counts\"` AS `downloads` WHERE (`downloads`.`number` <> 0 AND NOT EXISTS (SELECT 1 FROM `downloads` AS `diesel_sharded_parents` WHERE `diesel_sharded_parents`.`version` = `downloads`.`version` AND `diesel_sharded_parents`.`day` = `downloads`.`day` AND CASE WHEN ABS(`downloads`.`number`) < 1e300 AND ABS(`diesel_sharded_parents`.`number`) < 1e300 THEN `diesel_sharded_parents`.`number` + `downloads`.`number` = `diesel_sharded_parents`.`number` END) OR `downloads`.`shard` >= ? AND `downloads`.`number` = 0) AND ((`downloads`.`version` >= ?) AND ((`downloads`.`version` > ?) OR ((`downloads`.`version` = ?) AND (`downloads`.`day` > ?)))) ORDER BY `downloads`.`version`, `downloads`.`day` LIMIT ?) AS `downloads` ORDER BY `downloads`.`version`, `downloads`.`day` LIMIT 18446744073709551615",
        );
    }
}
