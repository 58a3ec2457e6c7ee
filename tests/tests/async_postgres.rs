//! The cases of `cases/` by the asynchronous operations, on PostgreSQL.

mod cases;

use diesel_async::AsyncPgConnection;
use diesel_sharded_tests::awaited as api;

type Conn = api::Awaited<AsyncPgConnection>;
