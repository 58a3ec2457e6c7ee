//! The cases of `cases/` by the asynchronous operations, on SQLite.

mod cases;

use diesel::SqliteConnection;
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;
use diesel_sharded_tests::awaited as api;

type Conn = api::Awaited<SyncConnectionWrapper<SqliteConnection>>;
