//! A batch and its mark in one statement, which commits by itself: one round trip instead of four.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::sql_types::BigInt;

use crate::backend::{AtOnce, ShardedBackend};
use crate::model::ShardedColumn;
use crate::query_builder::{
    CountEach, Names, Prepare, bind, has_rows, id, no_query_id, number_of_rows, sql,
};

use super::token::{BatchMark, TABLE};

/// Writes the mark and counts on every row, or does neither and meets no row.
///
/// ```sql
/// -- PostgreSQL: the batches' row is locked, and all shards are there; if one was removed since, it divides by zero
/// WITH "sharded_batch" ("id", "shard", "views") AS (VALUES ($1, $2, $3), …),
///     "sharded_ready" AS (SELECT 1 FROM "diesel_sharded_batches" WHERE "coalescer" = $4 AND "batch" < $5
///         AND (SELECT COUNT(*) FROM "videos_shards" AS "videos", "sharded_batch" WHERE …) = $6 FOR UPDATE),
///     "sharded_counted" AS (UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + "sharded_batch"."views")
///         FROM "sharded_batch" WHERE … AND EXISTS (SELECT 1 FROM "sharded_ready") RETURNING 1)
/// UPDATE "diesel_sharded_batches" SET "batch" = $7, "written" = now
///     / (CASE WHEN (SELECT COUNT(*) FROM "sharded_counted") = $8 THEN 1 ELSE 0 END)
/// WHERE "coalescer" = $9 AND "batch" < $10 AND EXISTS (SELECT 1 FROM "sharded_ready")
/// -- PostgreSQL, shards may be missing
/// WITH "sharded_batch" …,
///     "sharded_ready" AS (SELECT 1 FROM "diesel_sharded_batches" WHERE "coalescer" = $4 AND "batch" < $5 FOR UPDATE),
///     "sharded_counted" AS (INSERT INTO "videos_shards" ("id", "shard", "views") SELECT … FROM "videos", "sharded_batch" WHERE …
///         AND EXISTS (SELECT 1 FROM "sharded_ready") ORDER BY … ON CONFLICT ("id", "shard") DO UPDATE SET … RETURNING 1)
/// UPDATE …
/// -- MySQL, MariaDB, for one row
/// UPDATE `diesel_sharded_batches` STRAIGHT_JOIN `videos_shards` AS `videos`
/// SET `views` = (`videos`.`views` + CASE … END), `batch` = ?, `written` = now
/// WHERE `coalescer` = ? AND `batch` < ? AND … AND `videos`.`shard` = ?
/// ```
pub(super) struct CommitAtOnce<C, P, V> {
    form: AtOnce,
    mark: BatchMark,
    count: CountEach<C, P, V>,
    rows: i64,
    /// Shards may be missing.
    upserts: bool,
}

impl<C: ShardedColumn, P, V> CommitAtOnce<C, P, V> {
    /// With `upserts` it counts on missing shards too, in the form [`AtOnce::With`].
    pub(super) fn new(
        form: AtOnce,
        mark: BatchMark,
        count: CountEach<C, P, V>,
        upserts: bool,
    ) -> Self {
        CommitAtOnce {
            form,
            mark,
            rows: count.parents() as i64,
            upserts,
            count,
        }
    }
}

impl<C, P, V, DB> QueryFragment<DB> for CommitAtOnce<C, P, V>
where
    DB: ShardedBackend,
    C: ShardedColumn<Table: QueryFragment<DB>>,
    P: QueryFragment<DB>,
    V: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let (count, mark) = (&self.count, &self.mark);
        if self.form == AtOnce::Join {
            return sql!(out;
                "UPDATE ", id(TABLE), " STRAIGHT_JOIN ", Names::of::<C::Table>().shards_as_parent(),
                " SET ", count.change(), ", ", mark.assignments(), " WHERE ", mark.filter(), " AND ", count.filter());
        }
        sql!(out;
            "WITH ", count.values(), ", ", id(READY), " AS (SELECT 1 FROM ", id(TABLE), " WHERE ", mark.filter(),
            if !self.upserts { " AND (", count.are_there(), ") = ", bind(BigInt, &self.rows) }, " FOR UPDATE), ",
            id(COUNTED), " AS (",
            if self.upserts { count.upsert(has_rows(READY)) } else { count.update(), " AND ", has_rows(READY) },
            " RETURNING 1) UPDATE ", id(TABLE), " SET ", mark.assignments(),
            " / (CASE WHEN ", number_of_rows(COUNTED), " = ", bind(BigInt, &self.rows), " THEN 1 ELSE 0 END)",
            " WHERE ", mark.filter(), " AND ", has_rows(READY))
    }
}

const READY: &str = "sharded_ready";
const COUNTED: &str = "sharded_counted";

impl<C, P, V, DB> Prepare<DB> for CommitAtOnce<C, P, V>
where
    DB: ShardedBackend,
    C: ShardedColumn<Table: QueryFragment<DB>>,
    P: QueryFragment<DB>,
    V: QueryFragment<DB>,
{
}

