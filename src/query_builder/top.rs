//! The first rows by total, exactly.

use std::marker::PhantomData;

use diesel::expression::Expression;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryBuilder, QueryFragment, QueryId};
use diesel::sql_types::BigInt;

use crate::backend::{ShardedBackend, SumsForm};
use crate::model::ShardedColumn;
use crate::query_builder::{Names, push_bind};

/// Reads `selection` of the rows with the greatest totals of the field `C`; see [`top`](crate::top()) for the SQL.
///
/// Parents without shards are ordered by their bases, and so by an index: only the first of them can be among the result. Of
/// parents with shards each one can, since a base says nothing of the total. Shards that hold 0 count as none.
#[derive(Debug, Clone, QueryId)]
pub struct SelectTop<C, W, S> {
    pub(crate) filter: W,
    pub(crate) selection: S,
    pub(crate) limit: i64,
    pub(crate) offset: i64,
    /// Both together: so many parents without shards may be among the result.
    pub(crate) candidates: i64,
    pub(crate) ascending: bool,
    pub(crate) field: PhantomData<C>,
}

/// The query for keys and totals.
const TOP: &str = "sharded_top";
/// The sums of shards by their parents.
const SUMS: &str = "sharded_sums";
const TOTAL: &str = "sharded_total";
const SUM: &str = "sharded_sum";

/// The names of columns that no table of the application's is likely to have.
fn key(number: usize) -> String {
    format!("sharded_key_{number}")
}

impl<C, W, S, DB> QueryFragment<DB> for SelectTop<C, W, S>
where
    DB: ShardedBackend,
    C: ShardedColumn<Table: QueryFragment<DB>>,
    W: QueryFragment<DB>,
    S: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let dialect = out.backend().dialect();
        if dialect.waits_after_interrupted_rows() || self.ascending {
            out.unsafe_to_cache_prepared(); // the query id does not tell ascending from descending
        }
        let is_filtered = writes_sql(&self.filter, out.backend())?;
        let parts = Parts::<_, DB> {
            parent: Names::of::<C::Table>(),
            names: match is_filtered {
                true => Names::of::<C::Table>().under_alias(),
                false => Names::of::<C::Table>(),
            },
            field: C::NAME,
            filter: &self.filter,
            is_filtered,
            direction: if self.ascending { " ASC" } else { " DESC" },
        };
        out.push_sql("SELECT ");
        self.selection.walk_ast(out.reborrow())?;
        out.push_sql(" FROM (SELECT ");
        parts.push_keys_and_total(out.reborrow())?;
        out.push_sql(" FROM (SELECT ");
        parts.push_keys_and_total(out.reborrow())?;
        out.push_sql(" FROM (");
        parts.push_without_shards(&self.candidates, out.reborrow())?;
        out.push_sql(") AS sharded_bases UNION ALL ");
        parts.push_with_shards(dialect.sums_form(parts.is_filtered), out.reborrow())?;
        out.push_sql(") AS sharded_candidates ORDER BY ");
        out.push_identifier(TOTAL)?;
        out.push_sql(parts.direction);
        for number in 0..parts.names.key.len() {
            out.push_sql(", ");
            out.push_identifier(&key(number))?;
            out.push_sql(parts.direction);
        }
        out.push_sql(" LIMIT ");
        push_bind::<BigInt, i64, DB>(&self.limit, out.reborrow())?;
        out.push_sql(" OFFSET ");
        push_bind::<BigInt, i64, DB>(&self.offset, out.reborrow())?;
        out.push_sql(") AS ");
        out.push_identifier(TOP)?;
        out.push_sql(" JOIN ");
        parts.parent.parent.walk_ast(out.reborrow())?;
        out.push_sql(" ON ");
        for (number, column) in parts.names.key.iter().enumerate() {
            out.push_sql(if number == 0 { "" } else { " AND " });
            push_column_of(TOP, &key(number), out.reborrow())?;
            out.push_sql(" = ");
            parts.parent.push_column(&column.name, out.reborrow())?;
        }
        out.push_sql(" ORDER BY ");
        push_column_of(TOP, TOTAL, out.reborrow())?;
        out.push_sql(parts.direction);
        parts.push_then_by_key(parts.parent, out.reborrow())?;
        out.push_sql(dialect.all_rows());
        Ok(())
    }
}

