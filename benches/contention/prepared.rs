//! The alternatives' statements as a team would write them by hand, so that they stay prepared. Diesel prepares its `update` and
//! its upsert anew each time.

use std::marker::PhantomData;

use diesel::backend::Backend;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, HasSqlType};

/// A statement, with `?` for the placeholder of any database.
pub trait Statement: 'static {
    const SQL: &'static str;
}

macro_rules! statements {
    ($($name:ident = $sql:literal;)*) => {$(
        pub struct $name;

        impl Statement for $name {
            const SQL: &'static str = $sql;
        }
    )*};
}

statements! {
    UpdateRow = "UPDATE prepared_row SET views = views + 1 WHERE id = ?";
    InsertEvent = "INSERT INTO prepared_events (video_id, n) VALUES (?, 1)";
    UpdateSlot = "UPDATE prepared_slots SET count = count + 1 WHERE counter = ? AND slot = ?";
    UpsertSlot = "INSERT INTO prepared_slots (counter, slot, count) VALUES (?, ?, 1) \
        ON CONFLICT (counter, slot) DO UPDATE SET count = prepared_slots.count + 1";
    UpsertSlotOnMysql = "INSERT INTO prepared_slots (counter, slot, count) VALUES (?, ?, 1) \
        ON DUPLICATE KEY UPDATE count = count + 1";
}

/// A statement with its values.
pub struct Prepared<S, const N: usize = 1> {
    values: [i64; N],
    statement: PhantomData<S>,
}

impl<S, const N: usize> Prepared<S, N> {
    pub fn new(values: [i64; N]) -> Self {
        Prepared {
            values,
            statement: PhantomData,
        }
    }
}

impl<S: Statement, const N: usize> QueryId for Prepared<S, N> {
    type QueryId = Prepared<S, N>;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<S, Conn, const N: usize> RunQueryDsl<Conn> for Prepared<S, N> {}

impl<S, DB, const N: usize> QueryFragment<DB> for Prepared<S, N>
where
    S: Statement,
    DB: Backend + HasSqlType<BigInt>,
    i64: ToSql<BigInt, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        let mut parts = S::SQL.split('?');
        out.push_sql(parts.next().unwrap_or_default());
        for (value, sql) in self.values.iter().zip(parts) {
            out.push_bind_param::<BigInt, i64>(value)?;
            out.push_sql(sql);
        }
        Ok(())
    }
}
