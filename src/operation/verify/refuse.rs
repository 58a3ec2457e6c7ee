//! Tables and sessions whose recount would be misread.

use std::marker::PhantomData;

use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment};
use diesel::result::Error as DieselError;
use diesel::sql_types::Integer;

use crate::backend::{Dialect, ShardedBackend};
use crate::connection::{Link, LoadIo};
use crate::engine::KeyedTable;
use crate::error::Error;
use crate::model::{ColumnType, ShardedTable};
use crate::query_builder::{Names, no_query_id, on, sql, walk};

/// Refuses a table whose keys PostgreSQL pads with spaces when it returns them. A recount may return them with or without the
/// padding, and the two would be compared as different keys.
pub(super) async fn refuse_padded_keys<T, DB, M, Conn>(
    link: &mut Link<'_, M, Conn>,
) -> QueryResult<()>
where
    T: KeyedTable<DB>,
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    let texts = T::KEY.iter().map(|column| column.column_type);
    let has_text = texts.into_iter().any(|column| column == ColumnType::Text);
    if !has_text || !link.dialect().pads_text() {
        return Ok(());
    }
    let find = FindPaddedKey::<T>(PhantomData);
    match link.load::<i32, _>(find).await?.is_empty() {
        true => Ok(()),
        false => Err(Error::PaddedKey {
            shards_table: T::SHARDS_TABLE.as_str(),
        }
        .into()),
    }
}

/// Refuses a session whose `sql_select_limit` may cut the recount, which is the application's own query: rows that are cut off
/// would be taken for 0.
pub(super) async fn refuse_cut_recounts<DB, M, Conn>(
    link: &mut Link<'_, M, Conn>,
) -> QueryResult<()>
where
    M: LoadIo<Conn, Backend = DB>,
    DB: ShardedBackend,
{
    if link.dialect().all_rows().is_empty() {
        return Ok(());
    }
    let limits = link.load::<i32, _>(FindSelectLimit).await?;
    match limits.is_empty() {
        true => Ok(()),
        false => Err(Error::RefusedBySetting {
            setting: "sql_select_limit",
            remedy: "it would cut the recount: `SET SESSION sql_select_limit = DEFAULT` before",
            source: DieselError::QueryBuilderError("a recount has to give all of its rows".into()),
        }
        .into()),
    }
}

/// Reads a row if the session has a limit for queries.
struct FindSelectLimit;

impl<DB: ShardedBackend> QueryFragment<DB> for FindSelectLimit {
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        sql!(out;
            "SELECT 1 FROM (SELECT 1) AS one WHERE @@sql_select_limit < 18446744073709551615", on(Dialect::all_rows))
    }
}

impl Query for FindSelectLimit {
    type SqlType = Integer;
}

no_query_id!([] FindSelectLimit);

/// Reads a row if a key column is a `CHAR(n)` and the table is not empty.
///
/// ```sql
/// SELECT 1 FROM "videos" WHERE pg_typeof("videos"."slug") = 'character'::regtype LIMIT 1
/// ```
struct FindPaddedKey<T>(PhantomData<T>);

impl<T, DB> QueryFragment<DB> for FindPaddedKey<T>
where
    T: ShardedTable + QueryFragment<DB>,
    DB: ShardedBackend,
{
    fn walk_ast<'b>(&'b self, out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let table = Names::of::<T>();
        let texts = table.key.iter();
        let texts = texts.filter(|column| column.column_type == ColumnType::Text);
        sql!(out;
            "SELECT 1 FROM ", walk(table.parent),
            " WHERE ", for column in (texts, " OR ") { "pg_typeof(", table.column(&column.name), ") = 'character'::regtype" },
            " LIMIT 1")
    }
}

impl<T> Query for FindPaddedKey<T> {
    type SqlType = Integer;
}

no_query_id!([T: 'static] FindPaddedKey<T>);
