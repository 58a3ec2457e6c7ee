//! Operations on connections whose transactions Diesel does not know: begun by SQL text, or by `autocommit = 0`.

use diesel::prelude::*;
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_async::{AsyncMysqlConnection, AsyncPgConnection};
use diesel_sharded_tests::awaited::Awaited;

mod deadlocks;
mod isolation;
mod round_trips;
mod without_autocommit;

/// The cases on each kind of connection, by the blocking or the awaited operations.
macro_rules! cases {
    ($($name:ident: $conn:ty, $api:path;)+) => {$(
        #[path = "raw_transactions"]
        mod $name {
            use super::*;
            use $api as api;

            type Conn = $conn;

            pub mod cases;
            #[path = "../../operations/mod.rs"]
            #[expect(dead_code, reason = "what other programs use")]
            mod operations;
        }
    )+};
}

cases! {
    postgres: PgConnection, diesel_sharded;
    mysql: MysqlConnection, diesel_sharded;
    sqlite: SqliteConnection, diesel_sharded;
    async_postgres: Awaited<AsyncPgConnection>, diesel_sharded_tests::awaited;
    async_mysql: Awaited<AsyncMysqlConnection>, diesel_sharded_tests::awaited;
    async_sqlite: Awaited<SyncConnectionWrapper<SqliteConnection>>, diesel_sharded_tests::awaited;
}