impl<C, W, S: Expression> Query for SelectTop<C, W, S> {
    type SqlType = S::SqlType;
}

/// Whether a `WHERE` clause holds anything.
fn writes_sql<W: QueryFragment<DB>, DB: ShardedBackend>(
    filter: &W,
    backend: &DB,
) -> QueryResult<bool> {
    let mut builder = backend.query_builder();
    filter.to_sql(&mut builder, backend)?;
    Ok(!builder.finish().is_empty())
}

/// `table.column`
fn push_column_of<DB: ShardedBackend>(
    table: &str,
    column: &str,
    mut out: AstPass<'_, '_, DB>,
) -> QueryResult<()> {
    out.push_identifier(table)?;
    out.push_sql(".");
    out.push_identifier(column)
}

/// The parts of the query for keys and totals.
struct Parts<'b, W, DB: ShardedBackend> {
    parent: Names<'b, DB>,
    /// The names of the parents that the filter leaves.
    names: Names<'b, DB>,
    field: &'static str,
    filter: &'b W,
    is_filtered: bool,
    direction: &'static str,
}

impl<'b, W, DB> Parts<'b, W, DB>
where
    DB: ShardedBackend,
    W: QueryFragment<DB>,
{
    /// `SELECT parent.key AS sharded_key_0, parent.views AS sharded_total FROM parent WHERE NOT EXISTS (…) ORDER BY parent.views DESC,
    /// parent.key DESC LIMIT $n`
    fn push_without_shards(
        &self,
        candidates: &'b i64,
        mut out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()> {
        let (before, behind) = out.backend().dialect().finds_none();
        self.push_select_keys(out.reborrow())?;
        self.names.push_column(self.field, out.reborrow())?;
        self.push_as_total_from(out.reborrow())?;
        self.push_rows(out.reborrow())?;
        out.push_sql(" WHERE ");
        out.push_sql(before);
        self.push_a_shard(out.reborrow())?;
        out.push_sql(behind);
        out.push_sql(" ORDER BY ");
        self.names.push_column(self.field, out.reborrow())?;
        out.push_sql(self.direction);
        self.push_then_by_key(self.names, out.reborrow())?;
        out.push_sql(" LIMIT ");
        push_bind::<BigInt, i64, DB>(candidates, out)
    }

    /// `SELECT parent.key AS sharded_key_0, parent.views + sum AS sharded_total FROM …`
    fn push_with_shards(&self, form: SumsForm, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.push_select_keys(out.reborrow())?;
        match form {
            SumsForm::JoinSums => {
                self.names.push_column(self.field, out.reborrow())?;
                out.push_sql(" + ");
                push_column_of(SUMS, SUM, out.reborrow())?;
                self.push_as_total_from(out.reborrow())?;
                self.push_sums(out.reborrow())?;
                out.push_sql(" JOIN ");
                self.push_rows(out.reborrow())?;
                out.push_sql(" ON ");
                self.push_key_equals(SUMS, out.reborrow())
            }
            SumsForm::GroupJoined { straight } => {
                out.push_sql("MAX(");
                self.names.push_column(self.field, out.reborrow())?;
                out.push_sql(") + ");
                self.push_sum(out.reborrow())?;
                self.push_as_total_from(out.reborrow())?;
                self.names.shards_table.push(out.reborrow())?;
                out.push_sql(if straight {
                    " STRAIGHT_JOIN "
                } else {
                    " JOIN "
                });
                self.push_rows(out.reborrow())?;
                out.push_sql(" ON ");
                self.push_key_equals(self.names.shards_table.name(), out.reborrow())?;
                out.push_sql(" WHERE ");
                self.push_is_not_zero(out.reborrow())?;
                out.push_sql(" GROUP BY ");
                self.names.push_key(out)
            }
            SumsForm::Correlated => {
                self.names.push_column(self.field, out.reborrow())?;
                out.push_sql(" + (SELECT ");
                self.push_sum(out.reborrow())?;
                self.names.push_from_shards(None, out.reborrow())?;
                out.push_sql(")");
                self.push_as_total_from(out.reborrow())?;
                self.push_rows(out.reborrow())?;
                out.push_sql(" WHERE EXISTS (");
                self.push_a_shard(out.reborrow())?;
                out.push_sql(")");
                Ok(())
            }
        }
    }

    /// ` AS sharded_total FROM `
    fn push_as_total_from(&self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql(" AS ");
        out.push_identifier(TOTAL)?;
        out.push_sql(" FROM ");
        Ok(())
    }

    /// `(SELECT shards.key, SUM(shards.views) AS sharded_sum FROM shards WHERE shards.views <> 0 GROUP BY shards.key) AS sharded_sums`
    fn push_sums(&self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("(SELECT ");
        self.push_shards_key(out.reborrow())?;
        out.push_sql(", ");
        self.push_sum(out.reborrow())?;
        out.push_sql(" AS ");
        out.push_identifier(SUM)?;
        out.push_sql(" FROM ");
        self.names.shards_table.push(out.reborrow())?;
        out.push_sql(" WHERE ");
        self.push_is_not_zero(out.reborrow())?;
        out.push_sql(" GROUP BY ");
        self.push_shards_key(out.reborrow())?;
        out.push_sql(") AS ");
        out.push_identifier(SUMS)
    }

    /// The parents: a filter's own parentheses are not known, so nothing is appended to it.
    fn push_rows(&self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        if !self.is_filtered {
            return self.names.parent.walk_ast(out);
        }
        out.push_sql("(SELECT ");
        self.parent.push_key(out.reborrow())?;
        out.push_sql(", ");
        self.parent.push_column(self.field, out.reborrow())?;
        out.push_sql(" FROM ");
        self.parent.parent.walk_ast(out.reborrow())?;
        self.filter.walk_ast(out.reborrow())?;
        out.push_sql(") AS ");
        self.names.parent.walk_ast(out)
    }

    /// `SELECT parent.key AS sharded_key_0, `
    fn push_select_keys(&self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT ");
        for (number, column) in self.names.key.iter().enumerate() {
            self.names.push_column(&column.name, out.reborrow())?;
            out.push_sql(" AS ");
            out.push_identifier(&key(number))?;
            out.push_sql(", ");
        }
        Ok(())
    }

    /// `sharded_key_0, sharded_total`
    fn push_keys_and_total(&self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        for number in 0..self.names.key.len() {
            out.push_identifier(&key(number))?;
            out.push_sql(", ");
        }
        out.push_identifier(TOTAL)
    }

    /// `, parent.key DESC`
    fn push_then_by_key(
        &self,
        names: Names<'b, DB>,
        mut out: AstPass<'_, 'b, DB>,
    ) -> QueryResult<()> {
        for column in names.key {
            out.push_sql(", ");
            names.push_column(&column.name, out.reborrow())?;
            out.push_sql(self.direction);
        }
        Ok(())
    }

    /// `SELECT 1 FROM shards WHERE shards.key = parent.key AND shards.views <> 0`
    fn push_a_shard(&self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SELECT 1");
        self.names.push_from_shards(None, out.reborrow())?;
        out.push_sql(" AND ");
        self.push_is_not_zero(out)
    }

    /// `shards.views <> 0`
    fn push_is_not_zero(&self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        self.names.push_shards_column(self.field, out.reborrow())?;
        out.push_sql(" <> 0");
        Ok(())
    }

    /// `SUM(shards.views)`
    fn push_sum(&self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("SUM(");
        self.names.push_shards_column(self.field, out.reborrow())?;
        out.push_sql(")");
        Ok(())
    }

    /// `shards.key`
    fn push_shards_key(&self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        for (number, column) in self.names.key.iter().enumerate() {
            out.push_sql(if number == 0 { "" } else { ", " });
            self.names
                .push_shards_column(&column.name, out.reborrow())?;
        }
        Ok(())
    }

    /// `table.key = parent.key`
    fn push_key_equals(&self, table: &str, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        for (number, column) in self.names.key.iter().enumerate() {
            out.push_sql(if number == 0 { "" } else { " AND " });
            push_column_of(table, &column.name, out.reborrow())?;
            out.push_sql(" = ");
            self.names.push_column(&column.name, out.reborrow())?;
        }
        Ok(())
    }
}

#[cfg(all(
    test,
    feature = "postgres_backend",
    feature = "mysql_backend",
    feature = "sqlite"
))]
mod tests {
    use super::*;
    use crate::test_schema::{downloads, sql, videos};
    use crate::top;
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;
    use diesel::query_builder::AsQuery;
    use diesel::sqlite::Sqlite;

