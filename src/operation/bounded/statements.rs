//! Statements of counters with bounds.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment};
use diesel::sql_types::{BigInt, Integer};

use crate::backend::ShardedBackend;
use crate::model::{SHARD, ShardedColumn};
use crate::operation::row_counter::AddTo;
use crate::query_builder::{
    KeyIs, Prepare, no_query_id, push_aliased_column, push_bind, push_column, push_shard_is,
    push_shards_as_parent, push_under_alias,
};

/// `UPDATE shards AS parent SET … WHERE key AND parent.shard = $n AND (parent.field + $n) >= 0`, or `<= 0`; where it gives,
/// `AND parent.field > 0`, or `< 0`
pub(super) struct AddWithin<C, P> {
    pub(super) add: AddTo<C>,
    pub(super) key: KeyIs<P>,
    pub(super) shard: i32,
    pub(super) upwards: bool,
    pub(super) gives: bool,
}

impl<C, P, DB> QueryFragment<DB> for AddWithin<C, P>
where
    C: ShardedColumn<Table: QueryFragment<DB>>,
    P: QueryFragment<DB>,
    DB: ShardedBackend,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("UPDATE ");
        push_shards_as_parent::<C::Table, DB>(out.reborrow())?;
        out.push_sql(" SET ");
        push_under_alias::<C::Table, _, DB>(&self.add, out.reborrow())?;
        push_under_alias::<C::Table, _, DB>(&self.key, out.reborrow())?;
        out.push_sql(" AND ");
        push_shard_is::<C::Table, DB>(&self.shard, out.reborrow())?;
        out.push_sql(" AND ");
        match self.gives {
            true => push_aliased_column::<C::Table, DB>(C::NAME, out.reborrow())?,
            false => push_under_alias::<C::Table, _, DB>(self.add.sum(), out.reborrow())?,
        }
        out.push_sql(match (self.upwards, self.gives) {
            (false, false) => " >= 0",
            (false, true) => " > 0",
            (true, false) => " <= 0",
            (true, true) => " < 0",
        });
        Ok(())
    }
}

impl<C, P, DB> Prepare<DB> for AddWithin<C, P>
where
    C: ShardedColumn<Table: QueryFragment<DB>>,
    P: QueryFragment<DB>,
    DB: ShardedBackend,
{
}

// Has four texts, and so no static id; Diesel keeps it prepared by its text.
no_query_id!([C, P] AddWithin<C, P>);

/// `field = CASE WHEN shard >= $n THEN 0 WHEN shard % 2 = 0 THEN $n ELSE $n END`
pub(super) struct ToShares<C> {
    pub(super) beyond: i32,
    pub(super) down: i64,
    pub(super) up: i64,
    pub(super) column: PhantomData<C>,
}

impl<C, DB> QueryFragment<DB> for ToShares<C>
where
    C: ShardedColumn<Table: QueryFragment<DB>>,
    DB: ShardedBackend,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_identifier(C::NAME)?;
        out.push_sql(" = CASE WHEN ");
        push_column::<C::Table, DB>(SHARD, out.reborrow())?;
        out.push_sql(" >= ");
        push_bind::<Integer, i32, DB>(&self.beyond, out.reborrow())?;
        out.push_sql(" THEN 0 WHEN ");
        push_column::<C::Table, DB>(SHARD, out.reborrow())?;
        out.push_sql(" % 2 = 0 THEN ");
        push_bind::<BigInt, i64, DB>(&self.down, out.reborrow())?;
        out.push_sql(" ELSE ");
        push_bind::<BigInt, i64, DB>(&self.up, out.reborrow())?;
        out.push_sql(" END");
        Ok(())
    }
}

/// `field = $n`
pub(super) struct Base<C>(pub(super) i64, pub(super) PhantomData<C>);

impl<C, DB> QueryFragment<DB> for Base<C>
where
    C: ShardedColumn<Table: QueryFragment<DB>>,
    DB: ShardedBackend,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_identifier(C::NAME)?;
        out.push_sql(" = ");
        push_bind::<BigInt, i64, DB>(&self.0, out)
    }
}

#[cfg(all(test, feature = "postgres_backend", feature = "mysql_backend"))]
mod tests {
    use super::*;
    use crate::test_schema::{sql, videos};
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;

    #[test]
    fn sql_of_a_count_and_of_shares() {
        let add = AddWithin::<videos::likes, _> {
            add: AddTo::new(-1),
            key: KeyIs(videos::id.eq(7)),
            shard: 2,
            upwards: false,
            gives: false,
        };
        assert_eq!(
            sql!(Pg, add),
            r#"UPDATE "videos_shards" AS "videos" SET "likes" = ("videos"."likes" + $1) WHERE ("videos"."id" = $2) AND "videos"."shard" = $3 AND ("videos"."likes" + $4) >= 0"#
        );
        let give = AddWithin::<videos::likes, _> {
            add: AddTo::new(-1),
            key: KeyIs(videos::id.eq(7)),
            shard: 3,
            upwards: true,
            gives: true,
        };
        assert_eq!(
            sql!(Pg, give),
            r#"UPDATE "videos_shards" AS "videos" SET "likes" = ("videos"."likes" + $1) WHERE ("videos"."id" = $2) AND "videos"."shard" = $3 AND "videos"."likes" < 0"#
        );
        let to_shares = ToShares::<videos::likes> {
            beyond: 16,
            down: 5,
            up: -3,
            column: PhantomData,
        };
        assert_eq!(
            sql!(Mysql, to_shares),
            "`likes` = CASE WHEN `videos`.`shard` >= ? THEN 0 WHEN `videos`.`shard` % 2 = 0 THEN ? ELSE ? END"
        );
    }
}
