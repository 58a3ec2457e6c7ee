//! Shards that have no parent: found and removed.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment};

use crate::backend::{BackendOf, ShardedBackend};
use crate::connection::{Link, LoadIo, paired};
use crate::engine::{
    self, After, KEYS_IN_A_STATEMENT, KeyedTable, Parents, RetryLoop, explain_of, locking,
    retry_loop,
};
use crate::model::ShardedTable;
use crate::policy::RetryPolicy;
use crate::query_builder::{Names, Sql, no_query_id, sql};

use super::table::ShardsTable;

paired! {
    impl<T: ShardedTable> ShardsTable<T, Run>
    where
        T: KeyedTable<DB>,
        DB: BackendOf<Conn>,
    {
        /// Removes the shards whose row does not exist, and returns how many there were.
        ///
        /// A foreign key leaves none. Without it a deleted row may leave some; see [`without_foreign_key`](Self::without_foreign_key) and
        /// [`without_triggers`](Self::without_triggers). They belong to no total, but a new row with their key may begin with their
        /// counts, and [`drop`](Self::drop) refuses a table that has some.
        ///
        /// It may run beside any writers: in batches of 100 keys, each in a transaction of its own that is retried after a conflict. The
        /// shards are locked before their rows are looked for, so no count is removed of a row that is being inserted.
        ///
        /// ```sql
        /// SELECT "videos"."id" FROM (SELECT DISTINCT "videos"."id" FROM "videos_shards" AS "videos" WHERE NOT EXISTS (…) …) AS "videos"
        /// SELECT … FROM "videos_shards" AS "videos" WHERE … FOR UPDATE                   -- not on SQLite
        /// DELETE FROM "videos_shards" AS "videos" WHERE … AND NOT EXISTS (SELECT 1 FROM "videos" AS "diesel_sharded_parents" …)
        /// ```
        ///
        /// ```
        /// # mod schema { diesel::table! { videos (id) { id -> BigInt, views -> BigInt, } } }
        /// # use schema::videos;
        /// # use diesel::connection::SimpleConnection;
        /// # use diesel::prelude::*;
        /// # #[derive(diesel_sharded::ShardedField)]
        /// # struct Video { id: i64, #[sharded] views: i64 }
        /// # let conn = &mut SqliteConnection::establish(":memory:")?;
        /// # conn.batch_execute("CREATE TABLE videos (id INTEGER PRIMARY KEY, views BIGINT NOT NULL)")?;
        /// use diesel_sharded::ShardsTable;
        ///
        /// let shards_table = ShardsTable::of(videos::table).without_triggers();
        /// shards_table.create(conn)?;
        /// # conn.batch_execute("INSERT INTO videos_shards (id, shard, views) VALUES (7, 0, 1), (7, 1, 1)")?;
        /// assert_eq!(shards_table.remove_orphans(conn)?, 2);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        ///
        /// # Errors
        /// [`Unfit`](crate::Error::Unfit) where PostgreSQL's row security may hide rows from this role;
        /// [`ConflictPersisted`](crate::Error::ConflictPersisted); else the database's error. The batches before stay removed.
        pub fn remove_orphans(&self, link: Link) -> QueryResult<usize> {
            remove_orphans(*T::TABLE, link).await
        }
    }
}

/// See [`ShardsTable::remove_orphans`].
pub(crate) async fn remove_orphans<P, DB, M, Conn>(
    of: P,
    link: &mut Link<'_, M, Conn>,
) -> QueryResult<usize>
where
    P: Parents<DB>,
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    let explained = |error, backend| explain_of(of.names(), &backend, error);
    let (mut removed, mut last) = (0, None);
    loop {
        let after = last.as_ref().map(|last| After::<P, DB>(of.is_after(last)));
        let reading = RetryLoop::read(link, RetryPolicy::default())?;
        let keys = retry_loop!(link, reading, {
            let pick = PickOrphans::<P, DB> {
                names: of.names(),
                after: after.as_ref(),
                limit: KEYS_IN_A_STATEMENT as i64,
            };
            P::load(link, pick).await
        });
        let keys = keys.map_err(|error| explained(error, link.backend()))?;
        let removing = locking(link, RetryPolicy::default())?;
        let batch = retry_loop!(link, removing, {
            engine::remove_orphans(of, link, &keys).await
        });
        removed += batch.map_err(|error| explained(error, link.backend()))?;
        if keys.len() < KEYS_IN_A_STATEMENT {
            return Ok(removed);
        }
        last = keys.last().cloned();
    }
}

/// Reads keys in the shards table that no parent has, in key order.
struct PickOrphans<'a, P: Parents<DB>, DB: ShardedBackend> {
    names: Names<'a, DB>,
    after: Option<&'a After<P, DB>>,
    limit: i64,
}

impl<P, DB> QueryFragment<DB> for PickOrphans<'_, P, DB>
where
    DB: ShardedBackend,
    P: Parents<DB>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let table = self.names;
        let condition = sql! { table.has_no_parent(), table.next_keys(self.after, &self.limit) };
        table.keys_of_shards(condition).push(out)
    }
}

impl<P: Parents<DB>, DB: ShardedBackend> Query for PickOrphans<'_, P, DB> {
    type SqlType = P::KeySql;
}

// Its text changes with `after`; one preparation a batch is little.
no_query_id!([P: Parents<DB>, DB: ShardedBackend] PickOrphans<'_, P, DB>);

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::{sql, videos};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;

    #[test]
    fn keys_without_parents_are_picked_behind_the_last_one() {
        let pick = PickOrphans::<videos::table, Pg> {
            names: Names::of::<videos::table>(),
            after: Some(&After(videos::table::key_after(&7))),
            limit: 100,
        };
        assert_eq!(
            sql!(Pg, pick),
            r#"SELECT "videos"."id" FROM (SELECT DISTINCT "videos"."id" FROM "videos_shards" AS "videos" WHERE NOT EXISTS (SELECT 1 FROM "videos" AS "diesel_sharded_parents" WHERE "diesel_sharded_parents"."id" = "videos"."id") AND ("videos"."id" > $1) ORDER BY "videos"."id" LIMIT $2) AS "videos" ORDER BY "videos"."id""#
        );
        let pick = PickOrphans::<videos::table, Mysql> {
            names: Names::of::<videos::table>(),
            after: None,
            limit: 100,
        };
        assert_eq!(
            sql!(Mysql, pick),
            "SELECT `videos`.`id` FROM (SELECT DISTINCT `videos`.`id` FROM `videos_shards` AS `videos` WHERE NOT EXISTS (SELECT 1 FROM `videos` AS `diesel_sharded_parents` WHERE `diesel_sharded_parents`.`id` = `videos`.`id`) ORDER BY `videos`.`id` LIMIT ?) AS `videos` ORDER BY `videos`.`id` LIMIT 18446744073709551615"
        );
    }
}