    #[test]
    fn sql_of_all_rows() {
        let ids = || {
            top(videos::table, videos::views, 10)
                .select(videos::id)
                .as_query()
        };
        assert_eq!(
            sql!(Pg, ids()),
            r#"SELECT "videos"."id" FROM (SELECT "sharded_key_0", "sharded_total" FROM (SELECT "sharded_key_0", "sharded_total" FROM (SELECT "videos"."id" AS "sharded_key_0", "videos"."views" AS "sharded_total" FROM "videos" WHERE NOT EXISTS (SELECT 1 FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id" AND "videos_shards"."views" <> 0) ORDER BY "videos"."views" DESC, "videos"."id" DESC LIMIT $1) AS sharded_bases UNION ALL SELECT "videos"."id" AS "sharded_key_0", "videos"."views" + "sharded_sums"."sharded_sum" AS "sharded_total" FROM (SELECT "videos_shards"."id", SUM("videos_shards"."views") AS "sharded_sum" FROM "videos_shards" WHERE "videos_shards"."views" <> 0 GROUP BY "videos_shards"."id") AS "sharded_sums" JOIN "videos" ON "sharded_sums"."id" = "videos"."id") AS sharded_candidates ORDER BY "sharded_total" DESC, "sharded_key_0" DESC LIMIT $2 OFFSET $3) AS "sharded_top" JOIN "videos" ON "sharded_top"."sharded_key_0" = "videos"."id" ORDER BY "sharded_top"."sharded_total" DESC, "videos"."id" DESC"#
        );
        assert_eq!(
            sql!(Mysql, ids()),
            "SELECT `videos`.`id` FROM (SELECT `sharded_key_0`, `sharded_total` FROM (SELECT `sharded_key_0`, `sharded_total` FROM (SELECT `videos`.`id` AS `sharded_key_0`, `videos`.`views` AS `sharded_total` FROM `videos` WHERE (SELECT 1 FROM `videos_shards` WHERE `videos_shards`.`id` = `videos`.`id` AND `videos_shards`.`views` <> 0 LIMIT 1) IS NULL ORDER BY `videos`.`views` DESC, `videos`.`id` DESC LIMIT ?) AS sharded_bases UNION ALL SELECT `videos`.`id` AS `sharded_key_0`, MAX(`videos`.`views`) + SUM(`videos_shards`.`views`) AS `sharded_total` FROM `videos_shards` STRAIGHT_JOIN `videos` ON `videos_shards`.`id` = `videos`.`id` WHERE `videos_shards`.`views` <> 0 GROUP BY `videos`.`id`) AS sharded_candidates ORDER BY `sharded_total` DESC, `sharded_key_0` DESC LIMIT ? OFFSET ?) AS `sharded_top` JOIN `videos` ON `sharded_top`.`sharded_key_0` = `videos`.`id` ORDER BY `sharded_top`.`sharded_total` DESC, `videos`.`id` DESC LIMIT 18446744073709551615"
        );
        let as_sqlite = sql!(Pg, ids())
            .replace('"', "`")
            .replace(['1', '2', '3'], "");
        let sqlite = sql!(Sqlite, ids()).replace('1', "").replace('?', "$");
        assert_eq!(sqlite, as_sqlite);
    }

