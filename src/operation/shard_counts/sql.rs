//! The SQL of the table of numbers.

use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::Error as DieselError;
use diesel::sql_types::{Binary, Integer};

use super::number::Number;
use crate::backend::{Dialect, ShardedBackend};
use crate::connection::{Io, Link, LoadIo};
use crate::engine::explain_missing;
use crate::model::MAX_SHARDS;
use crate::query_builder::{Sql, bind, id, no_query_id, on, sql};

/// A number as somebody else may have written it, brought into range.
pub(super) fn within(number: i32) -> u16 {
    number.clamp(1, i32::from(MAX_SHARDS)) as u16
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
    Number(&'a Number, bool),
}

/// See [`refresh`](super::refresh()) and [`ShardCount::get`](super::ShardCount::get).
struct SelectNumbers<'a> {
    only: Only<'a>,
}

impl<DB: ShardedBackend> QueryFragment<DB> for SelectNumbers<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared();
        sql!(out.reborrow(); "SELECT ", columns(), " FROM ", id(TABLE))?;
        match self.only {
            Only::All => {}
            Only::Table(table) => is_of_table(table).push(out.reborrow())?,
            Only::Number(number, _) => is(number).push(out.reborrow())?,
        }
        let as_it_is = matches!(self.only, Only::Number(_, true));
        sql!(out; on(Dialect::all_rows), if as_it_is { on(Dialect::reads_what_is_locked) })
    }
}

/// Forgets a number.
pub(super) struct DeleteNumber<'a>(pub(super) &'a Number);

impl<DB: ShardedBackend> QueryFragment<DB> for DeleteNumber<'_> {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        sql!(out; "DELETE FROM ", id(TABLE), is(self.0))
    }
}

/// ` WHERE shards_table = $1 AND counter = $2`
fn is<'b, DB: ShardedBackend>(number: &'b Number) -> impl Sql<'b, DB> {
    sql! { is_of_table(&number.table), " AND ", id("counter"), " = ", bind(Binary, &number.counter[..]) }
}

/// ` WHERE shards_table = $1`
fn is_of_table<'b, DB: ShardedBackend>(table: &'b str) -> impl Sql<'b, DB> {
    sql! { " WHERE ", id("shards_table"), " = ", bind(Binary, table.as_bytes()) }
}

impl Query for SelectNumbers<'_> {
    type SqlType = (Binary, Binary, Integer);
}

/// See [`ShardCount::increase`](super::ShardCount::increase) and [`ShardCount::resize`](super::ShardCount::resize).
pub(super) struct UpsertNumber<'a> {
    pub(super) of: &'a Number,
    pub(super) first: i32,
    pub(super) then: i32,
    pub(super) only_up: bool,
}

impl<DB: ShardedBackend> QueryFragment<DB> for UpsertNumber<'_> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.unsafe_to_cache_prepared();
        let by_target = out.backend().dialect().names_conflict_target();
        let Number { table, counter, .. } = self.of;
        sql!(out;
            "INSERT INTO ", id(TABLE), " (", columns(), ") VALUES (",
            bind(Binary, table.as_bytes()), ", ", bind(Binary, &counter[..]), ", ", bind(Integer, &self.first), ")",
            if by_target { " ON CONFLICT (", id("shards_table"), ", ", id("counter"), ") DO UPDATE SET " } else {
                " ON DUPLICATE KEY UPDATE "
            },
            id("shards"), " = ",
            if self.only_up {
                "CASE WHEN ", number(), " < ", bind(Integer, &self.then), " THEN ", bind(Integer, &self.then), " ELSE ", number(), " END"
            } else { bind(Integer, &self.then) })
    }
}

fn columns<'b, DB: ShardedBackend>() -> impl Sql<'b, DB> {
    sql! { for column in (["shards_table", "counter", "shards"], ", ") { id(column) } }
}

/// `numbers.shards`
fn number<'b, DB: ShardedBackend>() -> impl Sql<'b, DB> {
    sql! { id(TABLE), ".", id("shards") }
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
    use crate::test_schema::sql;
    use diesel::mysql::Mysql;
    use diesel::pg::Pg;

    #[test]
    fn a_number_is_raised_by_an_upsert() {
        let raise = UpsertNumber {
            of: &Number {
                table: "videos_shards".into(),
                counter: b"views".to_vec(),
                default: 128,
            },
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
