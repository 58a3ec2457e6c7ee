//! Folding batch by batch, in key order.

use std::ops::ControlFlow;
use std::time::Instant;

use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, IntoUpdateTarget, Query, QueryFragment, QueryId};
use diesel::sql_types::Integer;

use crate::backend::ShardedBackend;
use crate::connection::{Link, LoadIo, in_any_transaction};
use crate::engine::{After, KeyedTable, Parents, RetryLoop, explain_of, retry_loop};
use crate::model::{SHARD, ShardedTable};
use crate::operation::shards_table::check_triggers;
use crate::query_builder::{Names, Sql, bind, no_query_id, sql};
use crate::{observe, shard_counts};

use super::batch::Folding;
use super::builder::Fold;
use super::folded::Folded;
use super::pace::Pace;

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
pub(in crate::operation) struct Batches<W> {
    pub(in crate::operation) filter: W,
    pub(in crate::operation) batch: usize,
    /// Without effect in a caller's transaction.
    pub(in crate::operation) per_second: Option<u32>,
}

impl<P> Folding<P> {
    /// Parents with shards from this one on may have shards to remove.
    fn first_to_remove(&self) -> Option<u16> {
        self.cold_below.map_or(self.keep, |_| Some(0))
    }

    /// Goes on after the last parent that was `folded`, to the end or until `progress` breaks off.
    pub(in crate::operation) async fn fold_all<T, DB, W, M, Conn>(
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
        let batch = pace.as_ref().map_or(batches.batch, Pace::batch);
        loop {
            let began = Instant::now();
            let mut due = began;
            let reading = RetryLoop::read(link, self.retry.clone())?;
            let keys = retry_loop!(link, reading, {
                let after = folded.last.as_ref().map(|last| self.of.is_after(last));
                let pick = PickFoldable::<P, W, DB> {
                    names: self.of.names(),
                    filter: &batches.filter,
                    after: after.map(After::<P, DB>),
                    first_to_remove: self.first_to_remove().map(i32::from),
                    limit: batch as i64,
                };
                P::load(link, pick).await
            });
            let explained = |error| explain_of(self.of.names(), &link.backend(), error);
            let keys = keys.map_err(explained)?;
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
                if let Some(pace) = &mut pace {
                    due = pace.next(parents, began, Instant::now());
                }
            }
            if folded.finished {
                return Ok(());
            }
            let wait = due.saturating_duration_since(Instant::now());
            M::sleep(&self.retry, wait).await;
        }
    }
}

/// Finds parents that have something to fold; see [`fold`](fold()).
///
/// Without a filter the shards table alone is read, so that rows without shards cost nothing.
///
/// With a filter not `EXISTS`: planners turn that into a join that reads the whole shards table for every batch.
struct PickFoldable<'a, P: Parents<DB>, W, DB: ShardedBackend> {
    names: Names<'a, DB>,
    filter: &'a W,
    after: Option<After<P, DB>>,
    first_to_remove: Option<i32>,
    limit: i64,
}

impl<P, W, DB> PickFoldable<'_, P, W, DB>
where
    DB: ShardedBackend,
    P: Parents<DB>,
{
    /// `(table.field <> 0 OR … OR table.shard >= $n)`, where `column` writes a column of the shards table.
    fn has_work<'b, C: Sql<'b, DB>>(&'b self, column: impl Fn(&'b str) -> C) -> impl Sql<'b, DB> {
        sql! {
            "(", for field in (self.names.fields, " OR ") { column(&field.name), field.merge.is_filled() },
            if let Some(first) = &self.first_to_remove { " OR ", column(SHARD), " >= ", bind(Integer, first) }, ")"
        }
    }
}

impl<P, W, DB> QueryFragment<DB> for PickFoldable<'_, P, W, DB>
where
    DB: ShardedBackend,
    P: Parents<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let table = self.names;
        let next = table.next_keys(self.after.as_ref(), &self.limit);
        if self.filter.is_noop(out.backend())? {
            let has_work = self.has_work(|name| table.under_alias().column(name));
            return table.keys_of_shards(sql! { has_work, next }).push(out);
        }
        sql!(out;
            table.select_keys_as_parent(self.filter), " WHERE (SELECT 1 FROM ", table.under_alias().shards_of_parent(None),
            " AND ", self.has_work(|name| table.shards_column(name)), " LIMIT 1) IS NOT NULL", next)
    }
}

impl<P: Parents<DB>, W, DB: ShardedBackend> Query for PickFoldable<'_, P, W, DB> {
    type SqlType = P::KeySql;
}

// Its text changes with `after`; one preparation a batch is little.
no_query_id!([P: Parents<DB>, W, DB: ShardedBackend] PickFoldable<'_, P, W, DB>);

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::{downloads, sql, videos};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;

    #[test]
    fn parents_are_picked_behind_the_last_one() {
        let filter = videos::table
            .filter(videos::slug.eq("a"))
            .into_update_target();
        let pick = PickFoldable::<videos::table, _, Pg> {
            names: Names::of::<videos::table>(),
            filter: &filter.where_clause,
            after: Some(After(videos::table::key_after(&7))),
            first_to_remove: Some(16),
            limit: 100,
        };
        assert_eq!(
            sql!(Pg, pick),
            r#"SELECT "videos"."id" FROM (SELECT "videos"."id" FROM "videos" WHERE ("videos"."slug" = $1)) AS "videos" WHERE (SELECT 1 FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id" AND ("videos_shards"."views" <> 0 OR "videos_shards"."likes" <> 0 OR "videos_shards"."shard" >= $2) LIMIT 1) IS NOT NULL AND ("videos"."id" > $3) ORDER BY "videos"."id" LIMIT $4"#
        );
        let all = downloads::table.into_update_target();
        let pick = PickFoldable::<downloads::table, _, Mysql> {
            names: Names::of::<downloads::table>(),
            filter: &all.where_clause,
            after: Some(After(downloads::table::key_after(&(1, "x".to_owned())))),
            first_to_remove: Some(16),
            limit: 100,
        };
        assert_eq!(
            sql!(Mysql, pick),
            "SELECT `downloads`.`version`, `downloads`.`day` FROM (SELECT DISTINCT `downloads`.`version`, `downloads`.`day` FROM `download \"counts\"` AS `downloads` WHERE (`downloads`.`number` <> 0 OR `downloads`.`shard` >= ?) AND ((`downloads`.`version` >= ?) AND ((`downloads`.`version` > ?) OR ((`downloads`.`version` = ?) AND (`downloads`.`day` > ?)))) ORDER BY `downloads`.`version`, `downloads`.`day` LIMIT ?) AS `downloads` ORDER BY `downloads`.`version`, `downloads`.`day` LIMIT 18446744073709551615"
        );
    }
}