    #[test]
    fn sql_of_filtered_rows() {
        let few = || {
            top(videos::table, videos::views, 10)
                .filter(videos::slug.eq("a"))
                .ascending()
                .select(videos::id)
                .as_query()
        };
        assert_eq!(
            sql!(Pg, few()),
            r#"SELECT "videos"."id" FROM (SELECT "sharded_key_0", "sharded_total" FROM (SELECT "sharded_key_0", "sharded_total" FROM (SELECT "videos"."id" AS "sharded_key_0", "videos"."views" AS "sharded_total" FROM (SELECT "videos"."id", "videos"."views" FROM "videos" WHERE ("videos"."slug" = $1)) AS "videos" WHERE NOT EXISTS (SELECT 1 FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id" AND "videos_shards"."views" <> 0) ORDER BY "videos"."views" ASC, "videos"."id" ASC LIMIT $2) AS sharded_bases UNION ALL SELECT "videos"."id" AS "sharded_key_0", "videos"."views" + (SELECT SUM("videos_shards"."views") FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id") AS "sharded_total" FROM (SELECT "videos"."id", "videos"."views" FROM "videos" WHERE ("videos"."slug" = $3)) AS "videos" WHERE EXISTS (SELECT 1 FROM "videos_shards" WHERE "videos_shards"."id" = "videos"."id" AND "videos_shards"."views" <> 0)) AS sharded_candidates ORDER BY "sharded_total" ASC, "sharded_key_0" ASC LIMIT $4 OFFSET $5) AS "sharded_top" JOIN "videos" ON "sharded_top"."sharded_key_0" = "videos"."id" ORDER BY "sharded_top"."sharded_total" ASC, "videos"."id" ASC"#
        );
        assert!(
            sql!(Mysql, few()).contains(
                "FROM `videos_shards` JOIN (SELECT `videos`.`id`, `videos`.`views` FROM `videos` WHERE (`videos`.`slug` = ?)) AS `videos` ON `videos_shards`.`id` = `videos`.`id` WHERE `videos_shards`.`views` <> 0 GROUP BY `videos`.`id`)"
            ),
            "{}",
            sql!(Mysql, few())
        );
    }

