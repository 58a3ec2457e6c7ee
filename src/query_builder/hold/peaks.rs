//! The statement that reads the greatest and least values of bases and totals.

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, Query, QueryFragment};
use diesel::sql_types::{Nullable, Text};

use crate::backend::ShardedBackend;
use crate::query_builder::no_query_id;
use crate::query_builder::peak::push_peak;

use super::rows::HeldRows;
use super::states::Fields;

/// Reads base and total of some fields that keep a greatest or least value, one text for each parent. A space stands between two
/// values and in none of them; one that is not there is `NULL`.
///
/// ```sql
/// SELECT REPLACE(COALESCE(CAST("videos"."best" AS TEXT), 'NULL'), ' ', 'T') || ' ' ||
///     REPLACE(COALESCE(CAST(total AS TEXT), 'NULL'), ' ', 'T') || ' ' || … FROM "videos" WHERE … ORDER BY "videos"."id"
/// -- MySQL, MariaDB: CONCAT(…, ' ', …), and all SELECTs end in FOR UPDATE
/// ```
pub(crate) struct ReadPeaks<'a, W, DB: Backend> {
    pub(crate) of: HeldRows<'a, W, DB>,
    pub(crate) fields: &'a Fields<'a>,
}

impl<W, DB> QueryFragment<DB> for ReadPeaks<'_, W, DB>
where
    DB: ShardedBackend,
    W: QueryFragment<DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let (names, dialect) = (self.of.names, out.backend().dialect());
        let [joined, between, end] = dialect.joined_texts();
        out.push_sql("SELECT ");
        out.push_sql(joined);
        for (i, field) in self.fields.iter().enumerate() {
            let (cast, as_text) = dialect.nullable_as_text(field.column_type);
            if i > 0 {
                out.push_sql(between);
            }
            out.push_sql("REPLACE(");
            out.push_sql(cast);
            names.push_column(&field.name, out.reborrow())?;
            out.push_sql(as_text);
            out.push_sql(", ' ', 'T')");
            out.push_sql(between);
            out.push_sql("REPLACE(");
            out.push_sql(cast);
            let (shard, lock) = (self.of.shard.as_ref(), dialect.reads_what_is_locked());
            push_peak(names, field, shard, lock, out.reborrow())?;
            out.push_sql(as_text);
            out.push_sql(", ' ', 'T')");
        }
        out.push_sql(end);
        self.of.push_from_parents(out)
    }
}

impl<W, DB: Backend> Query for ReadPeaks<'_, W, DB> {
    type SqlType = Nullable<Text>;
}

no_query_id!(
    [W, DB: Backend] ReadPeaks<'_, W, DB>,
);