// One text for each power of two of rows, so that it is worth keeping it prepared.
no_query_id!([C, P, V] CommitAtOnce<C, P, V>);

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::backend::Dialect;
    use crate::model::ShardedTable;
    use crate::operation::coalescer::token::Token;
    use crate::query_builder::{CountedRow, CountedShard};
    use crate::test_schema::sql;
    use crate::test_schema::videos::dsl::{id, *};
    use crate::test_schema::videos::table;
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;

    macro_rules! commit {
        ($dialect:ident, $($key:literal),+) => {{
            let rows = vec![$(CountedRow {
                key_is: id.eq($key),
                key_values: table::key_values(&$key),
                n: 1,
            }),+];
            let form = Dialect::$dialect.commits_at_once(rows.len());
            let count = CountEach::<views, _, _>::new(vec![CountedShard { shard: 3, rows }]);
            form.map(|form| CommitAtOnce::new(form, Token::new().unwrap().next(), count, false))
        }};
    }

    #[test]
    fn with_clauses_count_and_mark_or_do_neither() {
        let commit = commit!(Postgres, 7).unwrap();
        let batch = r#"("id", "shard", "views") AS (VALUES ($1, $2, $3))"#;
        let is_in_batch = r#""videos"."id" = "sharded_batch"."id" AND "videos"."shard" = "sharded_batch"."shard""#;
        let ready = format!(
            r#"SELECT 1 FROM "diesel_sharded_batches" WHERE "coalescer" = $4 AND "batch" < $5 AND (SELECT COUNT(*) FROM "videos_shards" AS "videos", "sharded_batch" WHERE {is_in_batch}) = $6 FOR UPDATE"#
        );
        let counted = format!(
            r#"UPDATE "videos_shards" AS "videos" SET "views" = ("videos"."views" + "sharded_batch"."views") FROM "sharded_batch" WHERE {is_in_batch} AND EXISTS (SELECT 1 FROM "sharded_ready") RETURNING 1"#
        );
        let marked = r#"UPDATE "diesel_sharded_batches" SET "batch" = $7, "written" = EXTRACT(EPOCH FROM statement_timestamp())::BIGINT / (CASE WHEN (SELECT COUNT(*) FROM "sharded_counted") = $8 THEN 1 ELSE 0 END) WHERE "coalescer" = $9 AND "batch" < $10 AND EXISTS (SELECT 1 FROM "sharded_ready")"#;
        assert_eq!(
            sql!(Pg, commit),
            format!(
                r#"WITH "sharded_batch" {batch}, "sharded_ready" AS ({ready}), "sharded_counted" AS ({counted}) {marked}"#
            )
        );
    }

    #[test]
    fn missing_shards_are_created_and_counted_on_at_once() {
        let commit = CommitAtOnce {
            upserts: true,
            ..commit!(Postgres, 7).unwrap()
        };
        let batch = r#"("id", "shard", "views") AS (VALUES ($1, $2, $3))"#;
        let ready = r#"SELECT 1 FROM "diesel_sharded_batches" WHERE "coalescer" = $4 AND "batch" < $5 FOR UPDATE"#;
        let counted = r#"INSERT INTO "videos_shards" ("id", "shard", "views") SELECT DISTINCT ON ("videos"."id") "videos"."id", "sharded_batch"."shard", "sharded_batch"."views" FROM "videos", "sharded_batch" WHERE "videos"."id" = "sharded_batch"."id" AND "sharded_batch"."shard" >= 0 AND EXISTS (SELECT 1 FROM "sharded_ready") ORDER BY "videos"."id" ON CONFLICT ("id", "shard") DO UPDATE SET "views" = ("videos_shards"."views" + excluded."views") RETURNING 1"#;
        let text = sql!(Pg, commit);
        let start = format!(
            r#"WITH "sharded_batch" {batch}, "sharded_ready" AS ({ready}), "sharded_counted" AS ({counted}) UPDATE "diesel_sharded_batches""#
        );
        assert!(text.starts_with(&start), "{text}");
    }

    #[test]
    fn two_tables_are_updated_together_or_not() {
        let one = commit!(Mysql, 7).unwrap();
        assert_eq!(
            sql!(Mysql, one),
            "UPDATE `diesel_sharded_batches` STRAIGHT_JOIN `videos_shards` AS `videos` SET `views` = (`videos`.`views` + CASE WHEN (`videos`.`id` = ?) THEN ? END), `batch` = ?, `written` = CAST(UNIX_TIMESTAMP() AS SIGNED) WHERE `coalescer` = ? AND `batch` < ? AND `videos`.`id` IN (?) AND `videos`.`shard` = ?"
        );
        let two = commit!(Mysql, 7, 8);
        assert!(two.is_none());
        assert!(commit!(Sqlite, 7).is_none());
    }
}