    #[test]
    fn sql_under_a_composite_key() {
        let versions = top(downloads::table, downloads::number, 10)
            .select(downloads::version)
            .as_query();
        assert_eq!(
            sql!(Pg, versions),
            r#"SELECT "downloads"."version" FROM (SELECT "sharded_key_0", "sharded_key_1", "sharded_total" FROM (SELECT "sharded_key_0", "sharded_key_1", "sharded_total" FROM (SELECT "downloads"."version" AS "sharded_key_0", "downloads"."day" AS "sharded_key_1", "downloads"."number" AS "sharded_total" FROM "downloads" WHERE NOT EXISTS (SELECT 1 FROM "download ""counts""" WHERE "download ""counts"""."version" = "downloads"."version" AND "download ""counts"""."day" = "downloads"."day" AND "download ""counts"""."number" <> 0) ORDER BY "downloads"."number" DESC, "downloads"."version" DESC, "downloads"."day" DESC LIMIT $1) AS sharded_bases UNION ALL SELECT "downloads"."version" AS "sharded_key_0", "downloads"."day" AS "sharded_key_1", "downloads"."number" + "sharded_sums"."sharded_sum" AS "sharded_total" FROM (SELECT "download ""counts"""."version", "download ""counts"""."day", SUM("download ""counts"""."number") AS "sharded_sum" FROM "download ""counts""" WHERE "download ""counts"""."number" <> 0 GROUP BY "download ""counts"""."version", "download ""counts"""."day") AS "sharded_sums" JOIN "downloads" ON "sharded_sums"."version" = "downloads"."version" AND "sharded_sums"."day" = "downloads"."day") AS sharded_candidates ORDER BY "sharded_total" DESC, "sharded_key_0" DESC, "sharded_key_1" DESC LIMIT $2 OFFSET $3) AS "sharded_top" JOIN "downloads" ON "sharded_top"."sharded_key_0" = "downloads"."version" AND "sharded_top"."sharded_key_1" = "downloads"."day" ORDER BY "sharded_top"."sharded_total" DESC, "downloads"."version" DESC, "downloads"."day" DESC"#
        );
    }
}
