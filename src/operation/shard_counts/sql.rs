//! The SQL of the table of numbers.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::Error as DieselError;
use diesel::sql_types::{Binary, Integer};

use super::number::ShardCount;
use crate::backend::ShardedBackend;
use crate::connection::{Io, Link, LoadIo};
use crate::engine::explain_missing;
use crate::query_builder::{no_query_id, push_bind};

/// A number as somebody else may have written it, brought into range.
pub(super) fn within(number: i32) -> u16 {
    number.clamp(1, i32::from(ShardCount::MAX)) as u16
}

pub(in crate::operation) const TABLE: &str = "diesel_sharded_shard_numbers";

/// The shards table, the counter, and its number.
pub(super) type NumberRow = (Vec<u8>, Vec<u8>, i32);

pub(super) async fn load<M, Conn>(
    link: &mut Link<'_, M, Conn>,
    only: Only<'_>,
) -> QueryResult<Vec<NumberRow>>
where
    M: LoadIo<Conn>,
{
    let select = SelectNumbers { only };
    let rows = link.load(select).await;
    rows.map_err(|error| explained(link, error))
}

/// The error, or that the library's migrations have not run.
pub(super) fn explained<M, Conn>(link: &Link<'_, M, Conn>, error: DieselError) -> DieselError
where
    M: Io<Conn>,
{
    explain_missing(&link.backend(), TABLE, error)
}

/// Which numbers are read.
pub(super) enum Only<'a> {
    All,
    Table(&'a str),
    /// One, as it is now and not as a caller's transaction saw it, if it was just written.
    Number(&'a ShardCount, bool),
}

/// See [`refresh`](super::refresh()) and [`ShardCount::get`].
struct SelectNumbers<'a> {
    only: Only<'a>,
}

impl<DB: ShardedBackend> QueryFragment<DB> for SelectNumbers<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared();
        out.push_sql("SELECT ");
        push_columns(out.reborrow())?;
        out.push_sql(" FROM ");
        out.push_identifier(TABLE)?;
        match &self.only {
            Only::All => {}
            Only::Table(table) => push_is_of_table(table, out.reborrow())?,
            Only::Number(number, _) => push_is(number, out.reborrow())?,
        }
        let dialect = out.backend().dialect();
        out.push_sql(dialect.all_rows());
        if let Only::Number(_, true) = self.only {
            out.push_sql(dialect.reads_what_is_locked());
        }
        Ok(())
    }
}

/// Forgets a number.
pub(super) struct DeleteNumber<'a>(pub(super) &'a ShardCount);

impl<DB: ShardedBackend> QueryFragment<DB> for DeleteNumber<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("DELETE FROM ");
        out.push_identifier(TABLE)?;
        push_is(self.0, out)
    }
}

/// ` WHERE shards_table = $1 AND counter = $2`
fn push_is<'b, DB: ShardedBackend>(
    ShardCount { table, counter, .. }: &'b ShardCount,
    mut out: AstPass<'_, 'b, DB>,
) -> QueryResult<()> {
    push_is_of_table(table, out.reborrow())?;
    out.push_sql(" AND ");
    out.push_identifier("counter")?;
    out.push_sql(" = ");
    push_bind::<Binary, [u8], DB>(counter, out)
}

/// ` WHERE shards_table = $1`
fn push_is_of_table<'b, DB: ShardedBackend>(
    table: &'b str,
    mut out: AstPass<'_, 'b, DB>,
) -> QueryResult<()> {
    out.push_sql(" WHERE ");
    out.push_identifier("shards_table")?;
    out.push_sql(" = ");
    push_bind::<Binary, [u8], DB>(table.as_bytes(), out)
}

impl Query for SelectNumbers<'_> {
    type SqlType = (Binary, Binary, Integer);
}

/// See [`ShardCount::increase`] and [`ShardCount::resize`].
pub(super) struct UpsertNumber<'a> {
    pub(super) of: &'a ShardCount,
    pub(super) first: i32,
    pub(super) then: i32,
    pub(super) only_up: bool,
}

impl<DB: ShardedBackend> QueryFragment<DB> for UpsertNumber<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared();
        out.push_sql("INSERT INTO ");
        out.push_identifier(TABLE)?;
        out.push_sql(" (");
        push_columns(out.reborrow())?;
        out.push_sql(") VALUES (");
        push_bind::<Binary, [u8], DB>(self.of.table.as_bytes(), out.reborrow())?;
        out.push_sql(", ");
        push_bind::<Binary, [u8], DB>(&self.of.counter, out.reborrow())?;
        out.push_sql(", ");
        push_bind::<Integer, i32, DB>(&self.first, out.reborrow())?;
        out.push_sql(")");
        if out.backend().dialect().names_conflict_target() {
            out.push_sql(" ON CONFLICT (");
            out.push_identifier("shards_table")?;
            out.push_sql(", ");
            out.push_identifier("counter")?;
            out.push_sql(") DO UPDATE SET ");
        } else {
            out.push_sql(" ON DUPLICATE KEY UPDATE ");
        }
        out.push_identifier("shards")?;
        out.push_sql(" = ");
        if self.only_up {
            out.push_sql("CASE WHEN ");
            push_number(out.reborrow())?;
            out.push_sql(" < ");
            push_bind::<Integer, i32, DB>(&self.then, out.reborrow())?;
            out.push_sql(" THEN ");
            push_bind::<Integer, i32, DB>(&self.then, out.reborrow())?;
            out.push_sql(" ELSE ");
            push_number(out.reborrow())?;
            out.push_sql(" END");
            Ok(())
        } else {
            push_bind::<Integer, i32, DB>(&self.then, out)
        }
    }
}

fn push_columns<DB: ShardedBackend>(mut out: AstPass<'_, '_, DB>) -> QueryResult<()> {
    for (i, column) in ["shards_table", "counter", "shards"]
        .into_iter()
        .enumerate()
    {
        if i > 0 {
            out.push_sql(", ");
        }
        out.push_identifier(column)?;
    }
    Ok(())
}

/// `numbers.shards`
fn push_number<DB: ShardedBackend>(mut out: AstPass<'_, '_, DB>) -> QueryResult<()> {
    out.push_identifier(TABLE)?;
    out.push_sql(".");
    out.push_identifier("shards")
}

impl QueryId for DeleteNumber<'_> {
    type QueryId = DeleteNumber<'static>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

no_query_id!([] SelectNumbers<'_>);

no_query_id!([] UpsertNumber<'_>);

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
    fn a_number_is_raised_by_an_upsert() {
        let raise = UpsertNumber {
            of: &ShardCount::of(videos::views),
            first: 64,
            then: 64,
            only_up: true,
        };
        assert_eq!(
            sql!(Pg, raise),
            r#"INSERT INTO "diesel_sharded_shard_numbers" ("shards_table", "counter", "shards") VALUES ($1, $2, $3) ON CONFLICT ("shards_table", "counter") DO UPDATE SET "shards" = CASE WHEN "diesel_sharded_shard_numbers"."shards" < $4 THEN $5 ELSE "diesel_sharded_shard_numbers"."shards" END"#
        );
        let set = UpsertNumber {
            only_up: false,
            ..raise
        };
        assert_eq!(
            sql!(Mysql, set),
            "INSERT INTO `diesel_sharded_shard_numbers` (`shards_table`, `counter`, `shards`) VALUES (?, ?, ?) ON DUPLICATE KEY UPDATE `shards` = ?"
        );
    }
}
