//! Diesel's update of one row as a team would write it by hand, so that it stays prepared. Diesel prepares its own each time.

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, HasSqlType, Text};

/// The update of the row that has this key.
pub struct Prepared<K>(pub K);

/// A column that tells a row, by the type of its values.
pub trait Key: 'static {
    type SqlType;
    const COLUMN: &'static str;
}

impl Key for i64 {
    type SqlType = BigInt;
    const COLUMN: &'static str = "id";
}

impl Key for &'static str {
    type SqlType = Text;
    const COLUMN: &'static str = "slug";
}

impl<K: Key> QueryId for Prepared<K> {
    type QueryId = Prepared<K>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<K: Key, Conn> RunQueryDsl<Conn> for Prepared<K> {}

impl<K, DB> QueryFragment<DB> for Prepared<K>
where
    K: Key + ToSql<K::SqlType, DB>,
    DB: Backend + HasSqlType<K::SqlType>,
    i64: ToSql<BigInt, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("UPDATE prepared_links SET clicks = clicks + ");
        out.push_bind_param::<BigInt, i64>(&1)?;
        out.push_sql(" WHERE ");
        out.push_identifier(K::COLUMN)?;
        out.push_sql(" = ");
        out.push_bind_param::<K::SqlType, K>(&self.0)
    }
}
