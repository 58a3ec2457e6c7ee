//! Folding batch by batch, in key order.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, IntoUpdateTarget, Query, QueryFragment, QueryId};
use diesel::sql_types::{BigInt, Integer};

use crate::backend::ShardedBackend;
use crate::connection::{Link, LoadIo, in_any_transaction};
use crate::engine::{KeyedTable, RetryLoop, explain, retry_loop};
use crate::model::{SHARD, ShardedTable};
use crate::operation::shards_table::check_triggers;
use crate::query_builder::{
    no_query_id, push_bind, push_from_shards, push_key, push_select_keys_as_parent,
    push_shards_column,
};
use crate::{observe, shard_counts};

use super::batch::Folding;
use super::builder::Fold;
use super::folded::Folded;

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
        let dialect = link.dialect();
        let retry = self.retry.unwrap_or_default();
        if dialect.has_triggers() {
            let looking = RetryLoop::read(link, retry.clone())?;
            retry_loop!(link, looking, check_triggers::<T, DB, _, _>(link).await)?;
        }
        let filter = self.query.into_update_target().where_clause;
        let inside = in_any_transaction(link).await?;
        let keep = match self.keep_shards {
            Some(number) => number,
            None => shard_counts::wished::<T, _, _>(link, inside).await?,
        };
        let pace = self.per_second.filter(|_| !inside);
        let batch = pace.map_or(self.batch, |rate| self.batch.min(rate as usize));
        let folding = Folding {
            keep,
            retry: retry.clone(),
            dialect,
            inside,
        };
        let mut due = Instant::now();
        let mut folded = Folded::nothing(self.after);
        loop {
            let after = folded.last.as_ref().map(T::key_after);
            let first_to_remove = i32::from(keep);
            let limit = batch as i64;
            let reading = RetryLoop::read(link, retry.clone())?;
            let keys = retry_loop!(link, reading, {
                let pick = PickFoldable::<T, W> {
                    filter: &filter,
                    after: after.as_ref(),
                    first_to_remove,
                    limit,
                };
                T::load_keys(link, pick).await
            });
            let keys = keys.map_err(|error| explain::<T, DB>(&link.backend(), error))?;
            folded.finished = keys.len() < batch;
            if let Some(last) = keys.last().cloned() {
                let parents = keys.len();
                let told = observe::fold(dialect, T::SHARDS_TABLE, parents);
                let moving = folding.fold::<T, DB, _, _>(keys, &mut folded, link);
                told.within(moving).await?;
                folded.last = Some(last);
                if progress(&folded).is_break() {
                    return Ok(folded);
                }
                if let Some(per_second) = pace {
                    due = due.max(Instant::now())
                        + Duration::from_secs_f64(parents as f64 / per_second);
                }
            }
            if folded.finished {
                return Ok(folded);
            }
            M::sleep(&retry, due.saturating_duration_since(Instant::now())).await;
        }
    }
}

/// Finds parents that have something to fold; see [`fold`](fold()).
///
/// Not `EXISTS`: planners turn that into a join that reads the whole shards table for every batch.
struct PickFoldable<'a, T: ShardedTable, W> {
    filter: &'a W,
    after: Option<&'a T::KeyAfter>,
    first_to_remove: i32,
    limit: i64,
}

impl<T, W, DB> QueryFragment<DB> for PickFoldable<'_, T, W>
where
    DB: ShardedBackend,
    T: KeyedTable<DB>,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        push_select_keys_as_parent::<T, W, DB>(self.filter, out.reborrow())?;
        out.push_sql(" WHERE (SELECT 1");
        push_from_shards::<T, DB>(None, out.reborrow())?;
        out.push_sql(" AND (");
        for field in T::FIELDS {
            push_shards_column::<T, DB>(field.name, out.reborrow())?;
            out.push_sql(" <> 0 OR ");
        }
        push_shards_column::<T, DB>(SHARD, out.reborrow())?;
        out.push_sql(" >= ");
        push_bind::<Integer, i32, DB>(&self.first_to_remove, out.reborrow())?;
        out.push_sql(") LIMIT 1) IS NOT NULL");
        if let Some(after) = self.after {
            out.push_sql(" AND ");
            T::push_key_after(after, out.reborrow())?;
        }
        out.push_sql(" ORDER BY ");
        push_key::<T, DB>(out.reborrow())?;
        out.push_sql(" LIMIT ");
        push_bind::<BigInt, i64, DB>(&self.limit, out)
    }
}

impl<T: ShardedTable, W> Query for PickFoldable<'_, T, W> {
    type SqlType = <T::PrimaryKey as Expression>::SqlType;
}

// Its text changes with `after`; one preparation a batch is little.
no_query_id!([T: ShardedTable, W] PickFoldable<'_, T, W>);

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
        let pick = PickFoldable::<videos::table, _> {
            filter: &filter.where_clause,
            after: Some(&videos::table::key_after(&7)),
            first_to_remove: 16,
            limit: 100,
        };
        assert_eq!(
            sql!(Pg, pick),
            r#"SELECT "videos"."id" FROM (SELECT "videos"."id" FROM "videos" WHERE ("videos"."slug" = $1)) AS "videos" WHERE (SELECT 1 FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id" AND ("videos_shards"."views" <> 0 OR "videos_shards"."likes" <> 0 OR "videos_shards"."shard" >= $2) LIMIT 1) IS NOT NULL AND ("videos"."id" > $3) ORDER BY "videos"."id" LIMIT $4"#
        );
        let all = downloads::table.into_update_target();
        let pick = PickFoldable::<downloads::table, _> {
            filter: &all.where_clause,
            after: Some(&downloads::table::key_after(&(1, "x".to_owned()))),
            first_to_remove: 16,
            limit: 100,
        };
        assert!(
            sql!(Mysql, pick).contains(
                "AND ((`downloads`.`version` > ?) OR ((`downloads`.`version` = ?) AND (`downloads`.`day` > ?))) ORDER BY `downloads`.`version`, `downloads`.`day` LIMIT ?"
            ),
            "{}",
            sql!(Mysql, pick)
        );
    }
}
